"""LimitRanger: defaults and bounds of a namespace; and the classes that claims and ingresses get by default."""

from __future__ import annotations

from typing import Any

import pytest
from builtin_steps import PODS, a_container, a_pod, denied

from shoal.testing.servers import local_server

RANGES = "/api/v1/namespaces/default/limitranges"
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
STORAGE_CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
INGRESSES = "/apis/networking.k8s.io/v1/namespaces/default/ingresses"
INGRESS_CLASSES = "/apis/networking.k8s.io/v1/ingressclasses"


def a_range(kind: str, name: str = "r", **limits: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"limits": [{"type": kind, **limits}]}}


def a_claim(size: str, name: str = "c", **spec: Any) -> dict[str, Any]:
    wanted = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
    return {"metadata": {"name": name}, "spec": wanted | spec}


def with_resources(requests: dict[str, str] | None = None, limits: dict[str, str] | None = None) -> dict[str, Any]:
    resources = {"requests": requests or {}, "limits": limits or {}}
    return a_pod(containers=[a_container(resources=resources)])


async def test_containers_get_the_defaults_they_leave_out_and_the_pod_says_so() -> None:
    async with local_server() as server:
        await server.post(
            RANGES, a_range("Container", default={"cpu": "1", "memory": "1Gi"}, defaultRequest={"cpu": "100m"})
        )
        own = a_container("own", resources={"limits": {"cpu": "2"}})
        made = await server.post(PODS, a_pod(containers=[own, a_container("c")], initContainers=[a_container("i")]))
        by_name = {c["name"]: c["resources"] for c in made["spec"]["containers"] + made["spec"]["initContainers"]}
        assert by_name["own"] == {
            "limits": {"cpu": "2", "memory": "1Gi"},
            "requests": {"cpu": "2", "memory": "1Gi"},
        }
        assert (
            by_name["c"]
            == by_name["i"]
            == {
                "limits": {"cpu": "1", "memory": "1Gi"},
                "requests": {"cpu": "100m", "memory": "1Gi"},
            }
        )
        assert made["metadata"]["annotations"]["kubernetes.io/limit-ranger"] == (
            "LimitRanger plugin set: memory request for container own; memory limit for container own; "
            "cpu, memory request for container c; cpu, memory limit for container c; "
            "cpu, memory request for init container i; cpu, memory limit for init container i"
        )
        assert made["status"]["qosClass"] == "Burstable"


async def test_a_range_counts_from_the_next_pod_on_and_ends_with_its_deletion() -> None:
    async with local_server() as server:

        def named(name: str) -> dict[str, Any]:
            return {**a_pod(), "metadata": {"name": name}}

        assert (await server.post(PODS, named("a")))["spec"]["containers"][0].get("resources") in (None, {})
        await server.post(RANGES, a_range("Container", default={"cpu": "1"}))
        for name in ("b", "c"):
            made = await server.post(PODS, named(name))
            assert made["spec"]["containers"][0]["resources"]["limits"] == {"cpu": "1"}
            assert "kubernetes.io/limit-ranger" in made["metadata"]["annotations"]
        await server.delete(f"{RANGES}/r")
        assert (await server.post(PODS, named("d")))["spec"]["containers"][0].get("resources") in (None, {})


@pytest.mark.parametrize(
    ("limits", "pod", "fault"),
    [
        (
            a_range("Container", min={"cpu": "100m"}),
            with_resources({"cpu": "50m"}),
            "minimum cpu usage per Container is 100m, but request is 50m",
        ),
        (
            a_range("Container", max={"memory": "1Gi"}),
            with_resources(limits={"memory": "2Gi"}),
            "maximum memory usage per Container is 1Gi, but limit is 2Gi",
        ),
        (
            a_range("Container", min={"cpu": "1"}, max={"cpu": "2"}),
            with_resources({"cpu": "500m"}, {"cpu": "3"}),
            "[minimum cpu usage per Container is 1, but request is 500m, maximum cpu usage per Container is 2, but "
            "limit is 3]",
        ),
        (
            a_range("Container", maxLimitRequestRatio={"cpu": "2"}),
            with_resources({"cpu": "1"}, {"cpu": "2500m"}),
            "cpu max limit to request ratio per Container is 2, but provided ratio is 2.500000",
        ),
        (
            a_range("Container", maxLimitRequestRatio={"cpu": "2"}),
            with_resources(),
            "cpu max limit to request ratio per Container is 2, but no request is specified or request is 0",
        ),
        (
            a_range("Pod", max={"cpu": "1"}),
            a_pod(containers=[a_container(n, resources={"limits": {"cpu": "600m"}}) for n in "ab"]),
            "maximum cpu usage per Pod is 1, but limit is 1200m",
        ),
        (
            a_range("Pod", max={"cpu": "1"}),
            with_resources(),
            "maximum cpu usage per Pod is 1.  No limit is specified",
        ),
        (
            a_range("Pod", min={"memory": "1Gi"}),
            with_resources(),
            "minimum memory usage per Pod is 1Gi.  No request is specified",
        ),
    ],
)
async def test_pods_out_of_bounds_are_refused(limits: dict[str, Any], pod: dict[str, Any], fault: str) -> None:
    async with local_server() as server:
        await server.post(RANGES, limits)
        assert denied(await server.call("POST", PODS, pod)) == f'pods "p" is forbidden: {fault}'


