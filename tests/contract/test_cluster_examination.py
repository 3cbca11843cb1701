"""`shoal doctor cluster` against an API server: each thing that keeps a cluster from joining is found, with its fix."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from shoal.apiserver.inprocess import InProcessTransport
from shoal.apiserver.user import User
from shoal.app.findings import Finding, FindingVerdict
from shoal.app.joining.examine import ClusterExamination
from shoal.app.joining.manifests import NAMESPACE, draft, manifests
from shoal.base.clock import FakeClock, RealClock
from shoal.client import Client
from shoal.client.transport import Reply
from shoal.errors import ServiceUnavailable
from shoal.testing.servers import ADMIN, LocalServer, local_server

IMAGE = "registry.example/shoal:1"


@asynccontextmanager
async def a_server() -> AsyncIterator[LocalServer]:
    async with local_server() as server:
        await server.post("/api/v1/namespaces", {"metadata": {"name": "team"}})
        yield server


def a_client(server: LocalServer, user: User = ADMIN) -> Client:
    return Client(InProcessTransport(server.server.handler, user), clock=RealClock())


async def examined(client: Client, clock: Any = None, namespaces: tuple[str, ...] = ()) -> dict[str, Finding]:
    objects = manifests(draft(IMAGE, namespaces=namespaces))
    examination = ClusterExamination(
        client, objects, clock=clock or RealClock(), source="eu.yaml", namespaces=namespaces
    )
    return {each.name: each async for each in examination.findings()}


def failed(found: dict[str, Finding]) -> list[str]:
    return [name for name, each in found.items() if each.verdict is FindingVerdict.FAILED]


async def test_a_good_cluster_passes_every_check_and_nothing_is_stored_there() -> None:
    async with a_server() as server:
        client = a_client(server)
        before = server.store.revision
        found = await examined(client)
        assert not failed(found), found
        assert list(found) == ["version", "clock", "apis", "rights", "admission", "endpointslices"]
        assert server.store.revision == before


async def test_a_user_without_rights_is_told_what_is_missing_and_who_can_do_it() -> None:
    async with a_server() as server:
        found = await examined(a_client(server, User("eve", ("system:authenticated",))))
        assert "rights" in failed(found)
        told = found["rights"].found
        assert told.startswith("not allowed: create and patch clusterrolebindings.rbac.authorization.k8s.io, ")
        assert "create and patch deployments.apps, " in told and told.count("deployments.apps") == 1
        assert "--print" in found["rights"].fix


async def test_a_user_who_may_write_roles_but_not_grant_theirs_is_told_so() -> None:
    async with a_server() as server:
        kinds = {(each["apiVersion"], each["kind"]) for each in manifests(draft(IMAGE))}
        groups = sorted({version.rpartition("/")[0] for version, _ in kinds})
        rules = [{"apiGroups": groups, "resources": ["*"], "verbs": ["create", "patch", "get"]}]
        rbac = "rbac.authorization.k8s.io"
        await server.post(f"/apis/{rbac}/v1/clusterroles", {"metadata": {"name": "almost"}, "rules": rules})
        await server.post(
            f"/apis/{rbac}/v1/clusterrolebindings",
            {
                "metadata": {"name": "almost"},
                "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "almost"},
                "subjects": [{"apiGroup": rbac, "kind": "User", "name": "eve"}],
            },
        )
        found = await examined(a_client(server, User("eve", ("system:authenticated",))))
        assert failed(found)[:1] == ["rights"] and found["rights"].found.startswith("ClusterRole ")


async def test_a_namespace_that_is_missing_is_told_with_the_command_that_makes_it() -> None:
    async with a_server() as server:
        found = await examined(a_client(server), namespaces=("team", "shop"))
        assert failed(found) == ["namespaces"]
        assert found["namespaces"].fix == "kubectl create namespace shop"


async def test_a_quota_and_an_admission_policy_that_refuse_the_agents_are_told() -> None:
    async with a_server() as server:
        await server.post("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        quota = {"metadata": {"name": "tight"}, "spec": {"hard": {"pods": "0"}}}
        made = await server.post(f"/api/v1/namespaces/{NAMESPACE}/resourcequotas", quota)
        made["status"] = {"hard": {"pods": "0"}, "used": {"pods": "0"}}
        await server.put(f"/api/v1/namespaces/{NAMESPACE}/resourcequotas/tight/status", made)
        found = await examined(a_client(server))
        assert failed(found) == ["admission"]
        assert "exceeded quota" in found["admission"].found and "raise the ResourceQuota" in found["admission"].fix


async def test_a_clock_that_is_off_fails_and_one_that_is_a_little_off_warns() -> None:
    async with a_server() as server:
        for off_s, verdict in ((0, FindingVerdict.OK), (20, FindingVerdict.WARNING), (3600, FindingVerdict.FAILED)):
            clock = FakeClock(RealClock().now() + timedelta(seconds=off_s))
            found = await examined(a_client(server), clock)
            assert found["clock"].verdict is verdict, found["clock"]


async def test_the_header_date_is_preferred_where_the_server_sends_it() -> None:
    async with a_server() as server:
        client = Client(WithDate(InProcessTransport(server.server.handler, ADMIN)), clock=RealClock())
        found = await examined(client)
        assert found["clock"].verdict is FindingVerdict.FAILED and "apart" in found["clock"].found


class WithDate:
    """A transport whose answers have a date of long ago."""

    def __init__(self, inner: InProcessTransport) -> None:
        self._inner = inner

    async def request(self, *args: Any, **named: Any) -> Reply:
        reply = await self._inner.request(*args, **named)
        return Reply(reply.status, {**reply.headers, "date": "Mon, 01 Jan 2024 00:00:00 GMT"}, reply.body)

    async def stream(self, *args: Any, **named: Any) -> Any:
        return await self._inner.stream(*args, **named)

    async def close(self) -> None:
        await self._inner.close()


async def test_a_cluster_without_an_api_is_told_which() -> None:
    class Older(Client):
        async def resource_types(self, *, refresh: bool = False) -> Any:
            found = await super().resource_types(refresh=refresh)
            return tuple(each for each in found if each.group != "autoscaling")

    async with a_server() as server:
        client = Older(InProcessTransport(server.server.handler, ADMIN), clock=RealClock())
        found = await examined(client)
        assert failed(found) == ["apis"] and "autoscaling/v2" in found["apis"].found


async def test_a_cluster_that_does_not_answer_is_told_and_nothing_else_is_asked() -> None:
    class Gone(Client):
        async def request(self, *args: Any, **named: Any) -> Any:
            raise ServiceUnavailable("the server is starting")

    async with a_server() as server:
        client = Gone(InProcessTransport(server.server.handler, ADMIN), clock=RealClock())
        found = await examined(client)
        assert list(found) == ["connection"] and "HTTPS_PROXY" in found["connection"].fix
