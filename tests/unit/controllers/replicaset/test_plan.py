"""The status of a ReplicaSet: counts, and why pods are missing."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.controllers.replicaset.plan import missing, plan_status
from shoal.testing.workloads import NOW, pod, replica_set, stored


def test_missing_is_the_difference() -> None:
    owner = stored(replica_set(replicas=3))
    assert [missing(owner, [pod()] * count) for count in (0, 3, 5)] == [3, 0, -2]
    assert missing({**owner, "spec": {}}, []) == 1


def test_counts() -> None:
    owner = stored(replica_set(replicas=5, minReadySeconds=10))
    pods = [
        pod(ready_at=NOW - 20), pod(ready_at=NOW - 5), pod(ready=False), pod(labels={"app": "web", "more": "x"}),
        pod(labels={"other": "x"}, ready=False),
    ]  # fmt: skip
    status = plan_status(owner, pods, NOW, terminating=2)
    assert status == {
        "replicas": 5, "fullyLabeledReplicas": 4, "readyReplicas": 3, "availableReplicas": 1,
        "terminatingReplicas": 2, "observedGeneration": 1,
    }  # fmt: skip


def test_the_status_without_pods_has_zero_replicas() -> None:
    assert plan_status(stored(replica_set()), [], NOW) == {"replicas": 0, "observedGeneration": 1}


@pytest.mark.parametrize(("lacked", "reason"), [(2, "FailedCreate"), (-2, "FailedDelete")])
def test_a_failure_is_reported_until_it_is_resolved(lacked: int, reason: str) -> None:
    owner = stored(replica_set(replicas=2))
    status = plan_status(owner, [], NOW, failure="exceeded quota", lacked=lacked)
    (condition,) = status["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == ("ReplicaFailure", "True", reason)
    assert condition["message"] == "exceeded quota"
    later: dict[str, Any] = {**owner, "status": status}
    assert plan_status(later, [], NOW + 60, failure="again", lacked=lacked)["conditions"] == [condition]
    assert "conditions" not in plan_status(later, [pod(), pod()], NOW + 60)
