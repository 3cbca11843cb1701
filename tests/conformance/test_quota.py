"""Quotas: what a namespace uses, as its objects come and go, and what is too much."""

from __future__ import annotations

from conformance_api import Api, Resource, conformance, refused
from conformance_live import settles
from conformance_objects import IMAGE, pod, replication_controller, workload

from shoal.kube.objects import Obj

HARD = {
    "pods": "5", "services": "10", "services.nodeports": "1", "services.loadbalancers": "1", "configmaps": "10",
    "secrets": "10", "replicationcontrollers": "10", "resourcequotas": "1", "cpu": "1", "memory": "500Mi",
    "persistentvolumeclaims": "10", "requests.storage": "10Gi", "count/replicasets.apps": "5",
    "requests.ephemeral-storage": "50Gi", "requests.example.com/dongle": "3",
}  # fmt: skip


def quota(name: str, hard: dict[str, str], *scopes: str) -> Obj:
    return {"metadata": {"name": name}, "spec": {"hard": hard, **({"scopes": list(scopes)} if scopes else {})}}


def uses(quotas: Resource, name: str, **used: str) -> None:
    """The quota comes to count this; ``_`` stands for what a keyword cannot have."""
    wanted = {key.replace("__", "/").replace("_", "."): value for key, value in used.items()}

    def check() -> bool:
        found = quotas.get(name).get("status", {}).get("used", {})
        return {key: found.get(key) for key in wanted} == wanted

    settles(check)


def quotas_with(live: Api, space: str, hard: dict[str, str] = HARD) -> Resource:
    quotas = live.of("v1", "resourcequotas", space)
    quotas.create(quota("quota", hard))
    settles(lambda: quotas.get("quota").get("status", {}).get("hard") == hard)
    return quotas


def requesting(name: str, resources: Obj, **spec: object) -> Obj:
    return {"metadata": {"name": name}, "spec": {**pod(name)["spec"], "containers": [container(resources)], **spec}}


def container(resources: Obj) -> Obj:
    return {"name": "main", "image": IMAGE, "resources": resources}


@conformance(
    "[sig-api-machinery] ResourceQuota should create a ResourceQuota and ensure its status is promptly calculated."
    " [Conformance]"
)
def test_a_quota_is_counted_promptly(live: Api, space: str) -> None:
    quotas = quotas_with(live, space)
    settles(lambda: quotas.get("quota")["status"].get("used", {}).keys() == HARD.keys())
    uses(quotas, "quota", resourcequotas="1", pods="0", cpu="0")


@conformance(
    "[sig-api-machinery] ResourceQuota should create a ResourceQuota and capture the life of a service. [Conformance]"
)
def test_services_are_counted(live: Api, space: str) -> None:
    quotas, services = quotas_with(live, space), live.of("v1", "services", space)
    ports = [{"port": 80}]
    services.create({"metadata": {"name": "plain"}, "spec": {"ports": ports}})
    services.create({"metadata": {"name": "node-port"}, "spec": {"type": "NodePort", "ports": ports}})
    uses(quotas, "quota", services="2", services_nodeports="1", services_loadbalancers="0")
    balanced = {"metadata": {"name": "balanced"}, "spec": {"type": "LoadBalancer", "ports": ports}}
    refused("Forbidden", services.create, balanced)
    services.delete("plain")
    services.delete("node-port")
    uses(quotas, "quota", services="0", services_nodeports="0", services_loadbalancers="0")


def check_count(quotas: Resource, resource: Resource, obj: Obj, key: str) -> None:
    """One more and one less of a kind is seen by the quota."""
    used = int(settles(lambda: quotas.get("quota")["status"].get("used", {}).get(key)))
    resource.create(obj)
    settles(lambda: quotas.get("quota")["status"]["used"][key] == str(used + 1))
    resource.delete(obj["metadata"]["name"], {"propagationPolicy": "Background"})
    settles(lambda: quotas.get("quota")["status"]["used"][key] == str(used))


@conformance(
    "[sig-api-machinery] ResourceQuota should create a ResourceQuota and capture the life of a secret. [Conformance]"
)
def test_secrets_are_counted(live: Api, space: str) -> None:
    secret = {"metadata": {"name": "secret"}, "stringData": {"key": "value"}}
    check_count(quotas_with(live, space), live.of("v1", "secrets", space), secret, "secrets")


@conformance(
    "[sig-api-machinery] ResourceQuota should create a ResourceQuota and capture the life of a configMap. [Conformance]"
)
def test_config_maps_are_counted(live: Api, space: str) -> None:
    maps = live.of("v1", "configmaps", space)
    check_count(quotas_with(live, space), maps, {"metadata": {"name": "config"}, "data": {"a": "b"}}, "configmaps")


