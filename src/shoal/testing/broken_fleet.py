"""A fleet with a fault proxy at every connection, and a load of changes while they break.

    async with broken_fleet(folder, {"eu-1": "eu", "eu-2": "eu"}) as world:
        async with world.load(names := ("web", "api"), "eu"):
            await world.kill(world.fleet.control)
            await world.cut(world.hop("agent-control"))
        await world.check(names)

    users ─▶ control plane ─▶ PostgreSQL           hops: control-database
                  ▲                                      agent-control
                agents ─▶ API servers                    agent-cluster

TLS prevents a proxy from repeating or swapping bytes, so ``repeat`` makes the client repeat its request: requests pass,
answers are lost, and then the connection breaks.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from shoal.base.tasks import cancel_all
from shoal.testing.databases import PostgresServer, postgres_server
from shoal.testing.fleet_recorder import DeletedDeployment, FleetRecorder, marker_of
from shoal.testing.fleets import LocalFleet, Process, app, app_path
from shoal.testing.proxy import FaultProxy, SocketProxy, TcpProxy
from shoal.testing.tally import TALLY

HOPS = ("agent-control", "agent-cluster", "control-database")
_PACE_S = 0.1


@dataclass(slots=True)
class ChangeLoad:
    """Of each app, the last change that was acknowledged to a user and the last one that was attempted."""

    acknowledged: dict[str, int] = field(default_factory=dict)
    attempts: int = 0
    changes: int = 0


@dataclass(slots=True)
class BrokenFleet:
    fleet: LocalFleet
    witness: FleetRecorder
    postgres: PostgresServer
    links: dict[str, list[FaultProxy]]
    said: ChangeLoad = field(default_factory=ChangeLoad)
    moves: list[str] = field(default_factory=list)  # faults found when an app left a cluster
    _checks: set[asyncio.Task[None]] = field(default_factory=set)

    def hop(self, name: str) -> Sequence[FaultProxy]:
        return self.links[name]

    # faults

    async def kill(self, process: Process, *, away_s: float = 0.5) -> None:
        await asyncio.to_thread(process.kill)
        await asyncio.sleep(away_s)
        await asyncio.to_thread(process.start)

    async def kill_database(self, *, away_s: float = 1.0) -> None:
        TALLY.faults += 1
        await asyncio.to_thread(self.postgres.kill)
        await asyncio.sleep(away_s)
        await asyncio.to_thread(self.postgres.start)

    async def cut(self, hop: Sequence[FaultProxy], *, away_s: float = 1.0) -> None:
        for link in hop:
            link.refuse()
        await asyncio.sleep(away_s)
        for link in hop:
            link.heal()

    async def delay(self, hop: Sequence[FaultProxy], *, by_s: float = 0.1, for_s: float = 1.5) -> None:
        TALLY.faults += 1
        for link in hop:
            link.delay_s = by_s
        await asyncio.sleep(for_s)
        for link in hop:
            link.heal()

    async def repeat(self, hop: Sequence[FaultProxy], *, for_s: float = 0.5) -> None:
        for link in hop:
            link.mute()
        await asyncio.sleep(for_s)
        for link in hop:
            link.cut()

    async def move(self, name: str, region: str, to: str) -> None:
        """Move an app to another cluster of its region and wait until it has left the other one."""
        key = (await asyncio.to_thread(self.fleet.api.app_status, name))["deployment"]
        gone = asyncio.Event()

        def left(deleted: DeletedDeployment) -> None:
            if deleted.key == f"deployment/{key}" and deleted.cluster != to:
                self.witness.deleted.remove(deleted)  # the move deletes it; the app may come back here later
                self._checks.add(asyncio.create_task(self._ready_elsewhere(name, to, gone), name=f"moved/{name}"))

        self.witness.on_delete = left
        body = {"region": region, "cluster": to}
        await asyncio.to_thread(self.fleet.api.until_acknowledged, "POST", f"{app_path(name)}/move", body)
        # a change that comes in between replaces the revision that was to be moved: then no deletion of its key follows
        await self.witness.until(
            lambda: gone.is_set() or self._is_only_in(name, to), timeout_s=60, what=f"{name} in {to} alone"
        )

    def _is_only_in(self, name: str, cluster: str) -> bool:
        return [each for each in self.fleet.clusters if self.witness.of_app(name, each)] == [cluster]

    async def _ready_elsewhere(self, name: str, cluster: str, gone: asyncio.Event) -> None:
        """Record a fault unless the app is available in ``cluster``."""
        found = self.witness.of_app(name, cluster)
        if not found:
            self.moves.append(f"{name} left although it is not in {cluster}")
        else:
            client = self.witness.clients[cluster]
            about = found[0]["metadata"]
            obj = await client.resource("apps", "v1", "deployments").get(about["name"], about["namespace"])
            if not obj.get("status", {}).get("availableReplicas"):
                self.moves.append(f"{name} left although it is not available in {cluster}: {obj.get('status')}")
        gone.set()
        self.witness.wake()

    # load

    @asynccontextmanager
    async def load(self, names: Sequence[str], region: str) -> AsyncIterator[ChangeLoad]:
        """Change one app after the other until the block ends; each change is acknowledged before the next."""
        running = asyncio.create_task(self._change(names, region), name="load")
        try:
            yield self.said
            assert not running.done(), running.exception()
        finally:
            await cancel_all(running)

    async def _change(self, names: Sequence[str], region: str) -> None:
        while True:
            for name in names:
                await self.change(name, region)
                await asyncio.sleep(_PACE_S)

    async def change(self, name: str, region: str) -> None:
        number = self.said.changes = self.said.changes + 1
        document = app(name, {region: 1}, marker=str(number), placement={"spread": "apart"})
        ask = asyncio.to_thread(self.fleet.api.until_acknowledged, "PUT", app_path(name), document)
        self.said.attempts += await asyncio.shield(asyncio.ensure_future(ask))
        self.said.acknowledged[name] = number
        TALLY.checked += 1

    async def check(self, names: Sequence[str], *, timeout_s: float = 60.0) -> None:
        """Assert that the clusters have the last acknowledged changes and that nothing desired was deleted."""
        rows = await self.witness.settled(timeout_s=timeout_s)
        self.witness.assert_nothing_wanted_was_deleted(rows)
        for name in names:
            shown = await asyncio.to_thread(self.fleet.api.get, app_path(name))
            desired = int(shown["spec"]["topology"][0]["overrides"]["env"]["MARKER"])
            await self.witness.until(partial(self._is_alone, name, desired), what=f"{name} at {desired}")
            assert desired >= self.said.acknowledged[name], f"{name}: an acknowledged change was lost"
        assert not self.moves, self.moves

    def _is_alone(self, name: str, desired: int) -> bool:
        """Whether the newest revision has replaced all others."""
        live = [obj for cluster in self.fleet.clusters for obj in self.witness.of_app(name, cluster)]
        return [int(marker_of(obj)) for obj in live] == [desired]


@asynccontextmanager
async def broken_fleet(folder: Path, clusters: Mapping[str, str], **start: Any) -> AsyncIterator[BrokenFleet]:
    """Start a fleet with an agent in each cluster and a proxy at every hop."""
    async with AsyncExitStack() as stack:
        postgres = stack.enter_context(postgres_server())
        database = await stack.enter_async_context(SocketProxy(postgres.socket))
        fleet = stack.enter_context(LocalFleet(folder, database=postgres.url(host=database.folder)))
        await asyncio.to_thread(lambda: fleet.start(clusters, **start))
        links: dict[str, list[FaultProxy]] = {"control-database": [database], "agent-control": [], "agent-cluster": []}
        for name, cluster in fleet.clusters.items():
            control = await stack.enter_async_context(TcpProxy(fleet.control_port))
            api = await stack.enter_async_context(TcpProxy(cluster.port))
            links["agent-control"].append(control)
            links["agent-cluster"].append(api)
            fleet.agents[name, "default"] = await asyncio.to_thread(
                partial(fleet.new_agent, name, port=control.port, api_port=api.port)
            )
        await asyncio.gather(*(asyncio.to_thread(agent.start) for agent in fleet.agents.values()))
        async with FleetRecorder(fleet) as witness:
            yield BrokenFleet(fleet, witness, postgres, links)
