"""The rules of the conversation with Envoy, one by one."""

from __future__ import annotations

from envoy_model import BAD, EnvoyModel, a_cluster, a_listener, endpoints, routes_to, snapshot_of

from shoal.sentinel.xds.model import CLUSTER, ENDPOINTS, LISTENER, ROUTES, DiscoveryRequest, ResourceRef, XdsResource
from shoal.sentinel.xds.protocol import XdsLimits, XdsMachine


def world(*clusters: str, version: str = "1", routes: str = "1") -> dict[str, dict[str, XdsResource]]:
    """A listener whose routes lead to these clusters."""
    made = [one for name in clusters for one in (a_cluster(name, version), endpoints(name))]
    return snapshot_of(*made, a_listener("l", "r"), routes_to("r", *clusters, version=routes))


def said(envoy: EnvoyModel, since: int = 0) -> list[tuple[str, tuple[str, ...]]]:
    return [(one.type, tuple(each.ref.name for each in one.resources)) for one in envoy.said[since:]]


def test_nothing_is_said_before_the_first_snapshot() -> None:
    envoy = EnvoyModel()
    while envoy.speak():
        pass
    assert envoy.said == []
    assert not envoy.machine.complete


def test_an_empty_snapshot_is_still_an_answer() -> None:
    envoy = EnvoyModel()
    envoy.publish({})
    envoy.settle()
    assert {one.type for one in envoy.said} == {CLUSTER, LISTENER}
    assert envoy.machine.complete


def test_a_route_waits_until_its_clusters_have_endpoints() -> None:
    envoy = EnvoyModel()
    envoy.publish(world("a"))
    envoy.settle()
    start = len(envoy.said)
    envoy.publish(world("a", "b", routes="2"))
    assert said(envoy, start) == [(CLUSTER, ("b",))]
    envoy.listen()
    envoy.speak()  # acknowledged, but Envoy has no endpoints yet
    assert said(envoy, start) == [(CLUSTER, ("b",))]
    envoy.speak()
    assert said(envoy, start)[1:] == [(ENDPOINTS, ("b",))]
    envoy.listen()
    assert not any(kind == ROUTES for kind, _ in said(envoy, start))
    envoy.speak()
    assert said(envoy, start)[2:] == [(ROUTES, ("r",))]


def test_a_cluster_goes_only_after_its_route_and_a_pause() -> None:
    envoy = EnvoyModel(XdsMachine(XdsLimits(drain_s=5.0)))
    envoy.publish(world("a", "b"))
    envoy.settle()
    envoy.publish(world("a", routes="2"))
    while envoy.listen() or envoy.speak():
        pass
    assert set(envoy.have[CLUSTER]) == {"a", "b"}
    envoy.pass_time(4.9)
    assert not envoy.listen()
    envoy.pass_time(0.2)
    envoy.settle()
    assert set(envoy.have[CLUSTER]) == {"a"}


def test_a_cluster_stays_while_a_route_that_envoy_may_have_names_it() -> None:
    envoy = EnvoyModel(XdsMachine(XdsLimits(drain_s=5.0)))
    envoy.publish(world("a", "b"))
    envoy.settle()
    envoy.publish(world("a", routes="2"))  # Envoy is slow: the new routes are under way
    envoy.pass_time(100.0)
    assert not any(one.removed for one in envoy.said)
    envoy.settle()
    assert set(envoy.have[CLUSTER]) == {"a"}


def test_a_cluster_that_changed_is_given_its_endpoints_again() -> None:
    envoy = EnvoyModel()
    envoy.publish(world("a", "b"))
    envoy.settle()
    start = len(envoy.said)
    changed = world("a", "b")
    changed[CLUSTER]["a"] = a_cluster("a", "2")
    envoy.publish(changed)
    envoy.settle()
    assert said(envoy, start) == [(CLUSTER, ("a",)), (ENDPOINTS, ("a",))]
    assert not envoy.cold


def test_a_cluster_that_is_wanted_again_in_time_never_goes() -> None:
    envoy = EnvoyModel()
    envoy.publish(world("a", "b"))
    envoy.settle()
    envoy.publish(world("a", routes="2"))
    while envoy.listen() or envoy.speak():
        pass
    envoy.publish(world("a", "b", routes="3"))
    envoy.settle()
    assert not any(one.removed for one in envoy.said)
    assert envoy.machine.due_s(envoy.now) is None


