"""An edge with an API server: its reports, and its behaviour for kinds that it cannot read."""

from __future__ import annotations

import asyncio
import random
from contextlib import asynccontextmanager
from typing import Any, cast

import orjson
import pytest
from protobuf import Oneof

from shoal.apiserver.inprocess import InProcessTransport
from shoal.apiserver.user import User
from shoal.base.clock import RealClock
from shoal.base.tasks import cancel_all
from shoal.client import Client, Scope, Unreachable, builtin
from shoal.client.transport import Transport
from shoal.crds import sentinel, shard
from shoal.errors import BadRequest, Forbidden
from shoal.navigator.edge import rbac
from shoal.navigator.edge.config import EventsConfig, NamespaceConfig, RequestConfig
from shoal.navigator.edge.discovery import KindDiscovery
from shoal.navigator.model import KINDS
from shoal.reconcile.cache import ChangeType
from shoal.testing import istio
from shoal.testing.navigator import RecordingManager, recording_manager, running_edge, statuses_of
from shoal.testing.servers import LocalServer, local_server
from shoal.wire.navigator.v1 import navigator_pb as pb

ACCOUNT = f"system:serviceaccount:{rbac.NAMESPACE}:{rbac.SERVICE_ACCOUNT}"
GROUPS = ("system:serviceaccounts", f"system:serviceaccounts:{rbac.NAMESPACE}", "system:authenticated")


class Switch:
    """A transport that can be cut and records its requests. ``old``: of a server without watch lists."""

    def __init__(self, inner: Transport, *, old: bool = False) -> None:
        self._inner = inner
        self._old = old
        self.cut = False
        self.streams: list[Any] = []
        self.asked: list[str] = []

    async def request(self, method: str, target: str, **more: Any) -> Any:
        self.asked.append(f"{method} {target}")
        if self.cut:
            raise Unreachable("cut")
        return await self._inner.request(method, target, **more)

    async def stream(self, method: str, target: str, **more: Any) -> Any:
        self.asked.append(f"{method} {target}")
        if self.cut:
            raise Unreachable("cut")
        if self._old and "sendInitialEvents" in target:
            raise BadRequest("sendInitialEvents is not known")
        reply = await self._inner.stream(method, target, **more)
        self.streams.append(reply)
        return reply

    async def break_streams(self) -> None:
        for reply in self.streams:
            await reply.close()

    async def close(self) -> None: ...


def client_of(
    server: LocalServer, user: str = "", groups: tuple[str, ...] = (), *, old: bool = False
) -> tuple[Client, Switch]:
    transport = InProcessTransport(server.server.handler, User(user, groups)) if user else server.transport
    switch = Switch(cast(Transport, transport), old=old)
    return Client(cast(Transport, switch), clock=RealClock()), switch


@asynccontextmanager
async def world(*objects: dict[str, Any], **settings: Any):
    async with local_server() as server, recording_manager() as manager:
        admin, _ = client_of(server)
        await istio.create(admin, *objects)
        client, switch = client_of(server)
        async with running_edge(client, manager.join_file(), discovery_s=0.1, **settings) as edge:
            yield admin, manager, edge, switch


def an_autoscaler() -> dict[str, Any]:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "front"}
    return {
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "front", "namespace": "shop"}, "spec": {"scaleTargetRef": target, "maxReplicas": 3},
    }  # fmt: skip


def a_shard() -> dict[str, Any]:
    return {
        "apiVersion": f"{shard.GROUP}/{shard.VERSION}", "kind": "ShardInstance",
        "metadata": {"name": "sites-1", "namespace": "shop"}, "spec": {"shardId": "sites-1", "config": "sites"},
    }  # fmt: skip


