"""The status of a Deployment: counts, conditions, revisions; and its history."""

from __future__ import annotations

from typing import Any

import pytest
from deployment_world import World, image, make_deployment, make_set, rolling

from shoal.controllers.deployment.model import (
    DESIRED_REPLICAS,
    HASH_LABEL,
    MAX_REPLICAS,
    REVISION,
    REVISION_HISTORY,
    CreateReplicaSet,
)
from shoal.controllers.deployment.plan import is_desired, plan
from shoal.controllers.deployment.replicasets import annotations_of_new, family_of, new_replica_set
from shoal.controllers.deployment.status import creation_failed
from shoal.kube.objects import Obj
from shoal.testing.workloads import NOW, stored


def of(world: World, wanted: str) -> Obj:
    return next(each for each in world.sets.values() if image(each) == wanted)


def revisions(world: World) -> dict[str, str]:
    return {image(each): each["metadata"]["annotations"][REVISION] for each in world.sets.values()}


def test_the_first_step_creates_the_replica_set() -> None:
    owner = make_deployment(3, minReadySeconds=5)
    owner["metadata"]["annotations"] = {
        "note": "x", "kubectl.kubernetes.io/last-applied-configuration": "{}", REVISION: "7",
    }  # fmt: skip
    decided = plan(owner, [], old_pods_run=False, now=NOW)
    (action,) = decided.actions
    assert isinstance(action, CreateReplicaSet)
    about, spec = action.obj["metadata"], action.obj["spec"]
    mark = about["labels"][HASH_LABEL]
    assert about["name"] == f"web-{mark}"
    assert about["annotations"] == {"note": "x", REVISION: "1", DESIRED_REPLICAS: "3", MAX_REPLICAS: "4"}
    assert about["labels"] == {"app": "web", HASH_LABEL: mark} == spec["template"]["metadata"]["labels"]
    assert spec["selector"]["matchLabels"] == {"app": "web", HASH_LABEL: mark}
    assert (spec["replicas"], spec["minReadySeconds"]) == (3, 5)
    assert about["ownerReferences"][0]["uid"] == owner["metadata"]["uid"]
    assert decided.revision == "1"
    (condition,) = (each for each in decided.status["conditions"] if each["type"] == "Progressing")
    assert (condition["reason"], condition["message"]) == (
        "NewReplicaSetCreated", f'Created new replica set "{about["name"]}"',
    )  # fmt: skip


def test_a_rollout_is_reported_from_start_to_end() -> None:
    world = World(make_deployment(2))
    world.step()
    assert world.progress == ("True", "NewReplicaSetCreated")
    assert world.condition("Available")["reason"] == "MinimumReplicasUnavailable"  # type: ignore[index]
    (name,) = world.sets
    world.report(name, available=1)
    world.now += 10
    world.step()
    assert world.progress == ("True", "ReplicaSetUpdated")
    assert world.condition("Progressing")["message"] == f'ReplicaSet "{name}" is progressing.'  # type: ignore[index]
    world.settle()
    world.step()
    assert world.progress == ("True", "NewReplicaSetAvailable")
    assert world.condition("Available")["message"] == "Deployment has minimum availability."  # type: ignore[index]
    status = world.owner["status"]
    counts = {name: value for name, value in status.items() if name != "conditions"}
    assert counts == {
        "observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "readyReplicas": 2, "availableReplicas": 2,
        "terminatingReplicas": 0,
    }  # fmt: skip


def test_without_progress_the_deadline_passes() -> None:
    world = World(make_deployment(2, progressDeadlineSeconds=60))
    decided = world.step()
    assert decided.recheck_s == 61
    world.now += 60
    world.step()
    assert world.progress == ("True", "NewReplicaSetCreated")
    world.now += 1
    decided = world.step()
    assert world.progress == ("False", "ProgressDeadlineExceeded")
    (name,) = world.sets
    assert world.condition("Progressing")["message"] == f'ReplicaSet "{name}" has timed out progressing.'  # type: ignore[index]
    assert decided.recheck_s is None
    world.settle()
    world.step()
    assert world.progress == ("True", "NewReplicaSetAvailable")


