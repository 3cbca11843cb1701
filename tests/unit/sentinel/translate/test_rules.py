from __future__ import annotations

from typing import Any

from envoy.extensions.filters.http.local_ratelimit.v3 import local_rate_limit_pb2
from envoy.extensions.filters.http.rbac.v3 import rbac_pb2
from translate_objects import WITH_SERVICES, backend, inputs_of, policy, route
from translated_inputs import PEM

from shoal.sentinel.translate import envoy, rules
from shoal.sentinel.translate.gates import gates
from shoal.sentinel.translate.policies import http_filters
from shoal.sentinel.translate.tokens import jwks_of_pem
from shoal.sentinel.translate.translator import translate
from shoal.sentinel.xds.model import EXTENSION, ROUTES

_KEY = {"locations": [{"bearer": {}}]}


def _names(made: rbac_pb2.RBACPerRoute | None) -> list[str]:
    return sorted(made.rbac.rules.policies) if made is not None else []


def test_rules_deny_in_the_order_of_the_policies_and_after_the_judge_what_needs_it() -> None:
    before, behind = gates(
        [
            policy("w1", firewall={"paths": ["/x"]}),
            policy("k", keyAuth=_KEY),
            policy("w2", firewall={"paths": ["/y"]}),
            policy("l", rateLimit={"limit": 1, "identifier": {"subject": {}}}),
        ]
    )
    assert _names(before) == ["0000-firewall/w1"]
    assert _names(behind) == [
        "0000-policy_error/k",
        "0001-insufficient_permissions/k",
        "0002-missing_key/k",
        "0003-invalid_key/k",
        "0004-firewall/w2",
        "0005-unidentified/l",
    ]


def test_each_policy_that_asks_for_a_key_has_a_verdict_of_its_own_which_no_instance_sees() -> None:
    asking = [policy(name, order=at, keyAuth=_KEY) for at, name in enumerate(("k1", "k2"), 1)]
    made = translate(
        inputs_of(route("r", "a.example", backend("d1")), policy("w", firewall={"paths": ["/x"]}), *asking)
    )
    for each in made[ROUTES][envoy.ALL_ROUTES].virtual_hosts[0].routes:
        gate = each.typed_per_filter_config["gate"].value
        for name, verdict in rules.verdict_facts(asking).items():
            assert verdict in each.request_headers_to_remove
            assert f"missing_key/{name}".encode() in gate and verdict.encode() in gate
    assert set(rules.verdict_facts(asking).values()) == {rules.FIRST_VERDICT, f"{rules.VERDICT_FACT}1"}


def test_the_chain_of_filters_is_off_until_a_route_turns_it_on() -> None:
    assert all(each.disabled for each in http_filters(WITH_SERVICES))
    made = translate(inputs_of(route("r", "a.example", backend("d1"))))
    routes = made[ROUTES][envoy.ALL_ROUTES].virtual_hosts[0].routes
    assert len(routes) == 5 and not any(each.typed_per_filter_config for each in routes)


def test_every_variant_of_a_route_has_its_policies() -> None:
    made = translate(
        inputs_of(
            route("r", "a.example", backend("d1")),
            policy("w", order=1, firewall={"paths": ["/x"]}),
            policy("k", order=2, keyAuth=_KEY),
        )
    )
    routes = made[ROUTES][envoy.ALL_ROUTES].virtual_hosts[0].routes
    assert len(routes) == 5
    assert all(set(each.typed_per_filter_config) == {"firewall", "keys", "gate"} for each in routes)


def _buckets(made: Any, name: str) -> local_rate_limit_pb2.LocalRateLimit:
    found = local_rate_limit_pb2.LocalRateLimit()
    assert made[EXTENSION][name].typed_config.Unpack(found)
    return found


def test_a_limit_is_early_unless_a_policy_before_it_authenticates_and_always_enforced() -> None:
    limit = {"limit": 5, "window": 10, "scope": "local", "identifier": {"remoteIp": {}}}
    made = translate(
        inputs_of(
            route("r", "a.example", backend("d1")),
            policy("a", order=1, rateLimit=limit),
            policy("k", order=2, keyAuth=_KEY),
            policy("b", order=3, rateLimit={**limit, "identifier": {"subject": {}}}),
        )
    )
    early, late = _buckets(made, "early"), _buckets(made, "late")
    assert [one.entries[0].value for one in early.descriptors] == ["a"]
    assert [one.entries[0].value.split("@")[0] for one in late.descriptors] == ["b"]
    bucket = early.descriptors[0].token_bucket
    assert (bucket.max_tokens, bucket.tokens_per_fill.value, bucket.fill_interval.seconds) == (5, 5, 10)
    for found in (early, late):
        for share in (found.filter_enabled, found.filter_enforced):
            assert share.default_value.numerator == 1_000_000


def test_keys_in_pem_form_become_a_set_of_one() -> None:
    assert '"crv":"P-256"' in jwks_of_pem(PEM)