def some_routes() -> tuple[dict[str, Any], ...]:
    spec = {"environment": "e", "host": "a.test", "backends": []}
    return (
        {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": "front", "namespace": "shop"},
         "spec": {"defaultBackend": {"service": {"name": "front", "port": {"number": 80}}}}},
        {"apiVersion": sentinel.API_VERSION, "kind": "SentinelRoute", "metadata": {"name": "r", "namespace": "shop"},
         "spec": spec},
        {"apiVersion": sentinel.API_VERSION, "kind": "SentinelPolicy", "metadata": {"name": "p", "namespace": "shop"},
         "spec": {"environment": "e", "requestSize": {"maxBytes": 1}}},
        {"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
         "metadata": {"name": "front", "namespace": "shop"}, "spec": {"hostnames": ["a.test"]}},
    )  # fmt: skip


def definitions() -> list[dict[str, Any]]:
    """Of all kinds that a cluster may lack."""
    routes = istio.definition(KINDS["httproutes"])
    routes["metadata"]["annotations"] = {"api-approved.kubernetes.io": "https://example.org"}
    return [*shard.definitions(), *sentinel.definitions(), routes, *istio.istio_crds()]


def an_event(name: str, second: int = 1) -> dict[str, Any]:
    about = {"apiVersion": "v1", "kind": "Pod", "name": "front-0", "namespace": "shop"}
    return {
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": name, "namespace": "shop"}, "reason": "BackOff",
        "type": "Warning", "message": "back-off", "involvedObject": about,
        "lastTimestamp": f"2026-01-02T03:04:{second:02}Z",
    }  # fmt: skip


async def synced(manager: RecordingManager) -> None:
    await manager.until(lambda: manager.model.verifications)


async def test_all_objects_of_the_cluster_and_their_changes_are_reported() -> None:
    objects = (
        *definitions(),
        *istio.control_plane(),
        *istio.shop(),
        an_autoscaler(),
        a_shard(),
        *some_routes(),
        an_event("front-0.1"),
    )
    async with world(*objects) as (admin, manager, edge, _):
        await synced(manager)
        assert set(statuses_of(manager.model).values()) == {"synced"}
        assert statuses_of(manager.model).keys() == KINDS.keys()
        assert manager.model.keys("horizontalpodautoscalers") == {"shop/front"}
        assert manager.model.keys("shardinstances") == {"shop/sites-1"}
        assert [manager.model.keys(kind) for kind in ("ingresses", "sentinelroutes", "sentinelpolicies")] == [
            {"shop/front"}, {"shop/r"}, {"shop/p"},
        ]  # fmt: skip
        assert manager.model.keys("httproutes") == {"shop/front"}
        assert "shop/front-0.1" in manager.model.keys("events")
        assert manager.model.keys("virtualservices") == {"shop/front", "shop/ratings"}
        assert manager.model.object("virtualservices", "shop/front")["apiVersion"] == "networking.istio.io/v1"
        assert edge.readyz()[0]
        await istio.create(admin, istio.pod("shop", "front", "v1"))
        await manager.until(lambda: manager.model.keys("pods") == {"shop/front-v1-0"})
        row = manager.model.object("pods", "shop/front-v1-0")
        assert "managedFields" not in row["metadata"] and "resourceVersion" not in row["metadata"]
        routes = await admin.by_kind("VirtualService", "networking.istio.io/v1")
        await routes.delete("front", "shop")
        await admin.of(builtin("pods")).delete("front-v1-0", "shop", grace_period_s=0)
        await manager.until(lambda: manager.model.keys("virtualservices") == {"shop/ratings"})
        await manager.until(lambda: not manager.model.keys("pods"))


async def test_only_the_newest_events_are_reported_and_the_number_changes_while_the_edge_runs() -> None:
    objects = [istio.namespace("shop"), *(an_event(f"front-0.{second}", second) for second in range(1, 6))]
    async with world(*objects, events=EventsConfig(most=3)) as (admin, manager, edge, _):
        await manager.until(lambda: manager.model.keys("events") == {f"shop/front-0.{each}" for each in (3, 4, 5)})
        await admin.of(builtin("events")).delete("front-0.5", "shop")
        await manager.until(lambda: manager.model.keys("events") == {f"shop/front-0.{each}" for each in (3, 4)})
        edge.take_options({"events.most": "1"})
        await manager.until(lambda: manager.model.keys("events") == {"shop/front-0.4"})


