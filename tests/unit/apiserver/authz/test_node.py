"""A node reads what its pods need and writes what is its own, and nothing else."""

from __future__ import annotations

from typing import Any

from authz_people import People

from shoal.apiserver.authz.pod_references import references
from shoal.testing.servers import local_server

ALPHA, BETA = "system:node:alpha/system:nodes", "system:node:beta/system:nodes"
CORE = "/api/v1/namespaces/default"


def a_pod(name: str, node: str, **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}], **spec},
    }


POD = a_pod(
    "web",
    "alpha",
    containers=[
        {
            "name": "c",
            "image": "i",
            "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "env-secret", "key": "k"}}}],
            "envFrom": [{"configMapRef": {"name": "env-map"}}],
        }
    ],
    initContainers=[{"name": "i", "image": "i", "envFrom": [{"secretRef": {"name": "init-secret"}}]}],
    imagePullSecrets=[{"name": "pull-secret"}],
    serviceAccountName="default",
    volumes=[
        {"name": "a", "secret": {"secretName": "volume-secret"}},
        {"name": "b", "configMap": {"name": "volume-map"}},
        {"name": "c", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "d", "projected": {"sources": [{"secret": {"name": "projected-secret"}}]}},
        {"name": "e", "ephemeral": {"volumeClaimTemplate": {"spec": {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}}},
    ],
)  # fmt: skip
NEEDED = (
    "secrets/env-secret", "secrets/init-secret", "secrets/pull-secret", "secrets/volume-secret",
    "secrets/projected-secret", "configmaps/env-map", "configmaps/volume-map", "persistentvolumeclaims/data",
    "persistentvolumeclaims/web-e", "pods/web", "serviceaccounts/default",
)  # fmt: skip


async def allowed(people: People, user: str, method: str, path: str, body: Any = None) -> bool:
    return (await people.ask(user, method, path, body)).status != 403


async def test_a_node_reads_what_its_pods_need_as_long_as_they_are_there() -> None:
    async with local_server() as server:
        people = People(server)
        assert not await allowed(people, ALPHA, "GET", f"{CORE}/secrets/env-secret")
        await server.post(f"{CORE}/pods", POD)
        for needed in NEEDED:
            assert await allowed(people, ALPHA, "GET", f"{CORE}/{needed}"), needed
            assert not await allowed(people, BETA, "GET", f"{CORE}/{needed}"), needed
        for other in ("secrets/other", "configmaps/other", "secrets", "pods", "serviceaccounts/other"):
            assert not await allowed(people, ALPHA, "GET", f"{CORE}/{other}"), other
        watch = f"{CORE}/secrets?fieldSelector=metadata.name%3Denv-secret"
        assert await allowed(people, ALPHA, "GET", watch)
        assert not await allowed(people, ALPHA, "GET", "/api/v1/namespaces/kube-system/secrets/env-secret")
        refused = await people.ask(BETA, "GET", f"{CORE}/secrets/env-secret")
        assert refused.json["message"] == (
            'secrets "env-secret" is forbidden: User "system:node:beta" cannot get resource "secrets" in API group '
            '"" in the namespace "default": no relationship found between node \'beta\' and this object'
        )
        await server.delete(f"{CORE}/pods/web", {"gracePeriodSeconds": 0})
        assert not await allowed(people, ALPHA, "GET", f"{CORE}/secrets/env-secret")


def test_a_mirror_pod_gives_its_node_nothing() -> None:
    assert ("secrets", "env-secret") in references(POD)
    mirrored = {**POD, "metadata": {"name": "m", "annotations": {"kubernetes.io/config.mirror": "x"}}}
    assert references(mirrored) == frozenset()


async def test_volumes_and_their_secrets_are_reached_through_claims() -> None:
    async with local_server() as server:
        people = People(server)
        claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        await server.post(
            f"{CORE}/persistentvolumeclaims", {"metadata": {"name": "data"}, "spec": {**claim, "volumeName": "v"}}
        )
        volume = {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "1Gi"},
            "claimRef": {"namespace": "default", "name": "data"},
            "csi": {
                "driver": "d", "volumeHandle": "h",
                "nodeStageSecretRef": {"namespace": "kube-system", "name": "stage"},
                "controllerPublishSecretRef": {"namespace": "kube-system", "name": "publish"},
            },
        }  # fmt: skip
        await server.post("/api/v1/persistentvolumes", {"metadata": {"name": "v"}, "spec": volume})
        await server.post(f"{CORE}/pods", POD)
        for user, may in ((ALPHA, True), (BETA, False)):
            assert await allowed(people, user, "GET", "/api/v1/persistentvolumes/v") is may
            assert await allowed(people, user, "GET", "/api/v1/namespaces/kube-system/secrets/stage") is may
        assert not await allowed(people, ALPHA, "GET", "/api/v1/namespaces/kube-system/secrets/publish")
        assert not await allowed(people, ALPHA, "GET", "/api/v1/persistentvolumes/other")


async def test_a_node_has_its_own_objects_and_no_others() -> None:
    async with local_server() as server:
        people = People(server)
        leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
        drivers = "/apis/storage.k8s.io/v1/csinodes"
        for method, path, may in (
            ("GET", "/api/v1/nodes/alpha", True),
            ("GET", "/api/v1/nodes/beta", False),
            ("GET", "/api/v1/nodes", False),
            ("GET", "/api/v1/nodes?fieldSelector=metadata.name%3Dalpha", True),
            ("DELETE", "/api/v1/nodes/alpha", False),
            ("GET", f"{leases}/alpha", True),
            ("GET", f"{leases}/beta", False),
            ("GET", leases, False),
            ("PATCH", f"{leases}/alpha", True),
            ("GET", "/apis/coordination.k8s.io/v1/namespaces/default/leases/alpha", False),
            ("GET", f"{drivers}/alpha", True),
            ("GET", f"{drivers}/beta", False),
            ("GET", "/api/v1/pods?fieldSelector=spec.nodeName%3Dalpha", True),
            ("GET", "/api/v1/pods?fieldSelector=spec.nodeName%3Dbeta", False),
            ("GET", "/api/v1/pods?fieldSelector=spec.nodeName!%3Dalpha", False),
            ("GET", "/apis/resource.k8s.io/v1/resourceslices?fieldSelector=spec.nodeName%3Dalpha", True),
            ("GET", "/apis/resource.k8s.io/v1/resourceslices", False),
            ("GET", "/api/v1/services", True),
            ("GET", "/apis/node.k8s.io/v1/runtimeclasses", True),
            ("POST", f"{CORE}/serviceaccounts/default/token", False),
            ("GET", "/api/v1/namespaces", False),
        ):
            body = b"{}" if method in ("POST", "PATCH") else None
            assert await allowed(people, ALPHA, method, path, body) is may, (method, path)


async def test_a_name_alone_makes_no_node() -> None:
    async with local_server() as server:
        assert not await allowed(People(server), "system:node:alpha", "GET", "/api/v1/nodes/alpha")
