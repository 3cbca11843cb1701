"""Heartbeats, taints, zones and the rate of evictions, without a cluster."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.controllers.nodelifecycle.config import NodeLifecycleConfig
from shoal.controllers.nodelifecycle.plan import (
    NO_EXECUTE,
    NO_SCHEDULE,
    NOT_READY,
    UNREACHABLE,
    UNSCHEDULABLE,
    ZoneState,
    condition_taints,
    eviction_taints,
    is_lost,
    lost_conditions,
    observe,
    rate,
    without_eviction_taints,
    zone_of,
    zone_state,
)
from shoal.controllers.nodelifecycle.zones import Zones

CONFIG = NodeLifecycleConfig()
CREATED_AT = 1704067200.0
OTHERS = {"key": "mine", "effect": NO_SCHEDULE}


def a_node(ready="True", *, heartbeat="h1", taints=(), unschedulable=False, **conditions):
    found = [{"type": "Ready", "status": ready, "lastHeartbeatTime": heartbeat}] if ready else []
    found += [{"type": kind, "status": status} for kind, status in conditions.items()]
    spec = {"taints": list(taints)} | ({"unschedulable": True} if unschedulable else {})
    about = {"name": "n", "uid": "u", "creationTimestamp": "2024-01-01T00:00:00Z"}
    return {"metadata": about, "spec": spec, "status": {"conditions": found}}


def keys(taints, effect):
    return {taint["key"] for taint in taints if taint["effect"] == effect}


def test_a_node_is_lost_fifty_seconds_after_its_last_sign_whichever_it_was():
    signs = observe(None, a_node(), "r1", 1000.0)
    assert not is_lost(signs, CONFIG, 1050.0)
    assert is_lost(signs, CONFIG, 1050.1)
    by_lease = observe(signs, a_node(), "r2", 1040.0)
    assert not is_lost(by_lease, CONFIG, 1090.0)
    by_status = observe(by_lease, a_node(heartbeat="h2"), "r2", 1085.0)
    assert by_status.seen_s == 1085.0
    assert observe(by_status, a_node(heartbeat="h2"), "r2", 1100.0) == by_status


def test_a_node_that_never_reported_has_a_minute_from_its_creation():
    signs = observe(None, a_node(ready=""), "", CREATED_AT + 10)
    assert not is_lost(signs, CONFIG, CREATED_AT + 60)
    assert is_lost(signs, CONFIG, CREATED_AT + 61)
    reasons = {each["reason"] for each in lost_conditions(a_node(ready=""), CREATED_AT + 61)}
    assert reasons == {"NodeStatusNeverUpdated"}


def test_a_node_of_the_same_name_begins_anew():
    old = observe(None, a_node(), "r1", 1000.0)
    new = a_node()
    new["metadata"]["uid"] = "another"
    assert observe(old, new, "r1", 2000.0).seen_s == 2000.0


def test_the_conditions_of_a_lost_node_are_unknown():
    found = {c["type"]: c for c in lost_conditions(a_node(MemoryPressure="False", Custom="True"), 5.0)}
    assert found["Ready"]["status"] == found["MemoryPressure"]["status"] == "Unknown"
    assert found["Ready"]["reason"] == "NodeStatusUnknown"
    assert found["Custom"]["status"] == "True"
    again = lost_conditions({**a_node(), "status": {"conditions": list(found.values())}}, 9.0)
    assert again == list(found.values())


def test_bad_conditions_keep_new_pods_away():
    node = a_node("False", MemoryPressure="True", DiskPressure="False", NetworkUnavailable="True", unschedulable=True)
    assert keys(condition_taints(node, 0.0), NO_SCHEDULE) == {
        NOT_READY, "node.kubernetes.io/memory-pressure", "node.kubernetes.io/network-unavailable", UNSCHEDULABLE,
    }  # fmt: skip
    assert keys(condition_taints(a_node("Unknown"), 0.0), NO_SCHEDULE) == {UNREACHABLE}


def test_a_node_that_is_well_again_has_only_the_taints_of_others():
    taints = [OTHERS, *condition_taints(a_node("Unknown"), 0.0), {"key": UNREACHABLE, "effect": NO_EXECUTE}]
    assert condition_taints(a_node("True", taints=taints), 0.0) == [OTHERS]
    assert keys(condition_taints(a_node("Unknown", taints=taints), 0.0), NO_EXECUTE) == {UNREACHABLE}


def test_the_eviction_taint_has_the_reason_and_replaces_the_other():
    unreachable = eviction_taints(a_node("Unknown", taints=[OTHERS]), 0.0)
    assert keys(unreachable, NO_EXECUTE) == {UNREACHABLE}
    not_ready = eviction_taints(a_node("False", taints=unreachable), 0.0)
    assert keys(not_ready, NO_EXECUTE) == {NOT_READY}
    assert eviction_taints(a_node("False", taints=not_ready), 9.0) == not_ready
    assert without_eviction_taints(a_node(taints=not_ready)) == [OTHERS]


TAINTS = st.builds(
    lambda key, effect: {"key": key, "effect": effect},
    st.sampled_from([NOT_READY, UNREACHABLE, UNSCHEDULABLE, "mine", "node.kubernetes.io/pid-pressure"]),
    st.sampled_from([NO_SCHEDULE, NO_EXECUTE, "PreferNoSchedule"]),
)


@settings(max_examples=200)
@given(
    st.sampled_from(["True", "False", "Unknown", ""]),
    st.lists(TAINTS, max_size=5, unique_by=lambda t: (t["key"], t["effect"])),
    st.booleans(),
)
def test_settling_taints_twice_changes_nothing_and_touches_no_other_taint(ready, taints, cordoned):
    settled = condition_taints(a_node(ready, taints=taints, unschedulable=cordoned), 0.0)
    assert condition_taints(a_node(ready, taints=settled, unschedulable=cordoned), 5.0) == settled
    mine = [taint for taint in taints if taint["key"] == "mine" or taint["effect"] == "PreferNoSchedule"]
    assert [taint for taint in settled if taint in mine] == mine


def test_zones_by_the_share_of_their_nodes_that_is_lost():
    def state(ready, lost):
        return zone_state([True] * ready + [False] * lost, CONFIG)

    assert state(0, 0) is state(5, 2) is state(1, 2) is state(9, 9) is ZoneState.NORMAL
    assert state(2, 3) is state(45, 55) is ZoneState.PARTIAL
    assert state(0, 1) is state(0, 9) is ZoneState.FULL
    assert [rate(s, size, CONFIG) for s, size in (
        (ZoneState.NORMAL, 9), (ZoneState.FULL, 9), (ZoneState.PARTIAL, 50), (ZoneState.PARTIAL, 51)
    )] == [0.1, 0.1, 0.0, 0.01]  # fmt: skip


def test_a_zone_is_region_and_zone():
    labels = {"topology.kubernetes.io/region": "r", "topology.kubernetes.io/zone": "z"}
    assert zone_of({"metadata": {"labels": labels}}) == "r:\0:z"
    assert zone_of({"metadata": {}}) == ""


def test_one_node_every_ten_seconds_and_none_while_all_are_lost():
    zones = Zones(CONFIG)
    ready = {"": {"a": True, **dict.fromkeys("bcde", True)}}
    ready[""] |= {"b": False, "c": False}
    assert not zones.update(ready, 0.0)
    for name in "bc":
        zones.wait("", name)
    assert list(zones.take(0.0)) == ["b"]
    assert zones.next_s(0.0) == 10.0
    assert list(zones.take(9.0)) == []
    zones.update({"": dict.fromkeys("abcde", False)}, 9.5)
    assert zones.all_lost
    assert list(zones.take(500.0)) == []
    assert zones.update(ready, 600.0)  # it has come back
    assert list(zones.take(620.0)) == ["c"]


def test_a_node_that_is_well_again_loses_its_place():
    zones = Zones(CONFIG)
    zones.update({"": {"a": True, "b": False}}, 0.0)
    zones.wait("", "b")
    zones.update({"": {"a": True, "b": True}}, 1.0)
    assert list(zones.take(100.0)) == []


@settings(max_examples=100)
@given(st.lists(st.tuples(st.floats(0.1, 30.0), st.integers(0, 4)), max_size=40))
def test_a_zone_never_drives_pods_away_faster_than_its_rate(steps):
    zones, now, taken, names = Zones(CONFIG), 0.0, 0, iter(range(1000))
    zones.update({"z": {"ok": True, "ok2": True, "ok3": True}}, now)
    for wait_s, arrivals in steps:
        now += wait_s
        for _ in range(arrivals):
            zones.wait("z", str(next(names)))
        taken += len(list(zones.take(now)))
        assert taken <= 1 + now * CONFIG.rate + 1e-6