async def test_the_control_plane_of_the_mesh_is_reported_with_its_configuration() -> None:
    canary = istio.control_plane(revision="canary", version="1.28.0-distroless", mesh="trustDomain: new.example\n")
    async with world(*istio.control_plane()) as (admin, manager, _, _):
        await synced(manager)
        kind, key = "istiocontrolplaneconfigs", "istio-system/istiod"
        spec = manager.model.object(kind, key)["spec"]
        assert (spec["version"], spec["clusterId"], spec["rootNamespace"]) == (
            "1.27.1",
            "mesh-east",
            "istio-system",
        )
        assert spec["meshConfig"]["trustDomain"] == "example.org"
        assert manager.sessions[0].identification.metadata["mesh_cluster_id"] == "mesh-east"
        await istio.create(admin, *canary)
        await manager.until(lambda: manager.model.keys(kind) == {key, f"{key}-canary"})
        await manager.until(lambda: manager.model.object(kind, f"{key}-canary")["spec"]["trustDomain"] == "new.example")
        maps = admin.of(builtin("configmaps"))
        await maps.patch("istio", {"data": {"mesh": "rootNamespace: mesh-root\n"}}, "istio-system")
        await manager.until(lambda: manager.model.object(kind, key)["spec"]["rootNamespace"] == "mesh-root")
        await maps.patch("istio", {"data": {"mesh": "{"}}, "istio-system")
        await manager.until(lambda: manager.model.state(kind) == "failing")
        await admin.of(builtin("deployments", "apps")).delete("istiod", "istio-system")
        await manager.until(lambda: manager.model.keys(kind) == {f"{key}-canary"})
        await manager.until(lambda: manager.model.state(kind) == "synced")


async def test_one_failing_kind_leaves_the_others_intact() -> None:
    routes = [kind for kind in istio.istio_kinds() if kind.name == "virtualservices"]
    async with local_server() as server, recording_manager() as manager:
        admin, _ = client_of(server)
        await istio.create(admin, *istio.istio_crds(routes), istio.namespace("shop"))
        made = rbac.manifests()
        role = next(each for each in made if each["kind"] == "ClusterRole")
        for rule in role["rules"]:
            rule["resources"] = [name for name in rule["resources"] if name != "services"]
        await istio.create(admin, *made, istio.pod("shop", "front", "v1"), istio.service("shop", "front"),
                           istio.resource("virtualservices", "shop", "front"))  # fmt: skip
        client, _ = client_of(server, ACCOUNT, GROUPS)
        async with running_edge(client, manager.join_file(), discovery_s=0.1) as edge:
            await manager.until(lambda: manager.model.state("services") == "forbidden")
            assert "services" in manager.model.statuses["services"].error
            await manager.until(lambda: manager.model.keys("pods") == {"shop/front-v1-0"})
            await manager.until(lambda: manager.model.keys("virtualservices") == {"shop/front"})
            await manager.until(lambda: manager.model.state("gateways") == "missing")
            assert edge.readyz()[0], edge.readyz()
            await istio.create(admin, *rbac.manifests())
            await manager.until(lambda: manager.model.keys("services") == {"default/kubernetes", "shop/front"})
            assert manager.model.state("services") == "synced"


async def test_kinds_that_appear_later_are_picked_up_and_those_that_go_are_emptied() -> None:
    gateways = [kind for kind in istio.istio_kinds() if kind.name == "gateways"]
    async with world(istio.namespace("shop")) as (admin, manager, _, _):
        await manager.until(lambda: manager.model.state("gateways") == "missing")
        await istio.create(admin, *istio.istio_crds(gateways), istio.resource("gateways", "shop", "a"))
        await manager.until(lambda: manager.model.keys("gateways") == {"shop/a"})
        await manager.until(lambda: manager.model.state("gateways") == "synced")
        definitions = admin.of(builtin("customresourcedefinitions", "apiextensions.k8s.io"))
        await definitions.delete("gateways.networking.istio.io")
        await manager.until(lambda: manager.model.state("gateways") == "missing")
        await manager.until(lambda: not manager.model.keys("gateways"))
        await istio.create(admin, *istio.istio_crds(gateways), istio.resource("gateways", "shop", "b"))
        await manager.until(lambda: manager.model.keys("gateways") == {"shop/b"})


