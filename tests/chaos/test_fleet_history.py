"""The history of a whole fleet: two control planes on one PostgreSQL, four clusters in two regions, real gateways and
instances with requests at both. While one part after the other breaks, every acknowledged change must arrive, nothing
desired may be deleted, and no request that may be tried again may fail."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.chaos.rounds import ROUNDS

from shoal.base.tasks import cancel_all
from shoal.testing.databases import PostgresServer, postgres_server
from shoal.testing.faults import Faults
from shoal.testing.fleet_recorder import FleetRecorder, marker_of
from shoal.testing.fleets import Api, Balancer, LocalFleet, Process, app, app_path
from shoal.testing.load import RequestLoad, RequestOutcome
from shoal.testing.tally import TALLY
from shoal.testing.traffic import HOST, demo_app, demo_route, gateway_address
from shoal.testing.waiting import eventually

pytestmark = [pytest.mark.alone, pytest.mark.timeout(600 * ROUNDS)]

CLUSTERS = {"eu-1": "eu", "eu-2": "eu", "us-1": "us", "us-2": "us"}
REGIONS = ("eu", "us")
APPS = ("a", "b", "c")
RATE = 50.0
MIX = ("GET /", "GET /slow?ms=50")
FOR_S = 40.0 * ROUNDS
WAIT_S = 180.0
PACE_S = 1.5
run = asyncio.to_thread


@dataclass
class History:
    """The parts of the fleet, and what its users were told."""

    fleet: LocalFleet
    postgres: PostgresServer
    balancer: Balancer
    api: Api  # of users; it goes to the control plane that is there
    recorder: FleetRecorder
    faults: Faults
    acknowledged: dict[str, int] = field(default_factory=dict)
    changes: int = 0

    async def change(self, name: str) -> None:
        self.changes += 1
        number = self.changes
        document = app(name, {"eu": 1, "us": 1}, marker=str(number))
        await run(self.api.until_acknowledged, "PUT", app_path(name), document)
        self.acknowledged[name] = number
        TALLY.checked += 1

    async def keep_changing(self) -> None:
        while True:
            await self.change(self.faults.choose(APPS))
            await asyncio.sleep(PACE_S)

    def breaking(self) -> dict[str, Callable[[], Awaitable[None]]]:
        """Every fault by its name."""
        fleet = self.fleet
        found: dict[str, Callable[[], Awaitable[None]]] = {
            "agents cut off": lambda: self.faults.cut(self.balancer, for_s=self.faults.between(0.5, 3.0)),
            "agents half-open": self._half_open,
            "database restarted": lambda: run(self.postgres.restart),
        }
        processes = [*fleet.controls, *fleet.agents.values(), *(each.process for each in fleet.clusters.values())]
        for process in processes:
            found[f"{process.name} killed"] = lambda process=process: self._kill(process)
        return found

    async def _half_open(self) -> None:
        self.balancer.half_open()
        await asyncio.sleep(self.faults.between(0.5, 2.0))
        self.balancer.cut()

    async def _kill(self, process: Process) -> None:
        await run(process.kill)
        await asyncio.sleep(self.faults.between(0.0, 2.0))
        await run(process.start)

    async def ends_as_told(self) -> None:
        rows = await self.recorder.settled(timeout_s=WAIT_S)
        for name, number in self.acknowledged.items():
            shown = await run(self.api.get, app_path(name))
            wanted = {row["overrides"]["env"]["MARKER"] for row in shown["spec"]["topology"]}
            assert len(wanted) == 1 and int(*wanted) >= number, f"{name}: an acknowledged change was lost"
            await self.recorder.until(
                lambda name=name, wanted=wanted: self._alone(name) == dict.fromkeys(REGIONS, wanted),  # type: ignore[misc]
                timeout_s=WAIT_S, what=f"{name} at {wanted} alone",
            )  # fmt: skip
        rows = await self.recorder.settled(timeout_s=WAIT_S)
        self.recorder.assert_nothing_wanted_was_deleted(rows)

    def _alone(self, name: str) -> dict[str, set[str]]:
        """The revisions of an app by region."""
        found: dict[str, set[str]] = {region: set() for region in REGIONS}
        for cluster, region in CLUSTERS.items():
            found[region] |= {marker_of(obj) for obj in self.recorder.of_app(name, cluster)}
        return found


@asynccontextmanager
async def history(folder: Path, faults: Faults) -> AsyncIterator[History]:
    async with AsyncExitStack() as stack:
        postgres = stack.enter_context(postgres_server())
        fleet = stack.enter_context(LocalFleet(folder, database=postgres.url()))
        await run(lambda: fleet.start(CLUSTERS, flags=("--runtime", "process")))
        stack.callback(lambda: [each.process.stop() for each in fleet.clusters.values()])  # they end their pods
        second = await run(fleet.add_control, "second")
        balancer = await stack.enter_async_context(Balancer(fleet.control_port, second))
        places = [(cluster, "default") for cluster in CLUSTERS]
        await run(lambda: fleet.start_agents(places, port=balancer.port))
        front = await stack.enter_async_context(Balancer(fleet.control_port, second))
        api = fleet.connect(front.port)
        stack.callback(api.close)
        await run(lambda: fleet.api.apply(demo_app("v1", regions=REGIONS), demo_route()))
        recorder = await stack.enter_async_context(FleetRecorder(fleet))
        yield History(fleet, postgres, balancer, api, recorder, faults)


def failed(outcomes: list[RequestOutcome]) -> Counter[tuple[str, int, str]]:
    return Counter((one.asked, one.status, one.error) for one in outcomes if one.status != 200)


async def test_a_fleet_of_two_control_planes_and_four_clusters_keeps_every_promise(
    tmp_path: Path, faults: Faults
) -> None:
    async with history(tmp_path / "fleet", faults) as it:
        for name in APPS:
            await it.change(name)
        addresses = {region: await run(gateway_address, it.fleet.api, region) for region in REGIONS}
        with (
            RequestLoad(tmp_path / "eu", addresses["eu"], HOST, rate=RATE, mix=MIX) as eu,
            RequestLoad(tmp_path / "us", addresses["us"], HOST, rate=RATE, mix=MIX) as us,
        ):
            for load in (eu, us):
                await eventually(
                    lambda load=load: run(lambda: [one.status for one in load.outcomes()[-20:]] == [200] * 20),
                    timeout_s=WAIT_S, explain=it.fleet.logs,
                )  # fmt: skip
            since = time.monotonic()
            changing = asyncio.create_task(it.keep_changing(), name="changes")
            try:
                while time.monotonic() < since + FOR_S:
                    for name in faults.order(sorted(it.breaking())):
                        faults.story.append(f"{time.monotonic() - since:5.1f} s: {name}")
                        await it.breaking()[name]()
                        assert not changing.done(), changing.exception()
                        if time.monotonic() > since + FOR_S:
                            break
            finally:
                await cancel_all(changing)
            await it.ends_as_told()
        outcomes = [one for load in (eu, us) for one in load.outcomes() if one.started > since]
        assert not failed(outcomes)
        assert len(outcomes) > FOR_S * RATE and it.changes > len(APPS)