async def test_a_pod_cannot_be_resized_out_of_bounds() -> None:
    async with local_server() as server:
        await server.post(RANGES, a_range("Container", max={"cpu": "1"}))
        made = await server.post(PODS, with_resources({"cpu": "500m"}, {"cpu": "1"}))
        made["spec"]["containers"][0]["resources"]["limits"]["cpu"] = "2"
        answer = await server.call("PUT", f"{PODS}/p/resize", made)
        assert denied(answer) == 'pods "p" is forbidden: maximum cpu usage per Container is 1, but limit is 2'


@pytest.mark.parametrize(
    ("size", "fault"),
    [
        ("1Gi", "minimum storage usage per PersistentVolumeClaim is 2Gi, but request is 1Gi"),
        ("3Gi", ""),
        ("9Gi", "maximum storage usage per PersistentVolumeClaim is 5Gi, but request is 9Gi"),
    ],
)
async def test_claims_have_bounds_of_their_own(size: str, fault: str) -> None:
    async with local_server() as server:
        await server.post(RANGES, a_range("PersistentVolumeClaim", min={"storage": "2Gi"}, max={"storage": "5Gi"}))
        answer = await server.call("POST", CLAIMS, a_claim(size))
        if fault:
            assert denied(answer) == f'persistentvolumeclaims "c" is forbidden: {fault}'
        else:
            answer.ok()


def a_storage_class(name: str, *, default: bool = True, grows: bool = False) -> dict[str, Any]:
    annotations = {"storageclass.kubernetes.io/is-default-class": str(default).lower()}
    made = {"metadata": {"name": name, "annotations": annotations}, "provisioner": "example.com/disk"}
    return made | {"allowVolumeExpansion": grows}


async def test_claims_without_a_class_get_the_default_one() -> None:
    async with local_server() as server:
        assert "storageClassName" not in (await server.post(CLAIMS, a_claim("1Gi", "before")))["spec"]
        await server.post(STORAGE_CLASSES, a_storage_class("other", default=False))
        await server.post(STORAGE_CLASSES, a_storage_class("usual"))
        assert (await server.post(CLAIMS, a_claim("1Gi", "a")))["spec"]["storageClassName"] == "usual"
        own = await server.post(CLAIMS, a_claim("1Gi", "b", storageClassName="other"))
        assert own["spec"]["storageClassName"] == "other"
        none = await server.post(CLAIMS, a_claim("1Gi", "d", storageClassName=""))
        assert none["spec"]["storageClassName"] == ""


async def test_claims_grow_when_they_are_bound_and_their_class_allows_it() -> None:
    async with local_server() as server:
        await server.post(STORAGE_CLASSES, a_storage_class("fixed", default=False))
        await server.post(STORAGE_CLASSES, a_storage_class("elastic", default=False, grows=True))
        for name in ("fixed", "elastic"):
            await server.post(CLAIMS, a_claim("1Gi", name, storageClassName=name, volumeName="v"))
        merge = {"content-type": "application/merge-patch+json"}
        larger = {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}
        answer = await server.call("PATCH", f"{CLAIMS}/elastic", larger, merge)
        assert answer.status in (403, 422)  # the kind's own rules come first
        for name in ("fixed", "elastic"):
            await server.patch(
                f"{CLAIMS}/{name}/status", {"status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}}
            )
        grown = await server.patch(f"{CLAIMS}/elastic", larger)
        assert grown["spec"]["resources"]["requests"]["storage"] == "2Gi"
        assert denied(await server.call("PATCH", f"{CLAIMS}/fixed", larger, merge)) == (
            'persistentvolumeclaims "fixed" is forbidden: only dynamically provisioned pvc can be resized and the '
            "storageclass that provisions the pvc must support resize"
        )


async def test_ingresses_without_a_class_get_the_default_one() -> None:
    async with local_server() as server:
        annotations = {"ingressclass.kubernetes.io/is-default-class": "true"}
        spec = {"controller": "example.com/ingress"}
        await server.post(INGRESS_CLASSES, {"metadata": {"name": "usual", "annotations": annotations}, "spec": spec})

        def ingress(name: str, **more: Any) -> dict[str, Any]:
            backend = {"service": {"name": "s", "port": {"number": 80}}}
            return {"metadata": {"name": name, **more.pop("metadata", {})}, "spec": {"defaultBackend": backend, **more}}

        assert (await server.post(INGRESSES, ingress("a")))["spec"]["ingressClassName"] == "usual"
        own = await server.post(INGRESSES, ingress("b", ingressClassName="own"))
        assert own["spec"]["ingressClassName"] == "own"
        old = ingress("c", metadata={"annotations": {"kubernetes.io/ingress.class": "old"}})
        assert "ingressClassName" not in (await server.post(INGRESSES, old))["spec"]