async def test_rows_are_kept_and_sent_while_the_api_is_unavailable() -> None:
    async with world(istio.namespace("shop"), istio.pod("shop", "front", "v1")) as (admin, manager, edge, switch):
        await synced(manager)
        switch.cut = True
        await switch.break_streams()
        await manager.until(lambda: manager.model.state("pods") == "failing")
        await manager.until(lambda: "synced" not in {manager.model.state(name) for name in ("services", "nodes")})
        manager.model.rows.clear()  # another manager, which knows nothing
        manager.end()
        await manager.until(lambda: manager.model.keys("pods") == {"shop/front-v1-0"})
        assert manager.model.state("pods") == "failing"
        await istio.create(admin, istio.pod("shop", "front", "v1", 1))
        switch.cut = False
        await manager.until(lambda: len(manager.model.keys("pods")) == 2)
        await manager.until(lambda: manager.model.state("pods") == "synced")
        assert edge.machine.resyncs == 0


async def test_only_the_namespaces_of_the_settings_are_reported() -> None:
    async def reported(config: NamespaceConfig) -> tuple[set[str], set[str]]:
        places = ("team-a", "team-b", "other")
        objects = [istio.namespace(place) for place in places] + [istio.service(place, "web") for place in places]
        async with world(*objects, namespaces=config) as (admin, manager, _, _):
            await synced(manager)
            await istio.create(admin, *(istio.service(place, "late") for place in places))
            known = {place for place in places if config_wants(config, place)}
            await manager.until(lambda: {f"{place}/late" for place in known} <= manager.model.keys("services"))
            services = {key for key in manager.model.keys("services") if not key.startswith("default/")}
            return services, manager.model.keys("namespaces") & set(places)

    def config_wants(config: NamespaceConfig, place: str) -> bool:
        from shoal.navigator.edge.reporting import Namespaces

        return Namespaces(config).wants(place)

    everything = {f"{place}/{name}" for place in ("team-a", "team-b", "other") for name in ("web", "late")}
    assert await reported(NamespaceConfig()) == (everything, {"team-a", "team-b", "other"})
    assert await reported(NamespaceConfig(include=("team-*",), exclude=("team-b",))) == (
        {"team-a/web", "team-a/late"}, {"team-a"}
    )  # fmt: skip
    assert await reported(NamespaceConfig(include=("other",))) == ({"other/web", "other/late"}, {"other"})


async def test_patterns_follow_namespaces_as_they_come_and_go() -> None:
    objects = [istio.namespace("team-a"), istio.service("team-a", "web")]
    async with world(*objects, namespaces=NamespaceConfig(include=("team-*",))) as (admin, manager, edge, switch):
        await synced(manager)
        assert manager.model.keys("services") == {"team-a/web"}
        await istio.create(admin, istio.namespace("team-b"), istio.namespace("other"), istio.service("team-b", "web"))
        await istio.create(admin, istio.service("other", "web"))
        await manager.until(lambda: manager.model.keys("services") == {"team-a/web", "team-b/web"})
        assert edge.watching.namespaces == {"team-a", "team-b"}
        asked = [line for line in switch.asked if "/services" in line]
        assert asked and all("/namespaces/team-" in line for line in asked), "the whole cluster was read"
        await _delete_namespace(admin, "team-b")
        await manager.until(lambda: manager.model.keys("services") == {"team-a/web"})
        assert edge.watching.namespaces == {"team-a"} and edge.readyz()[0]


