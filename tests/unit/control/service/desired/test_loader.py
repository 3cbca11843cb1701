"""The loader of desired state: what it shows of routes, when it asks for keys, and what it may forget."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from sqlalchemy import select

from shoal.base.clock import FakeClock
from shoal.base.ids import Ids
from shoal.base.metrics import Metrics
from shoal.base.tasks import cancel_all
from shoal.control.database import tables
from shoal.control.database.engine import Database, Databases
from shoal.control.domain.fleet import Fleet
from shoal.control.domain.model import Actor, Sealed
from shoal.control.service.desired import loader
from shoal.control.service.desired.directory import AgentFacts, Directory
from shoal.control.service.desired.index import DesiredEntry, DesiredIndex
from shoal.control.service.desired.loader import Loader, Result
from shoal.control.service.desired.model import Failure, Loaded
from shoal.control.service.metrics import ServiceMetrics
from shoal.sync.keys import Place, StreamKind
from shoal.wire.fleet.v1 import cluster_pb as pb

ADMIN = Actor("default", "ann", "admin")


class OpenReads:
    """Counts the blocks in which a database is being read."""

    def __init__(self, database: Database) -> None:
        self.count = 0
        database.moment = self._counted(database.moment)  # type: ignore[method-assign]
        database.reading = self._counted(database.reading)  # type: ignore[method-assign]

    def _counted(self, block: Callable[[], AbstractAsyncContextManager[Any]]) -> Any:
        @asynccontextmanager
        async def counted() -> AsyncIterator[Any]:
            async with block() as found:
                self.count += 1
                try:
                    yield found
                finally:
                    self.count -= 1

        return counted


class Keys:
    """Notes how many blocks of the database are open while keys are asked for."""

    def __init__(self, reads: OpenReads) -> None:
        self.reads = reads
        self.open: list[int] = []
        self.meanwhile: Callable[[], None] = lambda: None

    async def seal(self, values: dict[str, str]) -> Sealed:
        return Sealed(b"sealed", b"data key", "master")

    async def rewrap(self, data_key: bytes, master_key: str, public_key: bytes) -> bytes:
        self.open.append(self.reads.count)
        self.meanwhile()
        return public_key[:1] + data_key

    async def wrap(self, key: bytes) -> tuple[bytes, str]:
        return key, "master"

    async def unwrap(self, data_key: bytes, master_key: str) -> bytes:
        return data_key


class Bench:
    def __init__(self, databases: Databases, clock: FakeClock) -> None:
        self.databases = databases
        self.keys = Keys(OpenReads(databases.fleet))
        self.fleet = Fleet(databases, Ids(), self.keys)
        self.index = DesiredIndex({databases.fleet.name: databases.fleet.signing_key})
        self.directory = Directory(databases, clock)
        self.loader = Loader(
            databases, self.index, self.directory, self.keys, ServiceMetrics(Metrics()), cache_bytes=1 << 20
        )

    async def load(self, place: Place, key: str) -> dict[str, Result]:
        answer: asyncio.Future[dict[str, Result]] = asyncio.get_running_loop().create_future()
        found = self.loader.request(place, [key], answer.set_result)
        return await answer if found is None else found

    async def apply(self, kind: str, name: str, spec: dict[str, Any] | None = None) -> None:
        within: dict[str, str] = {}
        if kind not in ("Region", "Cluster", "Project"):
            within = {"project": "shop"} | ({} if kind == "Environment" else {"environment": "prod"})
        doc = {"apiVersion": "shoal.dev/v1", "kind": kind, "metadata": {"name": name, **within}, "spec": spec or {}}
        await self.fleet.apply(ADMIN, doc)

    async def prepare(self) -> Place:
        await self.apply("Region", "eu")
        await self.apply("Cluster", "eu1", {"region": "eu"})
        await self.apply("Project", "shop")
        await self.apply("Environment", "prod")
        await self.apply("Secret", "passwords", {"values": {"A": "b"}})
        await self.apply(
            "App", "web", {"image": "w:1", "port": 9000, "secrets": ["passwords"], "topology": [{"region": "eu"}]}
        )
        self.index.moved(self.databases.fleet.name, await self.databases.fleet.position())
        return Place((await self.one(tables.Cluster)).id, "default")

    async def one(self, table: Any) -> Any:
        async with self.databases.fleet.reading() as session:
            return (await session.scalars(select(table))).one()


@asynccontextmanager
async def a_bench(path: Path) -> AsyncIterator[Bench]:
    clock = FakeClock()
    databases = await Databases.open({"main": f"sqlite:///{path}/fleet.db"}, clock=clock, ids=Ids())
    bench = Bench(databases, clock)
    running = asyncio.create_task(bench.loader.run())
    try:
        yield bench
    finally:
        await cancel_all(running)
        await databases.close()


@asynccontextmanager
async def bounded_bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with asyncio.timeout(60):
        async with a_bench(tmp_path) as bench:
            yield bench


async def test_a_route_is_sent_with_the_deployment_that_serves_its_app(tmp_path: Path) -> None:
    async with bounded_bench(tmp_path) as bench:
        place = await bench.prepare()
        await bench.apply("Route", "front", {"host": "a.example", "app": "web"})
        route, deployment = await bench.one(tables.Route), await bench.one(tables.Deployment)
        async with bench.databases.fleet.transaction() as tx:
            for row in await tx.session.scalars(select(tables.Topology)):
                row.weight = row.routed = 100
            await tx.want(place, f"route/{route.id}", workspace_id="default", namespace="sentinel", name="front-x")
        item = await bench.loader.item(place, f"route/{route.id}")
        assert item is not None and item.action is not None and isinstance(item.action.value, pb.CustomState)
        spec = orjson.loads(item.action.value.spec)
        assert spec["environment"] == route.environment_id and "app" not in spec
        assert [(one["deployment"], one["service"], one["port"]) for one in spec["backends"]] == [
            (deployment.id, deployment.k8s_name, 9000)
        ]


async def test_keys_are_asked_for_while_no_connection_of_the_database_waits_for_them(tmp_path: Path) -> None:
    async with bounded_bench(tmp_path) as bench:
        place = await bench.prepare()
        bench.directory.saw_agent(place, AgentFacts(1, "a1", b"k" * 32, 0, ""))
        deployment = await bench.one(tables.Deployment)
        item = await bench.loader.item(place, f"deployment/{deployment.id}")
        assert item is not None and item.action is not None and isinstance(item.action.value, pb.DeploymentState)
        assert [secret.wrapped_key for secret in item.action.value.secrets] == [b"kdata key"]
        assert bench.keys.open == [0]


async def test_an_object_that_is_made_while_it_is_looked_for_is_not_forgotten(tmp_path: Path) -> None:
    async with bounded_bench(tmp_path) as bench:
        place = await bench.prepare()
        made = DesiredEntry("main", 99, "apply", False)

        moment = bench.databases.fleet.moment

        @asynccontextmanager
        async def read_too_early() -> AsyncIterator[Any]:
            async with moment() as ask:
                yield ask
            bench.index.put(place, StreamKind.DEPLOYMENTS, "deployment/new", made)

        bench.databases.fleet.moment = read_too_early  # type: ignore[method-assign]
        found = await bench.load(place, "deployment/new")
        assert found == {"deployment/new": Failure.LATER}
        assert bench.index.of(place, StreamKind.DEPLOYMENTS).entries["deployment/new"] is made


async def test_an_agent_that_takes_over_is_not_sent_what_was_wrapped_for_the_one_before(tmp_path: Path) -> None:
    async with bounded_bench(tmp_path) as bench:
        place = await bench.prepare()
        bench.directory.saw_agent(place, AgentFacts(1, "a1", b"a" * 32, 0, ""))
        bench.keys.meanwhile = lambda: bench.directory.saw_agent(place, AgentFacts(2, "b1", b"b" * 32, 0, ""))
        key = f"deployment/{(await bench.one(tables.Deployment)).id}"
        for wrapped in (b"adata key", b"bdata key"):
            loaded = (await bench.load(place, key))[key]
            assert isinstance(loaded, Loaded) and wrapped in loaded.data


async def test_a_key_that_fails_for_an_unknown_reason_is_tried_later_and_the_others_are_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with a_bench(tmp_path) as bench:
        place = await bench.prepare()
        app = f"deployment/{(await bench.one(tables.Deployment)).id}"
        read = loader.desired_rows

        async def failing(ask: Any, statements: Any, asked: list[Any]) -> Any:
            if (place, "deployment/bad") in asked:
                raise RuntimeError("a fault of this row")
            return await read(ask, statements, asked)

        monkeypatch.setattr(loader, "desired_rows", failing)
        answer: asyncio.Future[dict[str, Result]] = asyncio.get_running_loop().create_future()
        bench.loader.request(place, [app, "deployment/bad"], answer.set_result)
        async with asyncio.timeout(10):
            found = await answer
        assert isinstance(found[app], Loaded) and found["deployment/bad"] is Failure.LATER
        assert isinstance((await bench.load(place, app))[app], Loaded), "the loader goes on"
