"""Jobs to their end: how they complete, how they fail, and which of their pods count. What becomes of each pod is said
by annotations of the simulated nodes."""

from __future__ import annotations

from typing import Any

from conformance_api import Api, Resource, conformance
from conformance_live import (
    conditions,
    controller_of,
    is_ready,
    name_of,
    reason,
    settles,
    with_course,
)
from conformance_objects import job

from shoal.kube.objects import Obj

INDEX = "batch.kubernetes.io/job-completion-index"
TRACKED = "batch.kubernetes.io/job-tracking"
ODD_FAIL = {"run-seconds": 0, "index-1.exit-code": 1, "index-3.exit-code": 1}


def indexed(name: str, behaviour: dict[str, Any], **spec: Any) -> Obj:
    return with_course(job(name, completionMode="Indexed", **spec), **behaviour)


def ended(jobs: Resource, name: str, kind: str) -> Obj:
    """The Job once it has this condition, which is final."""

    def check() -> Obj | None:
        found = jobs.get(name)
        states = conditions(found)
        assert not ({"Complete", "Failed"} - {kind}) & states.keys(), found["status"]
        return found if states.get(kind) == "True" else None

    found: Obj = settles(check)
    return found


def running(pods: Resource, count: int) -> list[Obj]:
    def check() -> list[Obj] | None:
        found = [each for each in pods.items() if is_ready(each)]
        return found if len(found) == count else None

    found: list[Obj] = settles(check)
    return found


def exit_codes(action: str, *codes: int) -> Obj:
    return {"rules": [{"action": action, "onExitCodes": {"operator": "In", "values": list(codes)}}]}


@conformance(
    "[sig-apps] Job should run a job to completion when tasks sometimes fail and are locally restarted [Conformance]"
)
def test_tasks_are_restarted_where_they_are(live: Api, space: str) -> None:
    jobs, pods = live.of("batch/v1", "jobs", space), live.of("v1", "pods", space)
    made = with_course(job("work", parallelism=2, completions=4), run_seconds=0, exit_code="1,0")
    made["spec"]["template"]["spec"]["restartPolicy"] = "OnFailure"
    jobs.create(made)
    done = ended(jobs, "work", "Complete")
    assert done["status"]["succeeded"] == 4
    assert not done["status"].get("failed")
    assert reason(done, "Complete") == "CompletionsReached"
    assert [each["status"]["containerStatuses"][0]["restartCount"] for each in pods.items()] == [1] * 4


@conformance(
    "[sig-apps] Job should create pods for an Indexed job with completion indexes and specified hostname [Conformance]"
)
def test_pods_of_an_indexed_job(live: Api, space: str) -> None:
    jobs, pods = live.of("batch/v1", "jobs", space), live.of("v1", "pods", space)
    jobs.create(indexed("work", {"run-seconds": 0}, parallelism=2, completions=4))
    assert reason(ended(jobs, "work", "Complete"), "Complete") == "CompletionsReached"
    found = {int(each["metadata"]["annotations"][INDEX]): each for each in pods.items()}
    assert sorted(found) == [0, 1, 2, 3]
    for index, each in found.items():
        assert each["spec"]["hostname"] == f"work-{index}"
        assert each["metadata"]["labels"][INDEX] == str(index)
        assert each["status"]["phase"] == "Succeeded"


@conformance(
    "[sig-apps] Job should execute all indexes despite some failing when using backoffLimitPerIndex [Conformance]"
)
def test_every_index_has_failures_of_its_own(live: Api, space: str) -> None:
    jobs = live.of("batch/v1", "jobs", space)
    jobs.create(indexed("work", ODD_FAIL, parallelism=2, completions=4, backoffLimitPerIndex=1))
    done = ended(jobs, "work", "Failed")
    assert (done["status"]["failedIndexes"], done["status"]["completedIndexes"]) == ("1,3", "0,2")
    assert (done["status"]["failed"], done["status"]["succeeded"]) == (4, 2)
    assert reason(done, "Failed") == "FailedIndexes"


@conformance(
    "[sig-apps] Job should terminate job execution when the number of failed indexes exceeds maxFailedIndexes"
    " [Conformance]"
)
def test_too_many_failed_indexes_end_the_job(live: Api, space: str) -> None:
    jobs, pods = live.of("batch/v1", "jobs", space), live.of("v1", "pods", space)
    limits = {"backoffLimitPerIndex": 0, "maxFailedIndexes": 0}
    jobs.create(indexed("work", {"run-seconds": 0, "exit-code": 1}, parallelism=1, completions=4, **limits))
    done = ended(jobs, "work", "Failed")
    assert (done["status"]["failedIndexes"], done["status"]["failed"]) == ("0", 1)
    assert reason(done, "Failed") == "MaxFailedIndexesExceeded"
    assert len(pods.items()) == 1


@conformance(
    "[sig-apps] Job should mark indexes as failed when the FailIndex action is matched in podFailurePolicy [Conformance]"
)
def test_a_failure_policy_fails_an_index(live: Api, space: str) -> None:
    jobs = live.of("batch/v1", "jobs", space)
    policy = {"podFailurePolicy": exit_codes("FailIndex", 1)}
    jobs.create(indexed("work", ODD_FAIL, parallelism=2, completions=2, backoffLimitPerIndex=1, **policy))
    done = ended(jobs, "work", "Failed")
    assert (done["status"]["failedIndexes"], done["status"]["completedIndexes"]) == ("1", "0")
    assert (done["status"]["failed"], done["status"]["succeeded"]) == (1, 1)