async def test_a_pattern_of_many_namespaces_watches_the_whole_cluster() -> None:
    places = ("team-a", "team-b", "team-c", "other")
    objects = [istio.namespace(place) for place in places] + [istio.service(place, "web") for place in places]
    config = NamespaceConfig(include=("team-*",), one_by_one=3)
    async with world(*objects, namespaces=config) as (admin, manager, edge, switch):
        expected = {"team-a/web", "team-b/web", "team-c/web"}
        await manager.until(lambda: manager.model.keys("services") == expected)
        removed: list[str] = []
        edge.watching.objects("services").add_handler(
            lambda change: removed.append(str(change.key)) if change.type is ChangeType.DELETED else None
        )
        await istio.create(admin, istio.namespace("team-d"), istio.service("team-d", "web"))
        await manager.until(lambda: manager.model.keys("services") == expected | {"team-d/web"})
        await manager.until(lambda: any("/api/v1/services" in line for line in switch.asked))
        assert edge.watching.namespaces is None and not removed


async def _delete_namespace(admin: Client, name: str) -> None:
    """As the namespace controller does."""
    services = admin.of(builtin("services"))
    for each in (await services.list(Scope(namespace=name))).items:
        await services.delete(each["metadata"]["name"], name)
    namespaces = admin.of(builtin("namespaces"))
    await namespaces.delete(name)
    found = await namespaces.get(name)
    found["spec"]["finalizers"] = []
    await admin.request("PUT", f"/api/v1/namespaces/{name}/finalize", body=orjson.dumps(found))


async def test_a_cluster_without_a_name_gets_the_name_of_the_mesh_or_its_uid() -> None:
    async def name(*objects: dict[str, Any]) -> tuple[str, str]:
        async with local_server() as server, recording_manager() as manager:
            admin, _ = client_of(server)
            await istio.create(admin, *objects)
            system = await admin.of(builtin("namespaces")).get("kube-system")
            async with running_edge(admin, manager.join_file(cluster="")):
                await manager.until(lambda: manager.sessions)
                return manager.sessions[0].identification.cluster, system["metadata"]["uid"]

    found, uid = await name()
    assert found == uid
    found, _ = await name(*istio.control_plane(cluster="mesh-west"))
    assert found == "mesh-west"


# rights


