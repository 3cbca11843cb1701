"""lightkube: typed models, generic resources, apply, watch; synchronous and asyncio."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from lightkube import ApiError, AsyncClient, Client, KubeConfig
from lightkube.codecs import load_all_yaml
from lightkube.core.exceptions import ObjectDeleted
from lightkube.generic_resource import create_namespaced_resource, load_in_cluster_generic_resources
from lightkube.models.autoscaling_v1 import ScaleSpec
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.apiextensions_v1 import CustomResourceDefinition
from lightkube.resources.apps_v1 import Deployment
from lightkube.resources.core_v1 import ConfigMap, Pod, Secret
from lightkube.types import PatchType
from tests.clients.conftest import a_definition, a_deployment

from shoal.testing.servers import ServerProcess


@pytest.fixture
def kube(cluster: ServerProcess, namespace: str) -> Iterator[Client]:
    with Client(KubeConfig.from_file(cluster.kubeconfig), namespace=namespace, field_manager="lightkube") as made:
        yield made


def named(name: str, **labels: str) -> ObjectMeta:
    return ObjectMeta(name=name, labels=labels or None)


def a_web() -> Any:
    return Deployment.from_dict(a_deployment("web"))


def a_crd(group: str) -> Any:
    return CustomResourceDefinition.from_dict(a_definition(group))


def refused(error: pytest.ExceptionInfo[ApiError]) -> tuple[int | None, str | None]:
    return error.value.status.code, error.value.status.reason


def test_objects_through_their_life(kube: Client) -> None:
    made = kube.create(ConfigMap(metadata=named("a"), data={"k": "1"}))
    assert made.metadata is not None and made.metadata.uid
    made.data = {"k": "2"}
    assert kube.replace(made).data == {"k": "2"}
    with pytest.raises(ApiError) as stale:
        kube.replace(made)
    assert refused(stale) == (409, "Conflict")
    assert kube.patch(ConfigMap, "a", {"data": {"j": "3"}}).data == {"k": "2", "j": "3"}
    kube.set(ConfigMap, "a", labels={"x": "y"}, annotations={"note": "hello"})
    assert [item.metadata.name for item in kube.list(ConfigMap, labels={"x": "y"}) if item.metadata] == ["a"]
    kube.delete(ConfigMap, "a")
    with pytest.raises(ApiError) as missing:
        kube.get(ConfigMap, "a")
    assert refused(missing) == (404, "NotFound")


def test_apply_conflicts_until_forced(kube: Client) -> None:
    wanted = ConfigMap(metadata=named("a"), data={"k": "mine"})
    assert kube.apply(wanted).data == {"k": "mine"}
    with pytest.raises(ApiError) as conflict:
        kube.apply(ConfigMap(metadata=named("a"), data={"k": "theirs"}), field_manager="other")
    assert refused(conflict) == (409, "Conflict")
    assert 'conflict with "lightkube"' in str(conflict.value)
    forced = ConfigMap(metadata=named("a"), data={"k": "theirs"})
    assert kube.apply(forced, field_manager="other", force=True).data == {"k": "theirs"}
    assert not kube.apply(ConfigMap(metadata=named("a")), field_manager="other").data


def test_every_kind_of_patch_and_scale(kube: Client) -> None:
    kube.create(a_web())
    sidecar = {"spec": {"template": {"spec": {"containers": [{"name": "sidecar", "image": "s"}]}}}}

    def containers(found: Any) -> set[str]:
        return {container.name for container in found.spec.template.spec.containers}

    assert containers(kube.patch(Deployment, "web", sidecar)) == {"c", "sidecar"}
    assert containers(kube.patch(Deployment, "web", sidecar, patch_type=PatchType.MERGE)) == {"sidecar"}
    operations = [{"op": "replace", "path": "/spec/replicas", "value": 2}]
    patched: Any = kube.patch(Deployment, "web", operations, patch_type=PatchType.JSON)
    assert patched.spec.replicas == 2
    scale = Deployment.Scale(metadata=named("web"), spec=ScaleSpec(replicas=5))
    kube.replace(scale, "web")
    found: Any = kube.get(Deployment.Scale, "web")
    assert found.spec.replicas == 5


def test_dry_run_changes_nothing(kube: Client) -> None:
    kube.create(ConfigMap(metadata=named("a")), dry_run=True)
    with pytest.raises(ApiError):
        kube.get(ConfigMap, "a")


def test_pages_and_selectors(kube: Client) -> None:
    for index in range(7):
        spec = {"nodeName": f"n{index % 2}", "containers": [{"name": "c", "image": "i"}]}
        pod: Any = Pod.from_dict({"metadata": {"name": f"p{index}"}, "spec": spec})
        kube.create(pod)
    assert [pod.metadata.name for pod in kube.list(Pod, chunk_size=3) if pod.metadata] == [f"p{n}" for n in range(7)]
    on_node = kube.list(Pod, fields={"spec.nodeName": "n1"})
    assert [pod.metadata.name for pod in on_node if pod.metadata] == ["p1", "p3", "p5"]
    kube.deletecollection(Pod, grace_period=0)
    assert list(kube.list(Pod)) == []


def test_watch_sees_changes_as_they_happen(kube: Client) -> None:
    kube.create(Secret(metadata=named("s")))
    seen = []
    for kind, found in kube.watch(Secret, fields={"metadata.name": "s"}):
        step = (found.metadata.labels or {}).get("step") if found.metadata else None
        seen.append((kind, step))
        if kind == "ADDED":
            kube.set(Secret, "s", labels={"step": "1"})
        elif kind == "MODIFIED":
            kube.delete(Secret, "s")
        else:
            break
    assert seen == [("ADDED", None), ("MODIFIED", "1"), ("DELETED", "1")]


def test_watch_goes_on_after_the_server_ended_it(kube: Client) -> None:
    listed = kube.list(Secret)
    assert list(listed) == []
    start = listed.resourceVersion
    timer = threading.Timer(1.3, lambda: kube.create(Secret(metadata=named("late"))))
    timer.start()
    kind, found = next(iter(kube.watch(Secret, server_timeout=1, resource_version=start)))
    timer.join()
    assert kind == "ADDED" and found.metadata is not None and found.metadata.name == "late"


def test_wait_returns_when_the_condition_comes_or_the_object_goes(kube: Client) -> None:
    kube.create(a_web())
    condition = {"type": "Available", "status": "True", "reason": "x", "message": ""}
    kube.patch(Deployment.Status, "web", {"status": {"conditions": [condition]}})
    found: Any = kube.wait(Deployment, "web", for_conditions=["Available"])
    assert found.status.conditions[0].type == "Available"
    timer = threading.Timer(0.2, lambda: kube.delete(Deployment, "web"))
    timer.start()
    with pytest.raises(ObjectDeleted):
        kube.wait(Deployment, "web", for_conditions=["Progressing"])
    timer.join()


def test_generic_resources_for_custom_kinds(kube: Client, group: str) -> None:
    kube.create(a_crd(group))
    kube.wait(CustomResourceDefinition, f"widgets.{group}", for_conditions=["Established"])
    Widget: Any = create_namespaced_resource(group, "v1", "Widget", "widgets")
    made = kube.create(Widget(metadata=named("w"), spec={"size": 1}))
    assert made.spec == {"size": 1, "color": "red"}
    body = Widget(apiVersion=f"{group}/v1", kind="Widget", metadata=named("w"), spec={"size": 2})
    with pytest.raises(ApiError) as conflict:
        kube.apply(body, field_manager="other")
    assert refused(conflict) == (409, "Conflict")
    assert kube.apply(body, field_manager="other", force=True).spec["size"] == 2
    patched = kube.patch(Widget.Status, "w", {"status": {"phase": "x"}}, patch_type=PatchType.MERGE)
    assert patched.status == {"phase": "x"}
    with pytest.raises(ApiError) as invalid:
        kube.patch(Widget, "w", {"spec": {"size": 0}}, patch_type=PatchType.MERGE)
    assert refused(invalid) == (422, "Invalid")
    assert [item.metadata.name for item in kube.list(Widget)] == ["w"]
    seen = []
    for kind, _ in kube.watch(Widget):
        seen.append(kind)
        if kind == "DELETED":
            break
        kube.delete(Widget, "w")
    assert seen == ["ADDED", "DELETED"]
    kube.delete(CustomResourceDefinition, f"widgets.{group}")


def test_manifests_with_custom_kinds_are_loaded_and_applied(kube: Client, group: str) -> None:
    kube.create(a_crd(group))
    load_in_cluster_generic_resources(kube)
    text = f"""
apiVersion: {group}/v1
kind: Widget
metadata: {{name: w, namespace: {kube.namespace}}}
spec: {{size: 3}}
---
apiVersion: v1
kind: Service
metadata: {{name: s, namespace: {kube.namespace}}}
spec: {{ports: [{{port: 80}}]}}
"""
    applied = [kube.apply(obj) for obj in load_all_yaml(text)]
    widget, service = applied
    assert widget["spec"]["color"] == "red"
    assert service.spec.clusterIP


async def test_asyncio_client(cluster: ServerProcess, namespace: str) -> None:
    async def main() -> list[str]:
        config = KubeConfig.from_file(cluster.kubeconfig)
        async with AsyncClient(config, namespace=namespace, field_manager="lightkube") as kube, asyncio.timeout(20):
            await asyncio.gather(*(kube.apply(Secret(metadata=named(f"s{n}"))) for n in range(10)))
            async for kind, _ in kube.watch(Secret, fields={"metadata.name": "s3"}):
                if kind == "DELETED":
                    break
                await kube.delete(Secret, "s3")
            return [found.metadata.name or "" async for found in kube.list(Secret) if found.metadata]

    assert await main() == [f"s{n}" for n in range(10) if n != 3]
