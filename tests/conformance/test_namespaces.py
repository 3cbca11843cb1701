"""Namespaces, and the quotas and limits that live in them, as stored objects."""

from __future__ import annotations

from conformance_api import Api, conformance, refused, unique
from conformance_objects import condition, pod

from shoal.kube.objects import Obj
from shoal.testing.waiting import eventually_blocking


@conformance("[sig-api-machinery] Namespaces should patch a Namespace [Conformance] [Serial]")
def test_namespace_patch(api: Api) -> None:
    namespaces, name = api.of("v1", "namespaces"), unique("nspatch")
    namespaces.create({"metadata": {"name": name}})
    namespaces.patch(name, {"metadata": {"labels": {"testLabel": "testValue"}}}, "strategic")
    assert namespaces.get(name)["metadata"]["labels"]["testLabel"] == "testValue"
    assert namespaces.get(name)["metadata"]["labels"]["kubernetes.io/metadata.name"] == name


@conformance("[sig-api-machinery] Namespaces should apply an update to a Namespace [Conformance] [Serial]")
def test_namespace_update(api: Api, namespace: str) -> None:
    namespaces = api.of("v1", "namespaces")
    updated = namespaces.update(namespace, lambda obj: obj["metadata"]["labels"].update({namespace: "updated"}))
    assert updated["metadata"]["labels"][namespace] == "updated"


@conformance("[sig-api-machinery] Namespaces should apply changes to a namespace status [Conformance] [Serial]")
def test_namespace_status(api: Api, namespace: str) -> None:
    namespaces = api.of("v1", "namespaces")
    assert namespaces.get(namespace, "status")["status"]["phase"] == "Active"
    note = {"metadata": {"annotations": {"patched": namespace}}, "status": {"conditions": [condition("StatusPatch")]}}
    patched = namespaces.patch(namespace, note, sub="status")
    assert patched["metadata"]["annotations"]["patched"] == namespace
    assert patched["status"]["conditions"][-1]["message"] == "set by StatusPatch"
    updated = namespaces.update(
        namespace, lambda obj: obj["status"]["conditions"].append(condition("StatusUpdate")), "status"
    )
    assert [c["type"] for c in updated["status"]["conditions"]] == ["StatusPatch", "StatusUpdate"]


@conformance("[sig-api-machinery] Namespaces should apply a finalizer to a Namespace [Conformance] [Serial]")
def test_namespace_finalizer(api: Api, namespace: str) -> None:
    namespaces, ours = api.of("v1", "namespaces"), "e2e.example.com/fakeFinalizer"

    def finalize(finalizers: list[str]) -> list[str]:
        obj = namespaces.get(namespace)
        obj["spec"]["finalizers"] = finalizers
        found: list[str] = namespaces.replace(obj, "finalize")["spec"]["finalizers"]
        return found

    assert finalize(["kubernetes", ours]) == ["kubernetes", ours]
    assert finalize(["kubernetes"]) == ["kubernetes"]
    assert namespaces.get(namespace)["spec"]["finalizers"] == ["kubernetes"]


@conformance(
    "[sig-api-machinery] Namespaces should ensure that all pods are removed when a namespace is deleted"
    " [Conformance] [Serial]"
)
def test_deleting_a_namespace_removes_its_pods(api: Api, namespace: str) -> None:
    api.of("v1", "pods", namespace).create(pod("test-pod"))
    delete_namespace(api, namespace)
    api.of("v1", "namespaces").create({"metadata": {"name": namespace}})
    assert api.of("v1", "pods", namespace).items() == []


@conformance(
    "[sig-api-machinery] Namespaces should ensure that all services are removed when a namespace is deleted"
    " [Conformance] [Serial]"
)
def test_deleting_a_namespace_removes_its_services(api: Api, namespace: str) -> None:
    service = {"metadata": {"name": "test-service"}, "spec": {"selector": {"foo": "bar"}, "ports": [{"port": 80}]}}
    api.of("v1", "services", namespace).create(service)
    delete_namespace(api, namespace)
    api.of("v1", "namespaces").create({"metadata": {"name": namespace}})
    assert api.of("v1", "services", namespace).items() == []


@conformance("[sig-api-machinery] OrderedNamespaceDeletion namespace deletion should delete pod first [Conformance]")
def test_a_namespace_deletes_its_pods_first(api: Api, namespace: str) -> None:
    pods, maps = api.of("v1", "pods", namespace), api.of("v1", "configmaps", namespace)
    blocked = pod("test-pod")
    blocked["metadata"]["finalizers"] = ["e2e.example.com/finalizer"]
    pods.create(blocked)
    maps.create({"metadata": {"name": "test-configmap"}, "data": {"key": "value"}})
    api.of("v1", "namespaces").delete(namespace)

    def waits_for_pods() -> bool:
        status = api.of("v1", "namespaces").get(namespace)["status"]
        found = {c["type"]: c for c in status.get("conditions", ()) if c["status"] == "True"}
        return status["phase"] == "Terminating" and "NamespaceContentRemaining" in found

    eventually_blocking(waits_for_pods)
    assert pods.get("test-pod")["metadata"]["deletionTimestamp"]
    assert maps.get("test-configmap")["data"] == {"key": "value"}
    refused("Forbidden", maps.create, {"metadata": {"name": "late"}})

    pods.patch("test-pod", {"metadata": {"finalizers": None}})
    eventually_blocking(lambda: api.of("v1", "namespaces").is_gone(namespace))