async def test_the_rights_of_an_edge_suffice_and_each_is_needed() -> None:
    """Its account allows all its requests, and its requests use all that the account allows."""

    async with local_server() as server, recording_manager() as manager:
        admin, _ = client_of(server)
        objects = (*definitions(), *istio.control_plane(), *istio.shop(), *rbac.manifests(in_process=True))
        await istio.create(admin, *objects, istio.pod("shop", "front", "v1"))
        client, switch = client_of(server, ACCOUNT, GROUPS, old=True)
        async with running_edge(client, manager.join_file(), requests=RequestConfig()) as edge:
            await synced(manager)
            assert not [each for each in manager.model.statuses.values() if each.state != "synced"]
            refusals = await _ask_everything(manager)
            assert "Forbidden" not in refusals, refusals
            assert edge.readyz()[0]
        used = _uses(switch.asked)
    allowed = {
        (verb, resource)
        for rule in rbac.cluster_rules(in_process=True)
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert allowed <= used, allowed - used
    names = next(rule for rule in rbac.mesh_rules(("canary",)))["resourceNames"]
    assert names == ["istio", "istio-canary"]


async def test_rights_in_some_namespaces_suffice_where_the_whole_cluster_may_not_be_listed() -> None:
    """A real API server with RBAC: the edge's account has Roles in two namespaces, and nothing else."""
    places = ("team-a", "team-b", "other")
    async with local_server() as server, recording_manager() as manager:
        admin, _ = client_of(server)
        await istio.create(
            admin, *definitions(), *(istio.namespace(place) for place in places),
            *rbac.manifests(namespaces=places[:2]), *(istio.service(place, "web") for place in places),
        )  # fmt: skip
        client, switch = client_of(server, ACCOUNT, GROUPS)
        with pytest.raises(Forbidden):
            await client.of(builtin("services")).list()
        config = NamespaceConfig(include=places[:2])
        async with running_edge(client, manager.join_file(), namespaces=config) as edge:
            await manager.until(lambda: manager.model.keys("services") == {"team-a/web", "team-b/web"})
            await manager.until(lambda: edge.readyz()[0])
            states = statuses_of(manager.model)
            assert {kind for kind, state in states.items() if state != "synced"} == {"nodes", "namespaces"}
            await istio.create(admin, istio.pod("team-b", "web", "v1"))
            await manager.until(lambda: manager.model.keys("pods") == {"team-b/web-v1-0"})
            events = await manager.ask("events", Oneof("events", pb.ClusterEvents()))
            assert not events[-1].error, events[-1].error
            role = admin.of(builtin("roles", "rbac.authorization.k8s.io"))
            await role.delete(rbac.NAME, "team-b")
            await switch.break_streams()
            await manager.until(lambda: manager.model.state("services") == "forbidden")
            assert "namespace team-b" in manager.model.statuses["services"].error
            await istio.create(admin, istio.service("team-a", "late"))
            await manager.until(lambda: "team-a/late" in manager.model.keys("services"))
            assert "team-b/web" in manager.model.keys("services"), "the last good state is kept"
            assert edge.readyz()[0]


def test_nothing_is_allowed_to_be_written_and_nothing_with_a_wildcard() -> None:
    for in_process in (False, True):
        for rule in rbac.cluster_rules(in_process=in_process):
            assert "*" not in (*rule["apiGroups"], *rule["resources"], *rule["verbs"])
            writing = set(rule["verbs"]) - {"get", "list", "watch"}
            assert not writing or rule["resources"] == ["pods/portforward"]


async def _ask_everything(manager: RecordingManager) -> set[str]:
    asked = {
        "logs": pb.PodLogs(namespace="shop", pod="front-v1-0", container="front", tail=-1),
        "events": pb.ClusterEvents(namespace="shop"),
        "proxy_config": pb.ProxyConfig(namespace="shop", pod="front-v1-0"),
    }
    reasons = set()
    for field, what in asked.items():
        parts = await manager.ask(field, Oneof(field, what))
        reasons.add(parts[-1].reason)
    return reasons


def _uses(asked: list[str]) -> set[tuple[str, str]]:
    used = set()
    for line in asked:
        target = line.partition(" ")[2]
        path, _, query = target.partition("?")
        parts = [part for part in path.split("/") if part]
        parts = parts[2:] if parts[:1] == ["api"] else parts[3:] if parts[:1] == ["apis"] else []
        if parts[:1] == ["namespaces"] and len(parts) > 2:
            parts = parts[2:]
        if not parts:
            continue
        subresource = f"{parts[0]}/{parts[2]}" if len(parts) > 2 else parts[0]
        verb = "watch" if "watch=true" in query else "get" if len(parts) > 1 else "list"
        used.add((verb, subresource))
    return used


async def test_a_kind_that_appears_during_discovery_is_not_watched_in_an_older_version() -> None:
    """The definition is created after the list of v1 was read and before that of v1alpha3 is."""
    definitions = istio.istio_crds([kind for kind in istio.istio_kinds() if kind.name == "virtualservices"])
    other = istio.istio_crds([kind for kind in istio.istio_kinds() if kind.name == "destinationrules"])
    async with local_server() as server:
        admin, _ = client_of(server)
        await istio.create(admin, *other)
        client, switch = client_of(server)
        looking = KindDiscovery(
            client,
            [KINDS["virtualservices"]],
            clock=RealClock(),
            every_s=60,
            on_result=lambda missing, error: None,
            random=random.random,
        )
        request = switch.request

        async def creating(method: str, target: str, **more: Any) -> Any:
            answer = await request(method, target, **more)
            if target.endswith("/v1"):
                await istio.create(admin, *definitions)
            return answer

        switch.request = creating  # type: ignore[method-assign]
        running = asyncio.create_task(looking.run(), name="discovery")
        try:
            assert await asyncio.wait_for(looking.version_of(KINDS["virtualservices"]), 20) == "v1"
        finally:
            await cancel_all(running)
