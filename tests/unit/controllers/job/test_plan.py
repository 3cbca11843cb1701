"""Single decisions about jobs, as tables."""

from __future__ import annotations

import pytest

from shoal.controllers.job.backoff import after_pods, finished_at, remaining_s
from shoal.controllers.job.indexes import Indexes
from shoal.controllers.job.model import COMPLETION_INDEX, FAILURE_COUNT, FINALIZER, IGNORED_COUNT, JobBackoff
from shoal.controllers.job.plan import observe, plan_pods
from shoal.controllers.job.policy import met_success, pod_failure_action
from shoal.controllers.job.template import indexed_pods
from shoal.kube.times import format_time, parse_epoch

NOW = parse_epoch("2026-01-01T12:00:00Z")


def a_job(**spec):
    template = {
        "metadata": {"labels": {"x": "y"}},
        "spec": {"restartPolicy": spec.pop("restart", "Never"), "containers": [{"name": "c"}]},
    }
    spec = {"parallelism": 2, "completions": 4, "backoffLimit": 6, "template": template, **spec}
    return {"metadata": {"name": "j", "namespace": "d", "uid": "u"}, "spec": spec, "status": {}}


def a_pod(name, phase="Running", index=None, deleted=False, held=True, status=None, **annotations):
    marks = {COMPLETION_INDEX: str(index)} if index is not None else {}
    about = {"name": name, "namespace": "d", "uid": name, "annotations": {**marks, **annotations}}
    about |= {"creationTimestamp": format_time(NOW - 100)} | ({"finalizers": [FINALIZER]} if held else {})
    about |= {"deletionTimestamp": format_time(NOW)} if deleted else {}
    return {"metadata": about, "spec": {"containers": [{"name": "c"}]}, "status": {"phase": phase, **(status or {})}}


def exited(code, name="c"):
    return {
        "containerStatuses": [
            {"name": name, "state": {"terminated": {"exitCode": code, "finishedAt": format_time(NOW - 5)}}}
        ]
    }


def look(job, *pods, backoff=JobBackoff()):  # noqa: B008
    return observe(job, pods, frozenset(), backoff, NOW)


@pytest.mark.parametrize(
    ("spec", "pods", "created", "deleted"),
    [
        ({}, [], 2, 0),
        ({}, ["Running"], 1, 0),
        ({}, ["Running"] * 3, 0, 1),
        ({"parallelism": 9}, [], 4, 0),
        ({"parallelism": 9}, ["Succeeded", "Running"], 2, 0),
        ({"completions": None, "parallelism": 3}, ["Running"], 2, 0),
        ({"completions": None, "parallelism": 3}, ["Succeeded", "Running"], 0, 0),
        ({"suspend": True}, ["Running", "Running"], 0, 2),
        ({"parallelism": 0}, ["Running"], 0, 1),
        ({"parallelism": 2000, "completions": 2000}, [], 500, 0),
    ],
)
def test_how_many_pods_a_job_needs(spec, pods, created, deleted):
    view = look(a_job(**spec), *(a_pod(f"p{n}", phase) for n, phase in enumerate(pods)))
    plan = plan_pods(view, NOW)
    assert (len(plan.creates), len(plan.deletes)) == (created, deleted)


def test_pods_that_are_going_are_replaced_at_once_or_when_they_have_ended():
    going = a_pod("a", deleted=True)
    assert len(plan_pods(look(a_job(completions=1), going, backoff=JobBackoff()), NOW + 60).creates) == 1
    waiting = look(a_job(completions=1, podReplacementPolicy="Failed"), going)
    assert waiting.failed == 0 and not plan_pods(waiting, NOW + 60).creates


def test_second_pods_of_an_index_and_indexes_that_are_none_go():
    job = a_job(completionMode="Indexed", completions=3, parallelism=3)
    pods = [a_pod("a", index=0), a_pod("b", index=0), a_pod("c", index=7), a_pod("d"), a_pod("e", index=1)]
    gone = {pod["metadata"]["name"] for pod in plan_pods(look(job, *pods), NOW).deletes}
    assert {"c", "d"} <= gone and len(gone & {"a", "b"}) == 1 and "e" not in gone


@pytest.mark.parametrize(("failures", "delay"), [(0, 0), (1, 10), (2, 20), (3, 40), (6, 320), (7, 600), (100, 600)])
def test_the_pause_after_failures(failures, delay):
    assert remaining_s(JobBackoff(failures, NOW), NOW) == delay


def test_a_success_makes_failures_before_it_forgotten():
    def ended(name, at):
        state = {"terminated": {"exitCode": 1, "finishedAt": format_time(at)}}
        return a_pod(name, "Failed", status={"containerStatuses": [{"name": "c", "state": state}]})

    before = JobBackoff(3, NOW - 100)
    assert after_pods(before, [], [ended("a", NOW)]) == JobBackoff(4, NOW)
    assert after_pods(before, [ended("s", NOW - 10)], [ended("a", NOW - 20), ended("b", NOW)]) == JobBackoff(1, NOW)
    assert after_pods(before, [ended("s", NOW)], []) == JobBackoff()


def test_when_a_pod_ended():
    assert finished_at(a_pod("a", "Failed", status=exited(1))) == NOW - 5
    ready = {"conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": format_time(NOW - 7)}]}
    assert finished_at(a_pod("a", "Failed", status=ready)) == NOW - 7
    assert finished_at(a_pod("a", deleted=True)) == NOW
    assert finished_at(a_pod("a")) == NOW - 100