@conformance(
    "[sig-apps] Job should allow to use the pod failure policy on exit code to fail the job early [Conformance]"
)
def test_a_failure_policy_fails_the_job(live: Api, space: str) -> None:
    jobs = live.of("batch/v1", "jobs", space)
    made = with_course(job("work", parallelism=2, completions=4), run_seconds=0, exit_code=1)
    jobs.create({**made, "spec": {**made["spec"], "podFailurePolicy": exit_codes("FailJob", 1)}})
    done = ended(jobs, "work", "Failed")
    assert reason(done, "Failed") == "PodFailurePolicy"
    assert done["status"]["failed"] <= 2, "the limit of failures ended it, not the policy"


@conformance(
    "[sig-apps] Job should allow to use a pod failure policy to ignore failure matching on DisruptionTarget condition"
    " [Conformance]"
)
def test_a_failure_policy_ignores_evictions(live: Api, space: str) -> None:
    jobs, pods = live.of("batch/v1", "jobs", space), live.of("v1", "pods", space)
    pattern = [{"type": "DisruptionTarget", "status": "True"}]
    rule = {"action": "Ignore", "onPodConditions": pattern}
    made = indexed("work", {"run-seconds": 3600}, completions=1, backoffLimit=0)
    jobs.create({**made, "spec": {**made["spec"], "podFailurePolicy": {"rules": [rule]}}})
    [evicted] = running(pods, 1)
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name_of(evicted)}}
    with pods.watch(after=pods.list()) as watch:
        live.create(f"{pods.path}/{name_of(evicted)}/eviction", eviction)
        failed = watch.until("MODIFIED", lambda obj: obj["status"]["phase"] == "Failed")
        assert conditions(failed)["DisruptionTarget"] == "True"
        watch.until("DELETED")
    [again] = running(pods, 1)
    assert again["metadata"]["annotations"][INDEX] == "0"
    assert conditions(jobs.get("work")) == {}
    assert not jobs.get("work")["status"].get("failed"), "an eviction was counted"


def succeeded(live: Api, space: str, rule: Obj, behaviour: dict[str, Any]) -> Obj:
    jobs = live.of("batch/v1", "jobs", space)
    policy = {"successPolicy": {"rules": [rule]}}
    jobs.create(indexed("work", behaviour, parallelism=2, completions=5, **policy))
    done = ended(jobs, "work", "Complete")
    assert reason(done, "SuccessCriteriaMet") == reason(done, "Complete") == "SuccessPolicy"
    return done


@conformance("[sig-apps] Job with successPolicy should succeeded when all indexes succeeded [Conformance]")
def test_success_of_all_indexes(live: Api, space: str) -> None:
    jobs = live.of("batch/v1", "jobs", space)
    policy = {"successPolicy": {"rules": [{"succeededIndexes": "0-1", "succeededCount": 2}]}}
    jobs.create(indexed("work", {"run-seconds": 0}, parallelism=2, completions=2, **policy))
    done = ended(jobs, "work", "Complete")
    assert done["status"]["completedIndexes"] == "0,1"
    assert conditions(done)["SuccessCriteriaMet"] == "True"


@conformance(
    "[sig-apps] Job with successPolicy succeededIndexes rule should succeeded even when some indexes remain pending"
    " [Conformance]"
)
def test_success_of_chosen_indexes(live: Api, space: str) -> None:
    behaviour = {"run-seconds": 3600, "index-0.run-seconds": 0}
    status = succeeded(live, space, {"succeededIndexes": "0"}, behaviour)["status"]
    assert status["completedIndexes"] == "0"
    assert (status.get("active", 0), status.get("ready", 0), status.get("terminating", 0)) == (0, 0, 0)


@conformance(
    "[sig-apps] Job with successPolicy succeededCount rule should succeeded even when some indexes remain pending"
    " [Conformance]"
)
def test_success_of_enough_indexes(live: Api, space: str) -> None:
    behaviour = {"run-seconds": 3600, "index-0.run-seconds": 0}
    status = succeeded(live, space, {"succeededIndexes": "0,2", "succeededCount": 1}, behaviour)["status"]
    assert status["completedIndexes"] == "0"
    assert (status.get("active", 0), status.get("terminating", 0)) == (0, 0)


@conformance("[sig-apps] Job should delete a job [Conformance]")
def test_the_pods_of_a_job_go_with_it(live: Api, space: str) -> None:
    jobs, pods = live.of("batch/v1", "jobs", space), live.of("v1", "pods", space)
    jobs.create(with_course(job("work", parallelism=2, completions=4), run_seconds=3600))
    running(pods, 2)
    jobs.delete("work", {"propagationPolicy": "Foreground"})
    settles(lambda: jobs.is_gone("work"))
    assert pods.items() == []


@conformance("[sig-apps] Job should adopt matching orphans and release non-matching pods [Conformance]")
def test_a_job_adopts_and_releases(live: Api, space: str) -> None:
    jobs, pods = live.of("batch/v1", "jobs", space), live.of("v1", "pods", space)
    uid = jobs.create(with_course(job("work", parallelism=2, completions=4), run_seconds=3600))["metadata"]["uid"]
    name = name_of(running(pods, 2)[0])
    pods.patch(name, {"metadata": {"ownerReferences": None}})
    adopted = settles(lambda: controller_of(pods.get(name)))
    assert adopted["uid"] == uid
    labels = pods.get(name)["metadata"]["labels"]
    pods.patch(name, {"metadata": {"labels": dict.fromkeys(labels)}})
    settles(lambda: controller_of(pods.get(name)) is None)
    settles(lambda: TRACKED not in pods.get(name)["metadata"].get("finalizers", ()))
    running(pods, 3)
