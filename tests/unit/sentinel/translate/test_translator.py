from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from translate_objects import backend, inputs_of, policy, route
from translated_inputs import inputs

from shoal.sentinel.model import Inputs, InstanceEndpoint, PeerGateway, ServiceEndpoints, ServiceKey, TlsSecret
from shoal.sentinel.translate import envoy
from shoal.sentinel.translate.translator import Translator, translate
from shoal.sentinel.xds.model import CLUSTER, ENDPOINTS, LISTENER, ROUTES, SECRET


@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(st.lists(inputs, min_size=1, max_size=3))
def test_a_translation_in_steps_is_the_same_as_one_from_nothing(steps: list[Inputs]) -> None:
    translator = Translator()
    for step in steps:
        assert translator.resources(step) == translate(step)
        half = replace(step, routes=steps[0].routes, endpoints=steps[-1].endpoints)
        assert translator.resources(half) == translate(half)


@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@given(inputs)
def test_every_cluster_that_is_named_exists_and_has_its_endpoints(found: Inputs) -> None:
    made = translate(found)
    clusters = made[CLUSTER]
    services = {one.eds_cluster_config.service_name for one in clusters.values() if one.eds_cluster_config.service_name}
    assert services == set(made[ENDPOINTS])
    for host in made[ROUTES][envoy.ALL_ROUTES].virtual_hosts:
        for each in host.routes:
            named = {each.route.cluster, *(one.name for one in each.route.weighted_clusters.clusters)}
            named |= {one.cluster for one in each.route.request_mirror_policies}
            assert named - {""} <= set(clusters)


def _changed(before: dict[str, dict[str, Any]], after: dict[str, dict[str, Any]]) -> set[str]:
    return {
        name
        for kind in before
        for name in {*before[kind], *after[kind]}
        if before[kind].get(name) is not after[kind].get(name)
    }


def _running(count: int) -> ServiceEndpoints:
    return ServiceEndpoints(endpoints=tuple(InstanceEndpoint(address=f"10.0.0.{at}", port=1) for at in range(count)))


def _many() -> Inputs:
    routes = [route(f"r{at}", f"h{at}.example", backend(f"d{at}")) for at in range(20)]
    endpoints = {ServiceKey("apps", f"d{at}"): _running(3) for at in range(20)}
    return inputs_of(*routes, endpoints=endpoints)


def test_a_change_of_endpoints_makes_one_assignment_anew() -> None:
    translator, given_ = Translator(), _many()
    before = translator.resources(given_)
    endpoints = {**given_.endpoints, ServiceKey("apps", "d7"): _running(2)}
    after = translator.resources(replace(given_, endpoints=endpoints))
    assert _changed(before, after) == {"deployment/d7"}
    assert all(after[kind] is before[kind] for kind in before if kind != ENDPOINTS)


def test_a_change_of_weights_makes_only_the_routes_anew() -> None:
    translator, given_ = Translator(), _many()
    both = [backend("d1", weight=90), backend("d2", weight=10)]
    given_ = replace(given_, routes={**given_.routes, "r1": route("r1", "h1.example", *both)})
    before = translator.resources(given_)
    both = [backend("d1", weight=10), backend("d2", weight=90)]
    after = translator.resources(replace(given_, routes={**given_.routes, "r1": route("r1", "h1.example", *both)}))
    assert _changed(before, after) == {envoy.ALL_ROUTES}


def test_a_renewed_certificate_changes_its_secret_only() -> None:
    first = TlsSecret(name="a", certificate=b"1", key=b"1")
    given_ = inputs_of(route("r", "a.example", backend("d1"), tls={"secret": "a"}), tls={"a": first})
    translator = Translator()
    before = translator.resources(given_)
    after = translator.resources(replace(given_, tls={"a": replace(first, certificate=b"2")}))
    assert _changed(before, after) == {"certificate/a"}


def test_policies_and_limits_never_change_the_listener() -> None:
    translator = Translator()
    bare = inputs_of(route("r", "a.example", backend("d1")))
    before = translator.resources(bare)
    limit = policy("l", rateLimit={"limit": 5, "identifier": {"remoteIp": {}}})
    wall = policy("w", firewall={"paths": ["/x"]})
    after = translator.resources(replace(bare, policies={"l": limit, "w": wall}))
    assert _changed(before, after) == {envoy.ALL_ROUTES, "early"}


def test_peers_need_a_certificate_of_our_own() -> None:
    peer = PeerGateway(region="far", addresses=("10.9.0.1:8043",), distance=1)
    bare = inputs_of(route("r", "a.example", backend("d1")), peers=(peer,))
    given_ = replace(bare, settings=replace(bare.settings, entry_port=8043, entry_secret="gateways"))
    translator = Translator()
    made = translator.resources(given_)
    assert not made[ENDPOINTS]["deployment/d1"].endpoints
    assert envoy.ENTRY not in made[LISTENER]
    assert "peers" in translator.faults
    secret = TlsSecret(name="gateways", certificate=b"c", key=b"k", authority=b"a")
    made = translator.resources(replace(given_, tls={"gateways": secret}))
    assert [one.locality.region for one in made[ENDPOINTS]["deployment/d1"].endpoints] == ["far"]
    assert not made[ENDPOINTS]["local/d1"].endpoints  # requests of peers are not forwarded to peers
    assert set(made[SECRET]) == {"certificate/gateways", "authority/gateways"}
    assert "peers" not in translator.faults