def test_every_bit_of_progress_moves_the_deadline() -> None:
    world = World(make_deployment(3, progressDeadlineSeconds=60))
    world.step()
    (name,) = world.sets
    for available in (1, 2):
        world.now += 50
        world.report(name, available=available)
        world.step()
        assert world.progress == ("True", "ReplicaSetUpdated")
    world.now += 61
    world.step()
    assert world.progress == ("False", "ProgressDeadlineExceeded")


def test_without_a_deadline_progress_is_not_judged() -> None:
    for deadline in (None, 2**31 - 1):
        world = World(make_deployment(2, progressDeadlineSeconds=deadline))
        world.step()
        world.now += 10_000
        assert world.step().recheck_s is None
        assert world.condition("Progressing") is None


def test_a_finished_rollout_does_not_time_out_when_pods_break_later() -> None:
    world = World(make_deployment(2, progressDeadlineSeconds=60))
    world.complete()
    (name,) = world.sets
    world.now += 10_000
    world.report(name, available=0)
    world.step()
    assert world.progress == ("True", "NewReplicaSetAvailable")
    assert world.condition("Available")["status"] == "False"  # type: ignore[index]


def test_while_paused_nothing_rolls_but_sizes_change_and_the_deadline_stands_still() -> None:
    world = World(make_deployment(2, progressDeadlineSeconds=60))
    world.complete()
    world.roll("app:2")
    world.change(paused=True, replicas=5)
    world.step()
    assert world.sizes() == {"app:1": 5}
    assert world.progress == ("Unknown", "DeploymentPaused")
    world.now += 10_000
    world.step()
    assert world.progress == ("Unknown", "DeploymentPaused")
    world.change(paused=False)
    world.step()
    assert world.progress[1] in ("DeploymentResumed", "NewReplicaSetCreated")
    assert "app:2" in world.sizes()
    world.complete()
    assert world.sizes() == {"app:1": 0, "app:2": 5}


def test_resuming_amid_a_rollout_begins_the_deadline_anew() -> None:
    world = World(make_deployment(2, progressDeadlineSeconds=60))
    world.step()
    world.change(paused=True)
    world.step()
    world.now += 1000
    world.change(paused=False)
    world.step()
    assert world.progress == ("Unknown", "DeploymentResumed")
    world.now += 61
    world.step()
    assert world.progress == ("False", "ProgressDeadlineExceeded")


def test_revisions_rise_and_one_that_comes_back_remembers_its_own() -> None:
    world = World(make_deployment(2))
    for name in ("app:1", "app:2", "app:3", "app:1"):
        world.roll(name)
        world.complete()
    assert revisions(world) == {"app:2": "2", "app:3": "3", "app:1": "4"}
    assert of(world, "app:1")["metadata"]["annotations"][REVISION_HISTORY] == "1"
    assert world.owner["metadata"]["annotations"][REVISION] == "4"
    for name in ("app:2", "app:1"):
        world.roll(name)
        world.complete()
    assert of(world, "app:1")["metadata"]["annotations"][REVISION_HISTORY] == "1,4"


def test_the_history_of_revisions_does_not_grow_for_ever() -> None:
    owner = make_deployment(2)
    new = make_set(owner, "app:1", 2, revision=999)
    new["metadata"]["annotations"][REVISION_HISTORY] = ",".join(["1234"] * 400)
    found = annotations_of_new(owner, new, 1000)[REVISION_HISTORY]
    assert len(found) <= 2000 and found.endswith(",999")


