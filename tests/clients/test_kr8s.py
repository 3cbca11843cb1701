"""kr8s, its synchronous and its asyncio side."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any, cast

import kr8s
import kr8s.asyncio
import pytest
from kr8s._async_utils import Portal
from tests.clients.conftest import a_definition, a_deployment, a_widget

from shoal.testing.servers import ServerProcess

# a release of kr8s warns of Kubernetes versions that are newer than itself
pytestmark = pytest.mark.filterwarnings("default:Kubernetes version:UserWarning")


@pytest.fixture
def api(cluster: ServerProcess, namespace: str) -> Iterator[kr8s.Api]:
    made = kr8s.api(kubeconfig=cluster.kubeconfig, namespace=namespace)
    yield made
    assert made._session is not None
    Portal().call(made._session.aclose)  # there is no public way to let go of the connections


@contextlib.asynccontextmanager
async def connected(cluster: ServerProcess, namespace: str) -> AsyncIterator[kr8s.asyncio.Api]:
    made = await kr8s.asyncio.api(kubeconfig=cluster.kubeconfig, namespace=namespace)
    try:
        yield made
    finally:
        assert made._session is not None
        await made._session.aclose()


def config_map(api: kr8s.Api, name: str, **data: str) -> kr8s.objects.ConfigMap:
    return kr8s.objects.ConfigMap({"metadata": {"name": name, "namespace": api.namespace}, "data": data}, api=api)


def deployment(api: kr8s.Api, name: str) -> kr8s.objects.Deployment:
    body = a_deployment(name)
    body["metadata"]["namespace"] = api.namespace
    return kr8s.objects.Deployment(body, api=api)


def test_objects_through_their_life(api: kr8s.Api) -> None:
    made = config_map(api, "a", k="1")
    assert not made.exists()
    made.create()
    assert made.exists() and made.metadata.uid
    made.patch({"data": {"j": "2"}})
    assert made.data == {"k": "1", "j": "2"}
    made.patch([{"op": "remove", "path": "/data/k"}], type="json")
    assert made.data == {"j": "2"}
    made.label(tier="front")
    made.annotate(note="hello")
    assert (made.labels.tier, made.annotations.note) == ("front", "hello")
    found = list(api.get("configmaps", namespace=api.namespace, label_selector={"tier": "front"}))
    assert [cast(Any, item).name for item in found] == ["a"]
    made.remove_label("tier")
    made.refresh()
    assert "tier" not in made.labels
    made.delete()
    made.wait("delete", timeout=30)
    with pytest.raises(kr8s.NotFoundError):
        made.refresh()


def test_kinds_are_found_under_all_their_names(api: kr8s.Api) -> None:
    for name in ("deploy", "deployment", "deployments", "Deployment", "deployment.apps", "deployments.v1.apps"):
        assert api.lookup_kind(name) == ("deployment.apps/v1", "deployments", True)
    assert api.lookup_kind("node") == ("node/v1", "nodes", False)
    assert {"v1", "apps/v1", "batch/v1"} <= set(api.api_versions())
    assert "Deployment" in {resource["kind"] for resource in api.api_resources()}


def test_scale_and_wait(api: kr8s.Api) -> None:
    made = deployment(api, "web")
    made.create()
    made.scale(3)
    assert made.replicas == 3 and made.metadata.generation == 2
    condition = {"type": "Available", "status": "True", "reason": "x", "message": ""}
    made.patch({"status": {"conditions": [condition]}}, subresource="status")
    made.wait("condition=Available", timeout=30)
    made.wait("jsonpath='{.spec.replicas}'=3", timeout=30)
    made.delete(propagation_policy="Background")
    made.wait("delete", timeout=30)


def test_errors_tell_what_the_server_said(api: kr8s.Api) -> None:
    made = config_map(api, "a")
    made.create()
    with pytest.raises(kr8s.ServerError, match="already exists"):
        config_map(api, "a").create()
    with pytest.raises(kr8s.ServerError, match="metadata.name: Invalid value"):
        config_map(api, "Not Valid").create()


def test_lists_of_more_than_a_page(api: kr8s.Api) -> None:
    names = [f"c{index:03}" for index in range(130)]  # kr8s asks for 100 at a time
    kr8s.create(cast(Any, [config_map(api, name) for name in names]), api=api)
    found = [cast(Any, item).name for item in api.get("cm", namespace=api.namespace)]
    assert [name for name in found if name.startswith("c")] == names


def test_tables_as_the_server_prints_them(api: kr8s.Api) -> None:
    deployment(api, "web").create()
    (table,) = api.get("deployments", namespace=api.namespace, as_object=kr8s.objects.Table)
    columns = [column["name"] for column in cast(Any, table).raw["columnDefinitions"]]
    assert columns[:5] == ["Name", "Ready", "Up-to-date", "Available", "Age"]
    assert cast(Any, table).rows[0]["cells"][0] == "web"


def test_nodes_are_cordoned_and_tainted(api: kr8s.Api) -> None:
    node = kr8s.objects.Node({"metadata": {"name": f"node-{api.namespace}"}}, api=api)
    node.create()
    node.cordon()
    assert node.unschedulable
    node.uncordon()
    node.taint("key", "value", effect="NoSchedule")
    node.refresh()
    not_ready = ("node.kubernetes.io/not-ready", "NoSchedule")  # no kubelet ever reports this node
    assert [(taint.key, taint.effect) for taint in node.taints] == [not_ready, ("key", "NoSchedule")]
    node.delete()


def test_custom_objects(api: kr8s.Api, group: str) -> None:
    kr8s.objects.CustomResourceDefinition(a_definition(group), api=api).create()
    Widget = kr8s.objects.new_class("Widget", f"{group}/v1", namespaced=True, scalable=True, plural="widgets")
    body = a_widget(group, "w", size=1, replicas=1)
    body["metadata"]["namespace"] = api.namespace
    widget: Any = Widget(body, api=api)
    widget.create()
    assert widget.spec.color == "red"
    widget.patch({"spec": {"size": 2}})
    widget.scale(4)
    assert (widget.spec.size, widget.replicas) == (2, 4)
    widget.patch({"status": {"phase": "Good"}}, subresource="status")
    widget.wait("jsonpath='{.status.phase}'=Good", timeout=30)
    with pytest.raises(kr8s.ServerError, match="size must stay under 100"):
        widget.patch({"spec": {"size": 100}})
    assert [cast(Any, item).name for item in Widget.list(api=api, namespace=api.namespace)] == ["w"]
    owned = config_map(api, "owned")
    owned.create()
    owned.set_owner(widget)
    owned.refresh()
    assert owned.metadata.ownerReferences[0].uid == widget.metadata.uid
    widget.delete()
    widget.wait("delete", timeout=30)


async def test_watch_sees_changes_as_they_happen(cluster: ServerProcess, namespace: str) -> None:
    async def main() -> list[tuple[str, Any]]:
        async with connected(cluster, namespace) as api, asyncio.timeout(20):
            body = {"metadata": {"name": "s", "namespace": namespace, "labels": {"mine": "yes"}}}
            secret = await kr8s.asyncio.objects.Secret(body, api=api)
            await secret.create()
            seen: list[tuple[str, Any]] = []
            changes = api.watch("secrets", namespace=namespace, label_selector="mine=yes")
            async with contextlib.aclosing(changes):
                async for kind, found in changes:
                    seen.append((kind, found.labels.get("step")))
                    if kind == "ADDED":
                        await secret.label(step="1")
                    elif kind == "MODIFIED":
                        await secret.delete()
                    else:
                        return seen
            return seen

    assert await main() == [("ADDED", None), ("MODIFIED", "1"), ("DELETED", "1")]


async def test_watch_of_custom_objects_from_a_version(cluster: ServerProcess, namespace: str, group: str) -> None:
    async def main() -> list[tuple[str, int]]:
        async with connected(cluster, namespace) as api, asyncio.timeout(20):
            definition = await kr8s.asyncio.objects.CustomResourceDefinition(a_definition(group), api=api)
            await definition.create()
            Widget: Any = kr8s.asyncio.objects.new_class("Widget", f"{group}/v1", asyncio=True, plural="widgets")
            body = a_widget(group, "w", size=1)
            body["metadata"]["namespace"] = namespace
            widget = await Widget(body, api=api)
            await widget.create()
            start = widget.metadata.resourceVersion
            await widget.patch({"spec": {"size": 2}})
            await widget.delete()
            seen = []
            changes = api.watch(f"widgets.{group}", namespace=namespace, since=start)
            async with contextlib.aclosing(changes):
                async for kind, found in changes:
                    seen.append((kind, found.spec.size))
                    if kind == "DELETED":
                        break
            return seen

    assert await main() == [("MODIFIED", 2), ("DELETED", 2)]


async def test_many_requests_at_once_on_one_client(cluster: ServerProcess, namespace: str) -> None:
    async def main() -> set[str]:
        async with connected(cluster, namespace) as api, asyncio.timeout(20):
            made = [
                await kr8s.asyncio.objects.Secret({"metadata": {"name": f"s{n}", "namespace": namespace}}, api=api)
                for n in range(50)
            ]
            await asyncio.gather(*(secret.create() for secret in made))
            return {cast(Any, found).name async for found in api.get("secrets", namespace=namespace)}

    assert await main() == {f"s{n}" for n in range(50)}