def delete_namespace(api: Api, name: str) -> None:
    api.of("v1", "namespaces").delete(name)
    eventually_blocking(lambda: api.of("v1", "namespaces").is_gone(name))


def quota(name: str, **hard: str) -> Obj:
    return {"metadata": {"name": name}, "spec": {"hard": {"pods": "5", **hard}}}


@conformance("[sig-api-machinery] ResourceQuota should be able to update and delete ResourceQuota. [Conformance]")
def test_quota_update_and_delete(api: Api, namespace: str) -> None:
    quotas = api.of("v1", "resourcequotas", namespace)
    assert quotas.create(quota("test", cpu="1", memory="500Mi"))["spec"]["hard"]["cpu"] == "1"
    assert quotas.get("test")["spec"]["hard"]["memory"] == "500Mi"
    quotas.update("test", lambda obj: obj["spec"]["hard"].update(cpu="2", memory="1Gi"))
    hard = quotas.get("test")["spec"]["hard"]
    assert (hard["cpu"], hard["memory"]) == ("2", "1Gi")
    quotas.delete("test")
    assert quotas.is_gone("test")


@conformance("[sig-api-machinery] ResourceQuota should manage the lifecycle of a ResourceQuota [Conformance]")
def test_quota_lifecycle(api: Api, namespace: str) -> None:
    quotas, run = api.of("v1", "resourcequotas", namespace), unique("run")
    quotas.create(quota("test", cpu="1", memory="500Mi"))
    patch = {"metadata": {"labels": {run: "patched"}}, "spec": {"hard": {"memory": "750Mi"}}}
    patched = quotas.patch("test", patch, "strategic")
    assert patched["metadata"]["labels"][run] == "patched"
    assert patched["spec"]["hard"]["memory"] == "750Mi"
    assert api.of("v1", "resourcequotas").names(f"{run}=patched") == ["test"]
    quotas.delete_collection(f"{run}=patched")
    assert quotas.items() == []


@conformance("[sig-api-machinery] ResourceQuota should apply changes to a resourcequota status [Conformance]")
def test_quota_status(api: Api, namespace: str) -> None:
    quotas = api.of("v1", "resourcequotas", namespace)
    quotas.create(quota("test", cpu="500m", memory="500Mi"))
    with quotas.watch(fields="metadata.name=test", after=quotas.list()) as watch:
        status = {"hard": {"cpu": "800m", "memory": "800Mi"}}
        patched = quotas.patch("test", {"status": status}, sub="status")
        assert patched["status"]["hard"] == {**status["hard"], "pods": "5"}
        watch.until("MODIFIED", lambda obj: obj["status"]["hard"]["memory"] == "800Mi")
        updated = quotas.update("test", lambda obj: obj["status"]["hard"].update(cpu="1"), "status")
        assert updated["status"]["hard"]["cpu"] == "1"
        assert updated["spec"]["hard"]["cpu"] == "500m"
        # in the end the status says what the spec wants
        watch.until("MODIFIED", lambda obj: obj["status"]["hard"] == obj["spec"]["hard"])


def limit_range(name: str, labels: dict[str, str]) -> Obj:
    limit = {
        "type": "Container",
        "min": {"cpu": "50m", "memory": "100Mi"},
        "max": {"cpu": "500m", "memory": "500Mi"},
        "default": {"cpu": "500m", "memory": "500Mi"},
        "defaultRequest": {"cpu": "100m", "memory": "200Mi"},
    }
    return {"metadata": {"name": name, "labels": labels}, "spec": {"limits": [limit]}}


@conformance("[sig-scheduling] LimitRange should list, patch and delete a LimitRange by collection [Conformance]")
def test_limit_range_lifecycle(api: Api, namespace: str) -> None:
    ranges, run, other = api.of("v1", "limitranges", namespace), unique("run"), unique("test")
    api.of("v1", "namespaces").create({"metadata": {"name": other}})
    ranges.create(limit_range("limits", {run: "created"}))
    api.of("v1", "limitranges", other).create(limit_range("limits", {run: "created"}))
    everywhere = api.of("v1", "limitranges")
    assert len(everywhere.items(f"{run}=created")) == 2

    minimum = {"spec": {"limits": [{"type": "Container", "min": {"cpu": "40m"}}]}}
    patched = ranges.patch("limits", {"metadata": {"labels": {run: "patched"}}, **minimum}, "strategic")
    assert patched["metadata"]["labels"][run] == "patched"
    assert patched["spec"]["limits"][0]["min"]["cpu"] == "40m"
    ranges.delete_collection(f"{run}=patched")
    assert ranges.items() == []
    assert len(everywhere.items(f"{run}=created")) == 1
