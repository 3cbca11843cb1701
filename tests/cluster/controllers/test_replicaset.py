"""ReplicaSets and ReplicationControllers against an API server: numbers, adoption, failures, lag, restarts, speed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from shoal.base.clock import Clock, FakeClock
from shoal.client import Scope
from shoal.controllers.context import ControllerContext
from shoal.controllers.deployment import wiring as deployments
from shoal.controllers.replicaset import wiring as replica_sets
from shoal.controllers.replicationcontroller import wiring as replication_controllers
from shoal.testing.controllers import Play, PodPlayer, rolled_out, running
from shoal.testing.servers import LocalServer, local_server
from shoal.testing.waiting import eventually
from shoal.testing.workloads import deployment, replica_set, replication_controller, template

ADDS = (replica_sets.add, replication_controllers.add)


@asynccontextmanager
async def cluster(player: PodPlayer | None = None, clock: Clock | None = None) -> AsyncIterator[ControllerContext]:
    player = player or PodPlayer()
    async with local_server(clock=clock) as server, running(server, [*ADDS, player.add], clock=clock) as context:
        yield context


async def pods(context: ControllerContext, selector: str = "app=web") -> list[Any]:
    return (await context.resource("pods").list(Scope(namespace="default", label_selector=selector))).items


async def counted(context: ControllerContext, count: int, selector: str = "app=web") -> list[Any]:
    """Wait until there are so many pods that are not being deleted."""

    async def check() -> bool:
        found = [each for each in await pods(context, selector) if not each["metadata"].get("deletionTimestamp")]
        assert len(found) == count, len(found)
        return True

    await eventually(check)
    return await pods(context, selector)


async def test_it_has_as_many_pods_as_it_wants() -> None:
    async with cluster() as context:
        sets = context.resource("replicasets", "apps")
        await sets.create(replica_set("web", 5))
        found = await rolled_out(context, "replicasets", "web")
        assert found["status"]["fullyLabeledReplicas"] == 5
        for each in await pods(context):
            (reference,) = each["metadata"]["ownerReferences"]
            assert (reference["kind"], reference["controller"], reference["uid"]) == (
                "ReplicaSet", True, found["metadata"]["uid"],
            )  # fmt: skip
            assert each["metadata"]["name"].startswith("web-")
        for count in (8, 2, 0, 3):
            await sets.scale("web", count, "default")
            await rolled_out(context, "replicasets", "web")
            await counted(context, count)


async def test_a_replication_controller_does_the_same_and_follows_its_selector() -> None:
    async with cluster() as context:
        controllers = context.resource("replicationcontrollers")
        await controllers.create(replication_controller("web", 3))
        await rolled_out(context, "replicationcontrollers", "web")
        await controllers.scale("web", 1, "default")
        await rolled_out(context, "replicationcontrollers", "web")
        (left,) = await counted(context, 1)
        about = {"metadata": {"labels": {"app": "web", "colour": "red"}}}
        await context.resource("pods").patch(left["metadata"]["name"], about, "default")
        await controllers.patch("web", {"spec": {"selector": {"colour": "red"}, "template": about}}, "default")
        await rolled_out(context, "replicationcontrollers", "web")
        assert [each["metadata"]["uid"] for each in await counted(context, 1)] == [left["metadata"]["uid"]]


async def test_pods_that_die_are_replaced() -> None:
    player = PodPlayer()
    async with cluster(player) as context:
        await context.resource("replicasets", "apps").create(replica_set("web", 3))
        await rolled_out(context, "replicasets", "web")
        gone, failed, _ = await pods(context)
        await context.resource("pods").delete(gone["metadata"]["name"], "default")
        await rolled_out(context, "replicasets", "web")
        player.play = lambda pod: Play.FAILED if pod["metadata"]["uid"] == failed["metadata"]["uid"] else Play.READY
        player.replay()

        async def replaced() -> bool:
            phases = [each["status"]["phase"] for each in await pods(context)]
            return phases.count("Failed") == 1 and phases.count("Running") == 3

        await eventually(replaced)


async def test_orphans_are_adopted_and_strays_released() -> None:
    async with cluster() as context:
        bare = {"metadata": {"name": "bare", "namespace": "default", "labels": {"app": "web"}}, **_spec()}
        orphan = await context.resource("pods").create(bare)
        await context.resource("replicasets", "apps").create(replica_set("web", 2))
        await counted(context, 2)

        async def adopted() -> bool:
            found = await context.resource("pods").get("bare", "default")
            return bool(found["metadata"].get("ownerReferences"))

        await eventually(adopted)
        await context.resource("pods").patch("bare", {"metadata": {"labels": {"app": "debug"}}}, "default")
        await counted(context, 2)

        async def released() -> bool:
            found = await context.resource("pods").get("bare", "default")
            assert found["metadata"]["uid"] == orphan["metadata"]["uid"]
            return not found["metadata"].get("ownerReferences")

        await eventually(released)


def _spec() -> dict[str, Any]:
    return {"spec": template()["spec"]}


async def test_refused_pods_are_reported_and_created_once_they_are_allowed() -> None:
    async with cluster() as context:
        account = {"template": template("web", serviceAccountName="absent")}
        await context.resource("replicasets", "apps").create(replica_set("web", 3, **account))

        async def refused() -> bool:
            found = await context.resource("replicasets", "apps").get("web", "default")
            conditions = found.get("status", {}).get("conditions") or ()
            return any((c["type"], c["reason"]) == ("ReplicaFailure", "FailedCreate") for c in conditions)

        await eventually(refused)

        async def reported() -> bool:
            events = (await context.resource("events").list(Scope(namespace="default"))).items
            return any(e["reason"] == "FailedCreate" and "Error creating: " in e["message"] for e in events)

        await eventually(reported)
        await context.resource("serviceaccounts").create({"metadata": {"name": "absent", "namespace": "default"}})
        found = await rolled_out(context, "replicasets", "web")

        async def well() -> bool:
            found = await context.resource("replicasets", "apps").get("web", "default")
            return not found["status"].get("conditions")

        await eventually(well)
        assert found["status"]["replicas"] == 3


async def test_availability_comes_with_time() -> None:
    clock = FakeClock()
    async with cluster(clock=clock) as context:
        sets = context.resource("replicasets", "apps")
        await sets.create(replica_set("web", 2, minReadySeconds=60))

        async def status(**wanted: int) -> bool:
            found = (await sets.get("web", "default")).get("status") or {}
            return all(found.get(name, 0) == count for name, count in wanted.items())

        async def advancing(**wanted: int) -> None:
            async def check() -> bool:
                await clock.advance(0.25)
                return await status(**wanted)

            await eventually(check)

        await advancing(readyReplicas=2, availableReplicas=0)
        await clock.advance(30)
        assert await status(readyReplicas=2, availableReplicas=0)
        await clock.advance(31)
        await advancing(availableReplicas=2)


class LaggingTransport:
    """What is written is answered at once; what is watched comes late, and in a bad order between resources."""

    def __init__(self, transport: Any, lag_s: float) -> None:
        self._transport = transport
        self._lag_s = lag_s

    async def request(self, method: str, target: str, **options: Any) -> Any:
        return await self._transport.request(method, target, **options)

    async def stream(self, method: str, target: str, **options: Any) -> Any:
        late = self._lag_s * (3 if "/pods" in target else 1)
        return LaggingStream(await self._transport.stream(method, target, **options), late)

    async def close(self) -> None:
        await self._transport.close()


class LaggingStream:
    def __init__(self, stream: Any, lag_s: float) -> None:
        self._stream = stream
        self._lag_s = lag_s
        self.status: int = stream.status
        self.headers: Mapping[str, str] = stream.headers

    async def chunks(self) -> AsyncIterator[bytes]:
        async for chunk in self._stream.chunks():
            await asyncio.sleep(self._lag_s)
            yield chunk

    async def close(self) -> None:
        await self._stream.close()


def created_names(context: ControllerContext) -> set[str]:
    """Subscribe to the pods of the cache; the names of all that ever came."""
    seen: set[str] = set()
    context.informer("pods").cache.add_handler(lambda change: seen.add(change.key.name))
    return seen


async def test_a_cache_that_lags_behind_does_not_lead_to_too_many_pods() -> None:
    async with local_server() as server:
        server.transport = LaggingTransport(server.transport, 0.03)  # type: ignore[assignment]
        async with running(server, [*ADDS, deployments.add, PodPlayer().add]) as context:
            seen = created_names(context)
            await context.resource("replicasets", "apps").create(replica_set("web", 20))
            await rolled_out(context, "replicasets", "web")
            assert len(seen) == 20
            for count in (25, 15):
                await context.resource("replicasets", "apps").scale("web", count, "default")
                await rolled_out(context, "replicasets", "web")
            assert len(seen) == 25
            await context.resource("deployments", "apps").create(deployment("api", 6))
            await rolled_out(context, "deployments", "api")
            assert len(seen) == 31


@pytest.mark.parametrize("after_s", [0.0, 0.01, 0.02, 0.04])
async def test_a_controller_that_is_killed_at_any_moment_finishes_when_it_returns(after_s: float) -> None:
    async with local_server() as server:
        await _killed_while_creating(server, after_s)
        async with running(server, [*ADDS, PodPlayer().add]) as context:
            await rolled_out(context, "replicasets", "web")
            assert len(await counted(context, 60)) == 60


async def _killed_while_creating(server: LocalServer, after_s: float) -> None:
    class Killed(Exception):
        pass

    try:
        async with running(server, ADDS) as context:
            await context.resource("replicasets", "apps").create(replica_set("web", 60))
            await asyncio.sleep(after_s)
            for task in asyncio.all_tasks():
                if task.get_name() == "manager":
                    task.cancel()  # nothing gets to finish
            raise Killed
    except (Killed, asyncio.CancelledError):
        pass


async def test_at_rest_nothing_is_written() -> None:
    async with cluster() as context:
        await context.resource("replicasets", "apps").create(replica_set("web", 4))
        found = await rolled_out(context, "replicasets", "web")
        queue_idle = [context.informer(name, group).cache for name, group in (("pods", ""), ("replicasets", "apps"))]
        versions = [cache.resource_version for cache in queue_idle]
        for _ in range(200):
            await asyncio.sleep(0)
        assert [cache.resource_version for cache in queue_idle] == versions
        again = await context.resource("replicasets", "apps").get("web", "default")
        assert again["metadata"]["resourceVersion"] == found["metadata"]["resourceVersion"]


async def test_two_thousand_pods_of_ten_deployments_come_quickly_with_few_status_writes() -> None:
    async with local_server() as server, running(server, [*ADDS, deployments.add]) as context:
        writes = 0

        def count(change: Any) -> None:
            nonlocal writes
            writes += 1

        for informer in (context.informer("replicasets", "apps"), context.informer("deployments", "apps")):
            informer.cache.add_handler(count)
        started_s = time.process_time()
        for number in range(10):
            await context.resource("deployments", "apps").create(deployment(f"app-{number}", 200))
        await eventually(lambda: len(context.informer("pods").cache) == 2000, timeout_s=60)
        took_s = time.process_time() - started_s
        assert took_s < 6.0, f"{2000 / took_s:.0f} pods a second of this process' time"
        for number in range(10):
            name = f"app-{number}"

            async def known(name: str = name) -> bool:
                found = await context.resource("deployments", "apps").get(name, "default")
                return bool(found["status"].get("replicas") == 200)

            await eventually(known)
        assert len(context.informer("pods").cache) == 2000
        assert writes <= 10 * 10