def test_annotations_and_min_ready_seconds_follow_the_deployment() -> None:
    world = World(make_deployment(2))
    world.complete()
    world.owner["metadata"]["annotations"]["kubernetes.io/change-cause"] = "because"
    world.change(minReadySeconds=7)
    world.step()
    new = of(world, "app:1")
    assert new["metadata"]["annotations"]["kubernetes.io/change-cause"] == "because"
    assert new["spec"]["minReadySeconds"] == 7
    world.settle()
    assert not world.step().actions


@pytest.mark.parametrize("limit", [0, 2])
def test_only_so_many_old_ones_are_kept(limit: int) -> None:
    world = World(make_deployment(2, revisionHistoryLimit=limit))
    for number in range(1, 6):
        world.roll(f"app:{number}")
        world.complete()
    assert sorted(world.sizes()) == [f"app:{number}" for number in range(5 - limit, 6)]


def test_an_old_one_with_pods_is_kept_whatever_the_limit() -> None:
    owner = make_deployment(2, image="app:2", revisionHistoryLimit=0)
    world = World(owner, make_set(owner, "app:1", 0, actual=1), make_set(owner, "app:2", 2, revision=2))
    world.step()
    world.step()
    assert "app:1" in world.sizes()


def test_of_two_with_the_template_the_older_is_the_new_one() -> None:
    owner = make_deployment(2)
    older, younger = make_set(owner, "app:1", 1, revision=1), make_set(owner, "app:1", 1, revision=2)
    younger["metadata"]["name"] = "web-other"
    family = family_of(owner, [younger, older])
    assert family.new is older and family.old == (younger,)


def test_a_failure_of_a_replica_set_is_shown() -> None:
    world = World(make_deployment(2))
    world.complete()
    (name,) = world.sets
    failure = {
        "type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "exceeded quota",
        "lastTransitionTime": "2024-01-01T00:00:00Z",
    }  # fmt: skip
    world.sets[name]["status"]["conditions"] = [failure]
    world.step()
    assert world.condition("ReplicaFailure")["message"] == "exceeded quota"  # type: ignore[index]
    del world.sets[name]["status"]["conditions"]
    world.step()
    assert world.condition("ReplicaFailure") is None


def test_a_refused_replica_set_is_reported() -> None:
    status, message = creation_failed(make_deployment(2), "web-x", "forbidden", NOW)
    assert message == 'Failed to create new replica set "web-x": forbidden'
    (condition,) = status["conditions"]
    assert (condition["status"], condition["reason"]) == ("False", "ReplicaSetCreateError")


def test_a_name_that_another_template_has_is_a_collision() -> None:
    owner = make_deployment(2)
    mine = stored(new_replica_set(owner, 2, 1, bounds(owner)))
    assert is_desired(owner, mine)
    other = {**mine, "spec": make_set(owner, "app:2", 2)["spec"]}
    assert not is_desired(owner, other)
    foreign = {**mine, "metadata": {**mine["metadata"], "ownerReferences": []}}
    assert not is_desired(owner, foreign)
    again = new_replica_set({**owner, "status": {"collisionCount": 1}}, 2, 1, bounds(owner))
    assert again["metadata"]["name"] != mine["metadata"]["name"]


def bounds(owner: Obj) -> Any:
    from shoal.controllers.deployment.model import bounds_of

    return bounds_of(owner)


def test_one_that_is_being_deleted_only_counts() -> None:
    owner = make_deployment(2)
    owner["metadata"]["deletionTimestamp"] = "2024-01-01T00:00:00Z"
    decided = plan(owner, [make_set(owner, "app:0", 2)], old_pods_run=False, now=NOW)
    assert not decided.actions
    assert decided.status["replicas"] == 2


def test_a_step_that_changes_nothing_writes_nothing() -> None:
    world = World(make_deployment(4, strategy=rolling(1, 1)))
    world.complete()
    before = world.owner["status"]
    decided = world.step()
    assert (decided.actions, decided.revision, decided.status) == ((), "", before)
