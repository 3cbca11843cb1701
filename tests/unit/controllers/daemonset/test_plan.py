"""One pod on each eligible node, none elsewhere; updates within their limits."""

from __future__ import annotations

from typing import Any

import pytest
from daemon_world import World, rolling
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.controllers.daemonset.rolling import limits_of
from shoal.testing.workloads import node

NO_SCHEDULE = [{"key": "k", "effect": "NoSchedule"}]
NO_EXECUTE = [{"key": "k", "effect": "NoExecute"}]


def test_each_node_that_fits_gets_one() -> None:
    world = World("a", "b", node("c", taints=NO_SCHEDULE))
    assert world.step().nodes == ("a", "b")
    assert world.step().nodes == ()
    world.complete()
    assert world.running() == {"a": ["app:1"], "b": ["app:1"]}
    assert world.owner["status"] == {
        "currentNumberScheduled": 2, "numberMisscheduled": 0, "desiredNumberScheduled": 2, "numberReady": 2,
        "observedGeneration": 1, "updatedNumberScheduled": 2, "numberAvailable": 2,
    }  # fmt: skip


def test_its_pods_are_pinned_and_marked() -> None:
    world = World("a")
    world.step()
    (made,) = world.pods.values()
    labels = made["metadata"]["labels"]
    assert labels == {"app": "web", "controller-revision-hash": world.mark}
    (term,) = made["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    assert term["matchFields"] == [{"key": "metadata.name", "operator": "In", "values": ["a"]}]
    assert {"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"} in made["spec"][
        "tolerations"
    ]
    assert "nodeName" not in made["spec"]


def test_a_node_that_stops_fitting_loses_its_pod_unless_it_may_stay() -> None:
    world = World("a", "b", "c")
    world.complete()
    world.nodes["a"] = node("a", taints=NO_EXECUTE)
    world.nodes["b"] = node("b", taints=NO_SCHEDULE)
    world.complete()
    assert sorted(world.running()) == ["b", "c"]
    status = world.owner["status"]
    assert (status["desiredNumberScheduled"], status["numberMisscheduled"]) == (1, 1)


def test_an_added_node_gets_a_pod_and_the_pod_of_a_deleted_node_is_removed() -> None:
    world = World("a")
    world.complete()
    world.nodes["b"] = node("b")
    world.step()
    del world.nodes["b"]  # before its pod was bound
    world.complete()
    assert world.running() == {"a": ["app:1"]}


def test_of_two_on_a_node_the_younger_goes() -> None:
    world = World("a")
    world.complete()
    (first,) = world.pods
    twin = {**world.pods[first], "metadata": {**world.pods[first]["metadata"], "name": "web-9999", "uid": "twin"}}
    world.pods["web-9999"] = twin
    assert [each["metadata"]["name"] for each in world.step().deleted] == ["web-9999"]


@pytest.mark.parametrize(("phase", "reason"), [("Failed", "FailedDaemonPod"), ("Succeeded", "SucceededDaemonPod")])
def test_a_pod_that_has_ended_is_replaced(phase: str, reason: str) -> None:
    world = World("a")
    world.complete()
    (name,) = world.pods
    world.report(name, phase=phase, ready=False)
    decided = world.step()
    assert [each["metadata"]["name"] for each in decided.deleted] == [name]
    (remark,) = decided.remarks
    assert remark.reason == reason
    assert f"default/{name} on node a, will try to" in remark.message
    assert decided.failed_on == (("a",) if phase == "Failed" else ())
    world.complete()
    assert world.running() == {"a": ["app:1"]}


def test_a_failed_pod_waits_for_its_backoff() -> None:
    world = World("a")
    world.complete()
    (name,) = world.pods
    world.report(name, phase="Failed", ready=False)
    world.waits["a"] = 7.0
    decided = world.step()
    assert (decided.deleted, decided.nodes, decided.recheck_s) == ((), (), 7.0)


def test_a_rolling_update_replaces_one_at_a_time() -> None:
    world = World("a", "b", "c")
    world.complete()
    world.roll("app:2")
    assert len(world.step().deleted) == 1
    assert not world.step().deleted
    world.settle()
    assert len(world.step().nodes) == 1
    assert not world.step().deleted
    world.complete()
    assert world.running() == {"a": ["app:2"], "b": ["app:2"], "c": ["app:2"]}


def test_old_pods_that_are_not_available_do_not_wait_for_their_turn() -> None:
    world = World("a", "b", "c", "d")
    world.complete()
    for name in list(world.pods)[:3]:
        world.report(name, ready=False)
    world.roll("app:2")
    assert len(world.step().deleted) == 3


def test_on_delete_waits_for_the_user() -> None:
    world = World("a", "b", updateStrategy={"type": "OnDelete"})
    world.complete()
    world.roll("app:2")
    world.complete()
    assert world.running() == {"a": ["app:1"], "b": ["app:1"]}
    assert world.owner["status"].get("updatedNumberScheduled", 0) == 0
    del world.pods[next(iter(world.pods))]
    world.complete()
    assert sorted(sum(world.running().values(), [])) == ["app:1", "app:2"]


def test_with_surge_the_new_one_comes_first() -> None:
    world = World("a", "b", updateStrategy=rolling(0, 1))
    world.complete()
    world.roll("app:2")
    decided = world.step()
    assert (len(decided.nodes), decided.deleted) == (1, ())
    (surged,) = decided.nodes
    assert sorted(world.running()[surged]) == ["app:1", "app:2"]
    assert not world.step().nodes
    world.settle()
    decided = world.step()
    assert [each["spec"]["containers"][0]["image"] for each in decided.deleted] == ["app:1"]
    world.complete()
    assert world.running() == {"a": ["app:2"], "b": ["app:2"]}


def test_with_surge_an_old_one_that_is_not_ready_goes_at_once() -> None:
    world = World("a", updateStrategy=rolling(0, 1))
    world.complete()
    (old,) = world.pods
    world.roll("app:2")
    world.step()
    world.report(old, ready=False)
    assert [each["metadata"]["name"] for each in world.step().deleted] == [old]


@pytest.mark.parametrize(
    ("unavailable", "surge", "desired", "expected"),
    [(1, 0, 10, (0, 1)), ("10%", 0, 15, (0, 2)), (0, "10%", 15, (2, 0)), (0, 0, 5, (0, 1)), (0, 0, 0, (0, 0))],
)
def test_percentages_are_rounded_up(unavailable: Any, surge: Any, desired: int, expected: tuple[int, int]) -> None:
    world = World(updateStrategy=rolling(unavailable, surge))
    assert limits_of(world.owner, desired) == expected


def test_minimum_ready_seconds_are_waited_for() -> None:
    world = World("a", "b", minReadySeconds=30)
    world.complete()
    assert world.owner["status"].get("numberAvailable", 0) == 0
    assert world.step().recheck_s == 30
    world.now += 30
    world.step()
    assert world.owner["status"]["numberAvailable"] == 2


@settings(max_examples=120)
@given(st.data())
def test_updates_stay_within_their_bounds_and_end(data: st.DataObject) -> None:
    names = [f"n{number}" for number in range(data.draw(st.integers(1, 6)))]
    surges = data.draw(st.booleans())
    amount = data.draw(st.integers(1, 3))
    world = World(*names, updateStrategy=rolling(0, amount) if surges else rolling(amount, 0))
    world.complete()
    for _ in range(data.draw(st.integers(1, 20))):
        if data.draw(st.integers(0, 4)) == 0:
            world.roll(f"app:{data.draw(st.integers(1, 3))}")
        world.step()
        missing = sum(not world.available_on(name) for name in names)
        assert missing <= (0 if surges else amount)
        crowded = sum(len(images) > 1 for images in world.running().values())
        assert crowded <= (amount if surges else 0)
        assert all(len(images) <= 2 for images in world.running().values())
        for name, each in list(world.pods.items()):
            if data.draw(st.booleans()):
                if each["metadata"].get("deletionTimestamp"):
                    del world.pods[name]
                elif each["status"]["phase"] == "Pending":
                    world.report(name)
    world.complete()
    image = world.owner["spec"]["template"]["spec"]["containers"][0]["image"]
    assert world.running() == {name: [image] for name in names}


@settings(max_examples=80)
@given(st.data())
def test_nodes_may_come_go_and_change_at_any_moment(data: st.DataObject) -> None:
    world = World("n0", updateStrategy=rolling(1, data.draw(st.integers(0, 1))))
    for _ in range(data.draw(st.integers(1, 20))):
        name = f"n{data.draw(st.integers(0, 4))}"
        match data.draw(st.integers(0, 4)):
            case 0:
                world.nodes[name] = node(name)
            case 1:
                world.nodes[name] = node(name, taints=data.draw(st.sampled_from([NO_SCHEDULE, NO_EXECUTE])))
            case 2:
                world.nodes.pop(name, None)
                for pod in [pod for pod, each in world.pods.items() if each["spec"].get("nodeName") == name]:
                    del world.pods[pod]  # as the garbage collection of pods would
            case 3:
                world.roll(f"app:{data.draw(st.integers(1, 3))}")
        world.step()
        if data.draw(st.booleans()):
            world.settle()
    for name in world.nodes:
        world.nodes[name] = node(name)
    world.complete()
    image = world.owner["spec"]["template"]["spec"]["containers"][0]["image"]
    assert world.running() == {name: [image] for name in world.nodes}
