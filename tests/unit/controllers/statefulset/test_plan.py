"""Pods of a StatefulSet are created in order, deleted in reverse order, and updated from the end."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stateful_world import CLAIM, World

from shoal.controllers.statefulset.model import POD_INDEX_LABEL, POD_NAME_LABEL, parent_and_ordinal

PARALLEL = {"podManagementPolicy": "Parallel"}


def rolling(**options: Any) -> dict[str, Any]:
    return {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0, **options}}}


def test_pods_come_one_after_the_other() -> None:
    world = World(3)
    world.step()
    assert world.done == ["create web-0"]
    world.step()
    assert world.done == []
    world.report("web-0", ready=False)
    world.step()
    assert world.done == []
    world.report("web-0")
    world.step()
    assert world.done == ["create web-1"]
    assert world.complete() == ["create web-2"]


def test_parallel_pods_come_at_once() -> None:
    world = World(3, **PARALLEL)
    world.step()
    assert world.done == ["create web-0", "create web-1", "create web-2"]


def test_they_go_from_the_last_one_by_one() -> None:
    world = World(4)
    world.complete()
    world.change(replicas=1)
    world.step()
    assert world.done == ["delete web-3"]
    world.step()
    assert world.done == []
    world.end("web-3")
    world.step()
    assert world.done == ["delete web-2"]


def test_parallel_ones_go_at_once() -> None:
    world = World(4, **PARALLEL)
    world.complete()
    world.change(replicas=1)
    world.step()
    assert world.done == ["delete web-3", "delete web-2", "delete web-1"]


def test_nothing_goes_while_a_lower_one_is_not_healthy() -> None:
    world = World(3)
    world.complete()
    world.report("web-0", ready=False)
    world.change(replicas=1)
    world.step()
    assert world.done == []
    world.report("web-0")
    world.step()
    assert world.done == ["delete web-2"]


def test_of_condemned_ones_the_first_unhealthy_may_go() -> None:
    world = World(3)
    world.complete()
    world.report("web-2", ready=False)
    world.change(replicas=1)
    world.step()
    assert world.done == ["delete web-2"]


def test_an_update_goes_from_the_last_to_the_first() -> None:
    world = World(3)
    world.complete()
    world.roll("app:2")
    assert world.complete() == [
        "delete web-2", "create web-2", "delete web-1", "create web-1", "delete web-0", "create web-0",
    ]  # fmt: skip
    status = world.owner["status"]
    assert status["currentRevision"] == status["updateRevision"] == world.revision("app:2")["metadata"]["name"]
    assert (status["currentReplicas"], status["updatedReplicas"]) == (3, 3)


def test_an_update_stops_at_the_partition() -> None:
    world = World(3, **rolling(partition=2))
    world.complete()
    world.roll("app:2")
    world.complete()
    assert world.images() == {"web-0": "app:1", "web-1": "app:1", "web-2": "app:2"}
    status = world.owner["status"]
    assert status["currentRevision"] != status["updateRevision"]
    assert (status["currentReplicas"], status["updatedReplicas"]) == (2, 1)


def test_below_the_partition_a_pod_comes_back_as_it_was() -> None:
    world = World(3, **rolling(partition=2))
    world.complete()
    world.roll("app:2")
    world.complete()
    for name in ("web-0", "web-2"):
        del world.pods[name]
    world.complete()
    assert world.images() == {"web-0": "app:1", "web-1": "app:1", "web-2": "app:2"}


def test_on_delete_waits_for_the_user() -> None:
    world = World(2, updateStrategy={"type": "OnDelete"})
    world.complete()
    world.roll("app:2")
    world.complete()
    assert set(world.images().values()) == {"app:1"}
    del world.pods["web-1"]
    world.complete()
    assert world.images() == {"web-0": "app:1", "web-1": "app:2"}


def test_several_may_be_unavailable_when_the_set_allows_it() -> None:
    world = World(5, **rolling(maxUnavailable="50%"))
    world.complete()
    world.roll("app:2")
    world.step()
    assert world.done == ["delete web-4", "delete web-3"]
    world = World(5, **rolling(maxUnavailable=2), **PARALLEL)
    world.complete()
    world.report("web-1", ready=False)
    world.roll("app:2")
    world.step()
    assert world.done == ["delete web-1", "delete web-4"]  # the one that is broken, and one more


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
@pytest.mark.parametrize("policy", [{}, PARALLEL])
def test_a_pod_that_has_ended_is_made_again(phase: str, policy: dict[str, Any]) -> None:
    world = World(2, **policy)
    world.complete()
    world.report("web-0", phase=phase, ready=False)
    world.step()
    assert world.done == ["delete web-0"]
    assert world.complete() == ["create web-0"]


def test_ordinals_may_start_anywhere() -> None:
    world = World(2, ordinals={"start": 5})
    assert world.complete() == ["create web-5", "create web-6"]
    world.change(ordinals={"start": 6})
    assert sorted(world.complete()) == ["create web-7", "delete web-5"]


def test_identity() -> None:
    world = World(1, volumeClaimTemplates=[CLAIM])
    world.step()
    pod = world.pods["web-0"]
    assert pod["spec"]["hostname"] == "web-0"
    assert pod["spec"]["subdomain"] == "web"
    assert pod["spec"]["volumes"] == [{"name": "data", "persistentVolumeClaim": {"claimName": "data-web-0"}}]
    labels = pod["metadata"]["labels"]
    assert (labels[POD_NAME_LABEL], labels[POD_INDEX_LABEL]) == ("web-0", "0")
    assert labels["controller-revision-hash"] == world.revision("app:1")["metadata"]["name"]
    assert "generateName" not in pod["metadata"]


def test_a_claims_volume_replaces_one_of_its_name() -> None:
    world = World(1, volumeClaimTemplates=[CLAIM])
    world.owner["spec"]["template"]["spec"]["volumes"] = [
        {"name": "data", "emptyDir": {}}, {"name": "other", "emptyDir": {}},
    ]  # fmt: skip
    world.revisions.clear()
    pod = _first_pod(world)
    assert [each["name"] for each in pod["spec"]["volumes"]] == ["data", "other"]
    assert "persistentVolumeClaim" in pod["spec"]["volumes"][0]


def _first_pod(world: World) -> Any:
    from shoal.controllers.statefulset.identity import new_pod

    return new_pod(world.owner, world.owner["spec"]["template"], "web-x", 0)


def test_a_pod_that_lost_its_label_gets_it_back() -> None:
    world = World(1)
    world.complete()
    del world.pods["web-0"]["metadata"]["labels"][POD_NAME_LABEL]
    world.step()
    assert world.done == ["update web-0"]


def test_minimum_ready_seconds_hold_the_next_one_up() -> None:
    world = World(2, minReadySeconds=30)
    world.step()
    world.report("web-0")
    decided = world.step()
    assert (world.done, decided.recheck_s) == ([], 30)
    world.now += 30
    world.step()
    assert world.done == ["create web-1"]


# claims


def test_claims_come_before_their_pod_and_stay_when_it_goes() -> None:
    world = World(2, volumeClaimTemplates=[CLAIM])
    assert world.complete() == ["create data-web-0", "create web-0", "create data-web-1", "create web-1"]
    claim = world.claims["data-web-0"]
    assert claim["metadata"]["labels"] == {"app": "web"}
    assert "ownerReferences" not in claim["metadata"]
    world.change(replicas=0)
    world.complete()
    assert sorted(world.claims) == ["data-web-0", "data-web-1"]
    world.change(replicas=1)
    assert world.complete() == ["create web-0"]


def test_a_pending_pod_gets_its_lost_claim_back() -> None:
    world = World(1, volumeClaimTemplates=[CLAIM])
    world.step()
    world.claims.clear()
    world.step()
    assert world.done == ["create data-web-0"]


def test_a_claim_that_is_being_deleted_is_not_used() -> None:
    world = World(1, volumeClaimTemplates=[CLAIM])
    world.complete()
    world.claims["data-web-0"]["metadata"]["deletionTimestamp"] = "2024-01-01T00:00:00Z"
    del world.pods["web-0"]
    world.step()
    assert world.done == ["refuse web-0: pvc data-web-0 is being deleted"]


def owners(world: World, name: str) -> list[str]:
    return [each["kind"] for each in world.claims[name]["metadata"].get("ownerReferences") or ()]


def retention(deleted: str, scaled: str) -> dict[str, Any]:
    return {"persistentVolumeClaimRetentionPolicy": {"whenDeleted": deleted, "whenScaled": scaled}}


@pytest.mark.parametrize(
    ("deleted", "scaled", "running", "condemned"),
    [
        ("Retain", "Retain", [], []),
        ("Delete", "Retain", ["StatefulSet"], ["StatefulSet"]),
        ("Retain", "Delete", [], ["Pod"]),
        ("Delete", "Delete", ["StatefulSet"], ["Pod"]),
    ],
)
def test_who_takes_a_claim_along(deleted: str, scaled: str, running: list[str], condemned: list[str]) -> None:
    world = World(2, volumeClaimTemplates=[CLAIM], **retention(deleted, scaled))
    world.complete()
    assert owners(world, "data-web-1") == running
    world.change(replicas=1)
    world.step()
    assert owners(world, "data-web-1") == condemned
    assert owners(world, "data-web-0") == running
    assert "delete web-1" in world.done


def test_a_change_of_the_policy_reaches_existing_claims() -> None:
    world = World(2, volumeClaimTemplates=[CLAIM])
    world.complete()
    world.change(**retention("Delete", "Retain"))
    world.complete()
    assert owners(world, "data-web-0") == owners(world, "data-web-1") == ["StatefulSet"]
    world.change(**retention("Retain", "Retain"))
    world.complete()
    assert owners(world, "data-web-0") == []


def test_a_claim_of_another_controller_is_left_alone() -> None:
    world = World(1, volumeClaimTemplates=[CLAIM], **retention("Delete", "Delete"))
    world.complete()
    other = {"apiVersion": "x/v1", "kind": "Backup", "name": "b", "uid": "u", "controller": True}
    world.claims["data-web-0"]["metadata"]["ownerReferences"] = [other]
    assert world.complete() == []


def test_a_new_pod_waits_for_the_end_of_a_claim_that_goes_with_the_old_one() -> None:
    world = World(1, volumeClaimTemplates=[CLAIM], **retention("Retain", "Delete"))
    world.complete()
    gone = {"apiVersion": "v1", "kind": "Pod", "name": "web-0", "uid": "gone", "controller": True}
    world.claims["data-web-0"]["metadata"]["ownerReferences"] = [gone]
    del world.pods["web-0"]
    decided = world.step()
    assert world.done == []
    assert decided.recheck_s is not None
    world.claims.clear()
    world.step()
    assert world.done == ["create data-web-0", "create web-0"]


# the rest


@pytest.mark.parametrize(
    ("name", "expected"),
    [("web-0", ("web", 0)), ("a-b-12", ("a-b", 12)), ("web", ("", -1)), ("web-", ("", -1)), ("web-x", ("", -1)),
     ("web-99999999999", ("", -1))],
)  # fmt: skip
def test_names_tell_the_number(name: str, expected: tuple[str, int]) -> None:
    assert parent_and_ordinal(name) == expected


@settings(max_examples=120)
@given(st.data())
def test_order_is_kept_through_anything_and_it_ends_as_wanted(data: st.DataObject) -> None:
    """Ordered pods: one is created only when all before it are available, one is deleted for an update or a scaling
    only when all others that stay are, one at a time."""
    world = World(data.draw(st.integers(0, 4)), **rolling(partition=data.draw(st.integers(0, 2))))
    for _ in range(data.draw(st.integers(1, 20))):
        match data.draw(st.integers(0, 5)):
            case 0:
                world.change(replicas=data.draw(st.integers(0, 5)))
            case 1:
                world.roll(f"app:{data.draw(st.integers(1, 3))}")
            case 2 if world.pods:
                name = data.draw(st.sampled_from(sorted(world.pods)))
                world.report(name, phase=data.draw(st.sampled_from(["Running", "Failed"])), ready=False)
        before = {name: world.available(name) for name in world.pods}
        world.step()
        assert len(world.done) <= 1
        for what in world.done:
            verb, name = what.split()
            ordinal = parent_and_ordinal(name)[1]
            if verb == "create":
                assert all(before.get(f"web-{number}") for number in range(ordinal))
            elif before[name]:
                wanted = [f"web-{number}" for number in range(world.owner["spec"]["replicas"])]
                assert all(before.get(other) for other in wanted if other != name)
        for name, pod in list(world.pods.items()):
            if data.draw(st.booleans()):
                if pod["metadata"].get("deletionTimestamp"):
                    world.end(name)
                elif pod["status"]["phase"] in ("Pending", "Running"):
                    world.report(name)
    for name, pod in world.pods.items():
        if pod["status"]["phase"] == "Running" and not pod["metadata"].get("deletionTimestamp"):
            world.report(name)
    world.complete()
    wanted = [f"web-{number}" for number in range(world.owner["spec"]["replicas"])]
    assert sorted(world.pods) == wanted
    partition = world.owner["spec"]["updateStrategy"]["rollingUpdate"]["partition"]
    images = world.images()
    assert all(images[name] == world.image for name in wanted[partition:])


@settings(max_examples=80)
@given(st.data())
def test_parallel_updates_never_take_more_than_allowed(data: st.DataObject) -> None:
    most = data.draw(st.integers(1, 3))
    world = World(data.draw(st.integers(1, 6)), **rolling(maxUnavailable=most), **PARALLEL)
    world.complete()
    for _ in range(data.draw(st.integers(1, 15))):
        if data.draw(st.integers(0, 4)) == 0:
            world.roll(f"app:{data.draw(st.integers(1, 3))}")
        world.step()
        unavailable = [
            number for number in range(world.owner["spec"]["replicas"]) if not world.available(f"web-{number}")
        ]
        assert len(unavailable) <= most
        for name, pod in list(world.pods.items()):
            if data.draw(st.booleans()):
                if pod["metadata"].get("deletionTimestamp"):
                    world.end(name)
                else:
                    world.report(name)
    world.complete()
    assert set(world.images().values()) == {world.image}
