"""Why a Deployment has fewer pods than it should."""

from __future__ import annotations

from shoal.krane.objects.conditions import overdue, replica_failure

REFUSED = 'pods "web-1" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true'


def deployment(*conditions):
    return {"metadata": {"name": "web"}, "status": {"conditions": list(conditions)}}


def condition(kind, status, reason, message):
    return {"type": kind, "status": status, "reason": reason, "message": message}


def test_pods_that_cannot_be_created_give_the_reason_and_the_whole_message():
    found = deployment(
        condition("Available", "False", "MinimumReplicasUnavailable", "no"),
        condition("ReplicaFailure", "True", "FailedCreate", REFUSED),
    )
    assert replica_failure(found) == ("FailedCreate", REFUSED)
    assert overdue(found) == ("", "")


def test_pods_that_are_late_are_told_by_their_deadline():
    late = deployment(condition("Progressing", "False", "ProgressDeadlineExceeded", "timed out"))
    assert overdue(late) == ("ProgressDeadlineExceeded", "timed out")
    assert replica_failure(late) == ("", "")


def test_a_deployment_that_is_well_or_new_has_no_reason():
    for well in ({"metadata": {"name": "web"}}, deployment(condition("Progressing", "True", "NewReplicaSet", "yes"))):
        assert replica_failure(well) == overdue(well) == ("", "")


def test_a_message_without_end_is_cut():
    _, message = replica_failure(deployment(condition("ReplicaFailure", "True", "FailedCreate", "x" * 10_000)))
    assert len(message) == 1000
