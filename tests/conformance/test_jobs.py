"""Jobs, CronJobs and disruption budgets as stored objects."""

from __future__ import annotations

from conformance_api import Api, conformance, labelled, refused, unique
from conformance_objects import LATER, WHEN, condition, job, pod, pod_spec
from conformance_steps import check_discovery, check_operations, check_status

from shoal.kube.objects import Obj


@conformance("[sig-apps] Job should apply changes to a job status [Conformance]")
def test_job_status(api: Api, namespace: str) -> None:
    jobs = api.of("batch/v1", "jobs", namespace)
    created = jobs.create(job("work", parallelism=2, completions=4))
    first = [condition("CustomConditionType", lastTransitionTime=WHEN)]
    second = [condition("CustomConditionType", lastTransitionTime=LATER)]
    check_status(jobs, "work", {"conditions": first}, "conditions", second)
    assert jobs.get("work", "status")["metadata"]["uid"] == created["metadata"]["uid"]


@conformance("[sig-apps] Job should manage the lifecycle of a job [Conformance]")
def test_job_lifecycle(api: Api, namespace: str) -> None:
    jobs, name = api.of("batch/v1", "jobs", namespace), unique("job")
    with jobs.watch(fields=f"metadata.name={name}", after=jobs.list()) as watch:
        created = jobs.create(labelled(job(name, suspend=True, parallelism=2, completions=4), mine="yes"))
        patched = jobs.patch(name, {"metadata": {"labels": {name: "patched"}}}, "strategic")
        assert int(patched["metadata"]["resourceVersion"]) > int(created["metadata"]["resourceVersion"])
        watch.until("MODIFIED", lambda obj: obj["metadata"]["labels"].get(name) == "patched")

        def resume(obj: Obj) -> None:
            obj["spec"]["suspend"] = False
            obj["metadata"].setdefault("annotations", {})["updated"] = "true"

        jobs.update(name, resume)
        seen = watch.until("MODIFIED", lambda obj: obj["metadata"].get("annotations", {}).get("updated") == "true")
        assert seen["spec"]["suspend"] is False
        assert api.of("batch/v1", "jobs").names(f"{name}=patched") == [name]
        jobs.delete_collection(f"{name}=patched", options={"propagationPolicy": "Background"})
        watch.until("DELETED")
    assert jobs.items(f"{name}=patched") == []


@conformance("[sig-apps] CronJob should support CronJob API operations [Conformance]")
def test_cronjob_operations(api: Api, namespace: str) -> None:
    def cronjob(name: str) -> Obj:
        pods = {"spec": pod_spec(restartPolicy="OnFailure")}
        spec = {"schedule": "*/1 * * * ?", "concurrencyPolicy": "Allow", "jobTemplate": {"spec": {"template": pods}}}
        return {"metadata": {"name": name}, "spec": spec}

    check_discovery(api, "batch/v1", "cronjobs", "cronjobs/status")
    cronjobs = api.of("batch/v1", "cronjobs", namespace)
    everywhere = api.of("batch/v1", "cronjobs")
    check_operations(cronjobs, cronjob, change=lambda obj: None, everywhere=everywhere)
    cronjobs.create(cronjob("status"))
    check_status(cronjobs, "status", {"lastScheduleTime": WHEN}, "lastScheduleTime", LATER)


def budget(name: str, labels: dict[str, str] | None = None, **spec: object) -> Obj:
    return {
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {"selector": {"matchLabels": {"foo": "bar"}}, "minAvailable": 1, **spec},
    }


@conformance("[sig-apps] DisruptionController should create a PodDisruptionBudget [Conformance]")
def test_budget_lifecycle(api: Api, namespace: str) -> None:
    budgets = api.of("policy/v1", "poddisruptionbudgets", namespace)
    created = budgets.create(budget("foo", {"special": "yes"}, minAvailable="1%"))
    assert created["metadata"]["generation"] == 1
    assert created["spec"]["minAvailable"] == "1%"
    updated = budgets.update("foo", lambda obj: obj["spec"].update(minAvailable="2%"))
    assert updated["spec"]["minAvailable"] == "2%"
    assert updated["metadata"]["generation"] == 2
    patched = budgets.patch("foo", {"spec": {"minAvailable": "3%"}}, "strategic")
    assert patched["spec"]["minAvailable"] == "3%"
    budgets.delete("foo")
    assert budgets.is_gone("foo")


@conformance(
    "[sig-apps] DisruptionController Listing PodDisruptionBudgets for all namespaces should list and delete a"
    " collection of PodDisruptionBudgets [Conformance]"
)
def test_budget_collection(api: Api, namespace: str) -> None:
    run = unique("run")
    other = unique("test")
    api.of("v1", "namespaces").create({"metadata": {"name": other}})
    for place, name in ((namespace, "one"), (namespace, "two"), (other, "three")):
        api.of("policy/v1", "poddisruptionbudgets", place).create(budget(name, {"run": run}, minAvailable="1%"))
    everywhere = api.of("policy/v1", "poddisruptionbudgets")
    assert sorted(everywhere.names(f"run={run}")) == ["one", "three", "two"]
    here = api.of("policy/v1", "poddisruptionbudgets", namespace)
    here.delete_collection(f"run={run}")
    assert here.items() == []
    assert everywhere.names(f"run={run}") == ["three"]


@conformance("[sig-apps] DisruptionController should update/patch PodDisruptionBudget status [Conformance]")
def test_budget_status(api: Api, namespace: str) -> None:
    budgets = api.of("policy/v1", "poddisruptionbudgets", namespace)
    budgets.create(budget("foo"))
    disrupted = {"pod-0": WHEN}
    updated = budgets.update("foo", lambda obj: obj.setdefault("status", {}).update(disruptedPods=disrupted), "status")
    assert updated["status"]["disruptedPods"] == disrupted
    assert budgets.get("foo", "status")["status"]["disruptedPods"] == disrupted
    patched = budgets.patch("foo", {"status": {"disruptedPods": {"pod-0": None}}}, sub="status")
    assert not patched["status"].get("disruptedPods")
    assert updated["metadata"]["generation"] == patched["metadata"]["generation"] == 1


@conformance(
    "[sig-apps] DisruptionController should block an eviction until the PDB is updated to allow it [Conformance]"
)
def test_eviction_waits_for_the_budget(api: Api, namespace: str) -> None:
    """With the numbers that a controller would count, written by the test."""
    pods = api.of("v1", "pods", namespace)
    budgets = api.of("policy/v1", "poddisruptionbudgets", namespace)
    pods.create(pod("busy", {"foo": "bar"}, terminationGracePeriodSeconds=0))
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    pods.patch("busy", {"status": ready}, sub="status")

    def evict() -> Obj:
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "busy"}}
        found: Obj = api.create(f"{pods.path}/busy/eviction", eviction)
        return found

    budgets.create(budget("foo", minAvailable=1))
    numbers = {"observedGeneration": 1, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}
    budgets.patch("foo", {"status": {**numbers, "disruptionsAllowed": 0}}, sub="status")
    blocked = refused("TooManyRequests", evict)
    assert blocked.code == 429
    assert blocked.status["details"]["causes"][0]["reason"] == "DisruptionBudget"
    assert not pods.is_gone("busy")

    budgets.patch("foo", {"status": {"disruptionsAllowed": 1}}, sub="status")
    evict()
    assert pods.is_gone("busy")
