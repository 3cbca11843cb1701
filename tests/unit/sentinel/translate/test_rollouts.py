"""Testers, copies and preview hosts of a candidate, as Envoy gets them."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from translate_objects import backend, inputs_of, policy

from shoal.crds.sentinel import read_rollout
from shoal.sentinel.model import GatewayRoute, Inputs, TlsSecret
from shoal.sentinel.translate import envoy
from shoal.sentinel.translate.plan import plan
from shoal.sentinel.translate.reading import route_of
from shoal.sentinel.translate.rollouts import MAX_TESTERS, matcher_of
from shoal.sentinel.translate.translator import translate
from shoal.sentinel.xds.model import CLUSTER, ROUTES

OLD, NEW = backend("d1", weight=100), backend("d2", weight=0)
HEADER = {"header": {"name": "X-Beta", "value": "1"}, "target": backend("d2")}
COOKIE = {"cookie": {"name": "beta", "value": "yes"}, "target": backend("d2")}
PREVIEW = {"host": "Next.example", "target": backend("d2")}


def rolled(
    name: str = "r", host: str = "a.example", *, created: str = "", rollout: Any = None, **spec: Any
) -> GatewayRoute:
    whole = {"environment": "env_1", "host": host, "backends": [OLD, NEW], **spec}
    about = {"name": name, "generation": 1, "creationTimestamp": created}
    return route_of({"metadata": about, "spec": whole, "rollout": rollout or {}})


def routes_of(found: Inputs, host: str) -> list[Any]:
    made = translate(found)[ROUTES][envoy.ALL_ROUTES]
    return next(list(each.routes) for each in made.virtual_hosts if each.name == host)


def test_the_routes_of_testers_come_first_and_lead_to_the_candidate_with_all_that_the_route_says() -> None:
    route = rolled(
        rollout={"testers": [HEADER, COOKIE]}, path="/shop", sticky={"cookie": "c"}, timeouts={"total": 7},
        rewrite={"prefix": "/"}, headers=[{"name": "x-kind", "exact": "a"}],
    )  # fmt: skip
    found = inputs_of(route, policy("cors", cors={"origins": ["*"]}))
    made = routes_of(found, "a.example")
    clusters = [one.route.cluster for one in made]
    assert clusters[:6] == ["sticky/d2"] * 6 and set(clusters[6:]) == {"sticky/d1", ""}
    plain = made[6:9]
    for tester, name in ((made[:3], "x-beta"), (made[3:6], "cookie")):
        for one, as_before in zip(tester, plain, strict=True):
            assert [each.name for each in one.match.headers] == [*(e.name for e in as_before.match.headers), name]
            assert one.match.path_separated_prefix == "/shop" and one.name == as_before.name == "r"
            assert one.typed_per_filter_config == as_before.typed_per_filter_config
            aimed = type(one.route)()
            aimed.CopyFrom(as_before.route)
            aimed.cluster = "sticky/d2"
            assert one.route == aimed


def test_the_tester_of_a_route_does_not_take_requests_of_a_more_specific_one() -> None:
    more = rolled("more", path="/api")
    made = routes_of(inputs_of(rolled(rollout={"testers": [HEADER]}), more), "a.example")
    names = [one.name for one in made]
    assert names == sorted(names), "more before r"
    assert made[names.index("r")].route.cluster == "deployment/d2"


def test_copies_are_made_besides_the_route_s_own_and_not_of_testers_requests() -> None:
    rollout = {"testers": [HEADER], "mirrors": [{**backend("d2"), "percent": 2.5}]}
    made = routes_of(inputs_of(rolled(rollout=rollout, mirror={**backend("d3"), "percent": 50})), "a.example")
    copies = [[one.cluster for one in each.route.request_mirror_policies] for each in made]
    assert copies == [*[["deployment/d3"]] * 3, *[["deployment/d3", "deployment/d2"]] * 3, *[["deployment/d3"]] * 2]
    share = made[3].route.request_mirror_policies[1].runtime_fraction.default_value
    assert share.numerator == 25_000


def test_a_preview_host_leads_to_the_candidate_alone_under_the_same_path_and_policies_without_tls() -> None:
    tls = {"cert": TlsSecret(name="cert", certificate=b"c", key=b"k")}
    route = replace(rolled(rollout={"previews": [PREVIEW]}, path="/shop", tls={"secret": "cert"}), alias="shop")
    made = plan(inputs_of(route, policy("wall", firewall={"paths": ["/x"]}, routes=["shop"]), tls=tls))
    (one,), (other,) = made.hosts["next.example"], made.hosts["a.example"]
    assert one.spec.backends[0].deployment == "d2" and len(one.spec.backends) == 1
    assert (one.spec.path, one.spec.tls, one.policies) == ("/shop", None, other.policies)
    assert made.certificates == {"a.example": "cert"} and not made.faults


def test_two_routes_of_an_app_share_its_preview_host_without_a_fault() -> None:
    first, second = (rolled(name, host, rollout={"previews": [PREVIEW]}) for name, host in (("a", "a.x"), ("b", "b.x")))
    made = plan(inputs_of(first, second))
    assert [each.route.name for each in made.hosts["next.example"]] == ["a"] and not made.faults


def test_a_preview_never_takes_the_host_of_a_route_even_if_that_is_younger() -> None:
    old = rolled("old", created="2026-01-01T00:00:00Z", rollout={"previews": [PREVIEW]})
    theirs = replace(rolled("new", "next.example", created="2026-01-02T00:00:00Z"), environment="env_2")
    made = plan(inputs_of(old, theirs))
    assert [each.route.name for each in made.hosts["next.example"]] == ["new"]
    assert "another environment" in made.faults["route/old"] and "route/new" not in made.faults
    ours = plan(inputs_of(old, replace(theirs, environment="env_1")))
    assert [each.is_preview for each in ours.hosts["next.example"]] == [False] and "route/old" in ours.faults


def test_a_candidate_that_only_testers_reach_has_its_cluster_and_can_be_named() -> None:
    route = rolled(rollout={"testers": [HEADER]}, backends=[OLD])
    assert "deployment/d2" in translate(inputs_of(route))[CLUSTER]
    assert plan(inputs_of(route)).environments["env_1"] == ("d1", "d2")


@pytest.mark.parametrize(
    "bad",
    [
        {"target": backend("d2")},
        {**HEADER, **COOKIE},
        {"header": {"name": ":path", "value": "1"}, "target": backend("d2")},
        {"header": {"name": "x", "value": "a\nb"}, "target": backend("d2")},
        {"cookie": {"name": "a;b", "value": "1"}, "target": backend("d2")},
        {"cookie": {"name": "a", "value": "1; b"}, "target": backend("d2")},
        {"cookie": {"name": "a", "value": "x" * 300}, "target": backend("d2")},
    ],
)
def test_a_rule_that_cannot_be_applied_is_left_out_and_named_while_the_route_serves(bad: dict[str, Any]) -> None:
    found = inputs_of(rolled(rollout={"testers": [bad, HEADER]}))
    assert "tester" in plan(found).faults["route/r"]
    made = routes_of(found, "a.example")
    assert [one.route.cluster for one in made[:4]] == ["deployment/d2"] * 3 + ["deployment/d1"]


def test_a_rollout_of_a_later_version_is_left_out_and_named_while_the_route_serves() -> None:
    found = inputs_of(rolled(rollout={"testers": [HEADER], "moons": 2}))
    assert "moons" in plan(found).faults["route/r"]
    assert routes_of(found, "a.example")[0].route.cluster == "deployment/d1"


def test_rules_beyond_the_limit_are_left_out() -> None:
    many = [{**HEADER, "header": {"name": f"x-{at}", "value": "1"}} for at in range(MAX_TESTERS + 1)]
    made = plan(inputs_of(rolled(rollout={"testers": many})))
    assert len(made.hosts["a.example"][0].route.rollout.testers) == MAX_TESTERS and "at most" in made.faults["route/r"]


_names = st.text("ab.*+^|$_", min_size=1, max_size=4)
_values = st.text("ab.*+()[]?|{}=$^", max_size=4)
_others = st.lists(st.tuples(_names, _values), max_size=3)


@given(_others, st.tuples(_names, _values), _others, st.sampled_from(["; ", ";"]))
def test_a_cookie_matches_as_a_whole_wherever_it_is(
    before: list[tuple[str, str]], wanted: tuple[str, str], after: list[tuple[str, str]], gap: str
) -> None:
    rule = {"cookie": {"name": wanted[0], "value": wanted[1]}, "target": backend("d2")}
    matcher = matcher_of(read_rollout({"testers": [rule]}).testers[0])
    pattern = re.compile(matcher.string_match.safe_regex.regex)
    sent = [*before, wanted, *after]
    assert pattern.fullmatch(gap.join(f"{name}={value}" for name, value in sent))
    others = [pair for pair in (*before, *after) if pair != wanted]
    assert not pattern.fullmatch(gap.join(f"{name}={value}" for name, value in others))