IGNORE = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
FAIL = {"action": "FailJob", "onExitCodes": {"containerName": "c", "operator": "In", "values": [42]}}
COUNT = {"action": "Count", "onExitCodes": {"operator": "NotIn", "values": [42]}}


@pytest.mark.parametrize(
    ("pod", "counts", "action", "message"),
    [
        (a_pod("p", "Failed", status=exited(42)), True, "FailJob", "Container c for pod d/p failed with exit code 42 matching FailJob rule at index 1"),
        (a_pod("p", "Failed", status=exited(42, "side")), True, "", ""),
        (a_pod("p", "Failed", status=exited(7)), True, "Count", ""),
        (a_pod("p", "Failed", status=exited(0)), True, "", ""),
        (a_pod("p", "Failed", status={"conditions": [{"type": "DisruptionTarget", "status": "True"}]}), False, "Ignore", ""),
    ],
)  # fmt: skip
def test_the_first_rule_that_matches_decides(pod, counts, action, message):
    verdict = pod_failure_action({"rules": [IGNORE, FAIL, COUNT]}, pod)
    assert (verdict.counts, verdict.action, verdict.message) == (counts, action, message)


@pytest.mark.parametrize(
    ("rule", "done", "met"),
    [
        ({"succeededIndexes": "0-2"}, [0, 1, 2], True),
        ({"succeededIndexes": "0-2"}, [0, 1], False),
        ({"succeededIndexes": "0-2", "succeededCount": 2}, [0, 2], True),
        ({"succeededIndexes": "0-2", "succeededCount": 2}, [0, 3, 4], False),
        ({"succeededCount": 2}, [3, 4], True),
        ({"succeededCount": 2}, [3], False),
    ],
)
def test_the_success_policy(rule, done, met):
    assert bool(met_success({"rules": [rule]}, Indexes().with_indexes(done), 5)) == met


@pytest.mark.parametrize(
    ("spec", "pods", "reason"),
    [
        ({"backoffLimit": 1}, [a_pod("a", "Failed"), a_pod("b", "Failed")], "BackoffLimitExceeded"),
        ({"backoffLimit": 2}, [a_pod("a", "Failed"), a_pod("b", "Failed")], ""),
        ({"backoffLimit": 0, "podFailurePolicy": {"rules": [FAIL]}}, [a_pod("a", "Failed", status=exited(42))], "PodFailurePolicy"),
        ({"restart": "OnFailure", "backoffLimit": 3}, [a_pod("a", status={"containerStatuses": [{"name": "c", "restartCount": 3}]})], "BackoffLimitExceeded"),
        ({"restart": "OnFailure", "backoffLimit": 4}, [a_pod("a", status={"containerStatuses": [{"name": "c", "restartCount": 3}]})], ""),
        ({"completionMode": "Indexed", "backoffLimitPerIndex": 0, "maxFailedIndexes": 0}, [a_pod("a", "Failed", index=1)], "MaxFailedIndexesExceeded"),
        ({"completionMode": "Indexed", "backoffLimitPerIndex": 0, "completions": 1}, [a_pod("a", "Failed", index=0)], "FailedIndexes"),
        ({"completionMode": "Indexed", "backoffLimitPerIndex": 1, "completions": 1}, [a_pod("a", "Failed", index=0)], ""),
        ({"completionMode": "Indexed", "backoffLimitPerIndex": 1, "completions": 1}, [a_pod("a", "Failed", index=0, **{FAILURE_COUNT: "1"})], "FailedIndexes"),
    ],
)  # fmt: skip
def test_why_a_job_fails(spec, pods, reason):
    ending = look(a_job(**spec), *pods).ending
    assert (ending.reason if ending else "") == reason


def test_no_index_is_both_completed_and_failed():
    job = a_job(completionMode="Indexed", backoffLimitPerIndex=0) | {"status": {"failedIndexes": "1"}}
    view = look(job, a_pod("a", "Succeeded", index=1), a_pod("b", "Succeeded", index=2), a_pod("c", "Failed", index=2))
    assert (str(view.completed), str(view.failed_indexes)) == ("2", "1")


def test_the_deadline_counts_from_the_start_and_not_while_suspended():
    job = a_job(activeDeadlineSeconds=60) | {"status": {"startTime": format_time(NOW - 50)}}
    assert look(job).deadline_s == 10 and look(job).ending is None
    late = a_job(activeDeadlineSeconds=60) | {"status": {"startTime": format_time(NOW - 60)}}
    assert look(late).ending.reason == "DeadlineExceeded"
    late["spec"]["suspend"] = True
    assert look(late).ending is None


def test_a_failed_index_waits_alone_and_its_next_pod_records_the_failure():
    job = a_job(completionMode="Indexed", backoffLimitPerIndex=3, parallelism=4)
    failed = a_pod("a", "Failed", index=1, status=exited(1), **{FAILURE_COUNT: "1", IGNORED_COUNT: "1"})
    view = look(job, failed)
    plan = plan_pods(view, NOW)
    assert [pod["metadata"]["annotations"][COMPLETION_INDEX] for pod in plan.creates] == ["0", "2", "3"]
    assert plan.wait_s == 35, "40 s after three failures, of which five are over"
    made = indexed_pods(job, [1], view.delayed)[0]["metadata"]["annotations"]
    assert (made[FAILURE_COUNT], made[IGNORED_COUNT]) == ("2", "1")


def test_a_long_name_leaves_room_for_the_index():
    job = a_job(completionMode="Indexed")
    job["metadata"]["name"] = "n" * 63
    assert indexed_pods(job, [1234], {})[0]["metadata"]["generateName"] == "n" * 52 + "-1234-"