@conformance(
    "[sig-api-machinery] ResourceQuota should create a ResourceQuota and capture the life of a replica set."
    " [Conformance]"
)
def test_replica_sets_are_counted(live: Api, space: str) -> None:
    sets = live.of("apps/v1", "replicasets", space)
    check_count(quotas_with(live, space), sets, workload("web", 0), "count/replicasets.apps")


@conformance(
    "[sig-api-machinery] ResourceQuota should create a ResourceQuota and capture the life of a replication controller."
    " [Conformance]"
)
def test_replication_controllers_are_counted(live: Api, space: str) -> None:
    controllers = live.of("v1", "replicationcontrollers", space)
    check_count(quotas_with(live, space), controllers, replication_controller("rc", 0), "replicationcontrollers")


@conformance(
    "[sig-api-machinery] ResourceQuota should create a ResourceQuota and capture the life of a pod. [Conformance]"
)
def test_pods_are_counted(live: Api, space: str) -> None:
    quotas, pods = quotas_with(live, space), live.of("v1", "pods", space)
    requests = {"cpu": "500m", "memory": "252Mi", "ephemeral-storage": "30Gi", "example.com/dongle": "2"}
    pods.create(requesting("first", {"requests": requests, "limits": {"example.com/dongle": "2"}}))
    uses(quotas, "quota", pods="1", cpu="500m", memory="252Mi", requests_example_com__dongle="2")

    over = {"requests": {"cpu": "10m", "memory": "300Mi", "ephemeral-storage": "1Gi"}}
    assert "exceeded quota: quota" in refused("Forbidden", pods.create, requesting("memory", over)).message
    dongles = {"requests": {**requests, "cpu": "1m", "memory": "1Mi", "ephemeral-storage": "1Gi"}}
    refused("Forbidden", pods.create, requesting("dongle", {**dongles, "limits": {"example.com/dongle": "2"}}))
    grown = {"requests": {**requests, "cpu": "100m"}}
    refused("Invalid", pods.patch, "first", {"spec": {"containers": [container(grown)]}}, "strategic")
    uses(quotas, "quota", pods="1", cpu="500m", memory="252Mi", requests_example_com__dongle="2")

    pods.delete("first", gracePeriodSeconds=0)
    uses(quotas, "quota", pods="0", cpu="0", memory="0", requests_example_com__dongle="0")


@conformance("[sig-api-machinery] ResourceQuota should verify ResourceQuota with terminating scopes. [Conformance]")
def test_scopes_of_pods_that_end(live: Api, space: str) -> None:
    quotas, pods = live.of("v1", "resourcequotas", space), live.of("v1", "pods", space)
    hard = {"pods": "5", "requests.cpu": "1", "requests.memory": "500Mi", "limits.cpu": "2", "limits.memory": "1Gi"}
    quotas.create(quota("ending", hard, "Terminating"))
    quotas.create(quota("lasting", hard, "NotTerminating"))
    uses(quotas, "ending", pods="0")
    uses(quotas, "lasting", pods="0")
    resources = {"requests": {"cpu": "500m", "memory": "200Mi"}, "limits": {"cpu": "1", "memory": "400Mi"}}
    for name, spec, counting, other in (
        ("for-ever", {}, "lasting", "ending"),
        ("for-an-hour", {"activeDeadlineSeconds": 3600}, "ending", "lasting"),
    ):
        pods.create(requesting(name, resources, **spec))
        uses(quotas, counting, pods="1", requests_cpu="500m", limits_memory="400Mi")
        uses(quotas, other, pods="0", requests_cpu="0", limits_memory="0")
        pods.delete(name, gracePeriodSeconds=0)
        uses(quotas, counting, pods="0", requests_cpu="0", limits_memory="0")


@conformance("[sig-api-machinery] ResourceQuota should verify ResourceQuota with best effort scope. [Conformance]")
def test_scopes_of_pods_that_ask_for_nothing(live: Api, space: str) -> None:
    quotas, pods = live.of("v1", "resourcequotas", space), live.of("v1", "pods", space)
    quotas.create(quota("best-effort", {"pods": "5"}, "BestEffort"))
    quotas.create(quota("not-best-effort", {"pods": "5"}, "NotBestEffort"))
    uses(quotas, "best-effort", pods="0")
    uses(quotas, "not-best-effort", pods="0")
    for name, resources, counting, other in (
        ("modest", {}, "best-effort", "not-best-effort"),
        ("demanding", {"requests": {"cpu": "100m"}}, "not-best-effort", "best-effort"),
    ):
        pods.create(requesting(name, resources))
        uses(quotas, counting, pods="1")
        uses(quotas, other, pods="0")
        pods.delete(name, gracePeriodSeconds=0)
        uses(quotas, counting, pods="0")