def test_a_weight_or_an_endpoint_touches_nothing_else() -> None:
    envoy = EnvoyModel()
    envoy.publish(world("a", "b"))
    envoy.settle()
    start = len(envoy.said)
    changed = world("a", "b")
    changed[ENDPOINTS]["a"] = endpoints("a", "2")
    envoy.publish(changed)
    envoy.settle()
    assert said(envoy, start) == [(ENDPOINTS, ("a",))]


def test_what_comes_while_a_response_is_under_way_goes_together_after_it() -> None:
    envoy = EnvoyModel()
    envoy.publish(world("a"))
    envoy.settle()
    start = len(envoy.said)
    for version in ("2", "3", "4"):
        changed = world("a")
        changed[ENDPOINTS]["a"] = endpoints("a", version)
        envoy.publish(changed)
    envoy.settle()
    assert said(envoy, start) == [(ENDPOINTS, ("a",))] * 2
    assert envoy.have[ENDPOINTS]["a"].version == "4"


def test_one_bad_cluster_among_many_is_found_and_shown_with_the_reason() -> None:
    envoy = EnvoyModel()
    names = [f"c{number}" for number in range(16)]
    snapshot = world(*names)
    snapshot[CLUSTER]["c7"] = a_cluster("c7", BAD)
    envoy.publish(snapshot)
    envoy.settle()
    assert set(envoy.have[CLUSTER]) == set(names) - {"c7"}
    assert "r" in envoy.have[ROUTES]
    (refusal,) = envoy.machine.refusals
    assert refusal.ref == ResourceRef(CLUSTER, "c7")
    assert refusal.reason == "1 are bad"


def test_the_last_good_version_stays_also_for_a_new_envoy() -> None:
    envoy = EnvoyModel()
    envoy.publish(world("a", "b"))
    envoy.settle()
    envoy.publish(snapshot_of(a_cluster("a"), endpoints("a"), a_listener("l", "r"), routes_to("r", "a", version=BAD)))
    envoy.settle()
    envoy.crash()
    envoy.settle()
    assert envoy.have[ROUTES]["r"].version == "1:a,b"
    assert set(envoy.have[CLUSTER]) == {"a", "b"}  # the snapshot has no b any more, but the routes that count need it
    assert not envoy.cold


def test_what_was_refused_is_tried_again_after_a_while() -> None:
    machine = XdsMachine(XdsLimits(retry_s=30.0))
    machine.connect()
    machine.publish(snapshot_of(a_cluster("a")), 0.0)
    (response,) = machine.receive(DiscoveryRequest(type=CLUSTER), 0.0)
    assert machine.receive(DiscoveryRequest(type=CLUSTER, nonce=response.nonce, error="no"), 0.0) == []
    assert machine.due_s(0.0) == 30.0
    (again,) = machine.tick(30.0)
    assert [one.ref.name for one in again.resources] == ["a"]
    machine.receive(DiscoveryRequest(type=CLUSTER, nonce=again.nonce), 30.0)
    assert machine.refusals == ()


def test_an_answer_to_an_older_response_changes_nothing() -> None:
    machine = XdsMachine()
    machine.connect()
    machine.publish(snapshot_of(a_cluster("a")), 0.0)
    (response,) = machine.receive(DiscoveryRequest(type=CLUSTER), 0.0)
    machine.receive(DiscoveryRequest(type=CLUSTER, nonce="of-another-stream", error="no"), 0.0)
    assert machine.refusals == ()
    machine.receive(DiscoveryRequest(type=CLUSTER, nonce=response.nonce), 0.0)
    assert machine.publish(snapshot_of(a_cluster("a")), 0.0) == []


def test_what_does_not_exist_is_answered_so() -> None:
    machine = XdsMachine()
    machine.connect()
    machine.publish({}, 0.0)
    (response,) = machine.receive(DiscoveryRequest(type=ENDPOINTS, subscribe=("ghost",)), 0.0)
    assert response.removed == ("ghost",)
