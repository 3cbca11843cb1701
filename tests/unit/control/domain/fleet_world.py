"""A fleet for tests: a database, the use cases, and agents that are played by hand."""

from __future__ import annotations

import asyncio
import atexit
import json
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import delete, select

from shoal.base.clock import FakeClock
from shoal.base.ids import Ids
from shoal.control.database import tables
from shoal.control.database.engine import Databases
from shoal.control.domain import readiness
from shoal.control.domain.fleet import Fleet
from shoal.control.domain.model import Actor, ObjectRef, Sealed
from shoal.sync.keys import Place, key_of
from shoal.sync.sealing import CannotOpen
from shoal.testing.seeded import seeded_bytes

ADMIN = Actor("default", "ann", "admin")
EDITOR = Actor("default", "eve", "editor")
VIEWER = Actor("default", "vic", "viewer")


class PlainSealer:
    """Seals nothing; only for tests."""

    def __init__(self) -> None:
        self.sealed: list[dict[str, str]] = []
        self.lost = False  # the master key of before

    async def seal(self, values: dict[str, str]) -> Sealed:
        self.sealed.append(values)
        return Sealed(f"sealed {len(self.sealed)}".encode(), b"data key", "master")

    async def rewrap(self, data_key: bytes, master_key: str, public_key: bytes) -> bytes:
        return data_key

    async def wrap(self, key: bytes) -> tuple[bytes, str]:
        return self._swapped(key), f"master {self.lost}"

    async def unwrap(self, data_key: bytes, master_key: str) -> bytes:
        if master_key != f"master {self.lost}":
            raise CannotOpen("the master key is lost")
        return self._swapped(data_key)

    @staticmethod
    def _swapped(key: bytes) -> bytes:
        return bytes(255 - byte for byte in key)


def doc(kind: str, name: str, spec: dict[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    scoped = kind in ("App", "Route", "Policy", "ApiKey", "Secret", "Credential")
    place = {"project": "shop", "environment": "prod"} if scoped else {}
    if kind == "Environment":
        place = {"project": "shop"}
    return {
        "apiVersion": "shoal.dev/v1",
        "kind": kind,
        "metadata": {"name": name, **place, **metadata},
        "spec": spec or {},
    }


def an_app(name: str = "web", *, regions: tuple[str, ...] = ("eu",), replicas: int = 1, **spec: Any) -> dict[str, Any]:
    topology = [{"region": region, "replicas": replicas} for region in regions]
    return doc("App", name, {"image": "shop/web:1", "topology": topology, **spec})


def a_route(name: str = "front", app: str = "web") -> dict[str, Any]:
    """With it an environment gets gateways."""
    return doc("Route", name, {"host": f"{name}.example", "app": app})


def ref(kind: str, name: str) -> ObjectRef:
    if kind in ("App", "Route", "Policy", "ApiKey", "Secret", "Credential"):
        return ObjectRef(kind, name, "shop", "prod")
    return ObjectRef(kind, name, "shop" if kind == "Environment" else "")


class World:
    """The fleet with a project and an environment, and what the tests do to it."""

    def __init__(self, databases: Databases, clock: FakeClock, seed: int) -> None:
        self.databases = databases
        self.clock = clock
        self.sealer = PlainSealer()
        self.fleet = Fleet(databases, Ids(seeded_bytes(seed)), self.sealer)

    async def prepare(self, **clusters: tuple[str, dict[str, Any]]) -> None:
        """Regions and clusters (name → region and spec), a project and an environment."""
        for region in sorted({region for region, _ in clusters.values()}):
            await self.apply(doc("Region", region))
        for name, (region, spec) in clusters.items():
            labels = spec.pop("labels", {})
            await self.apply(doc("Cluster", name, {"region": region, **spec}, labels=labels))
        await self.apply(doc("Project", "shop"))
        await self.apply(doc("Environment", "prod"))

    async def apply(self, document: dict[str, Any], **options: Any) -> Any:
        return await self.fleet.apply(options.pop("who", ADMIN), document, **options)

    async def rows(self, table: Any, *where: Any) -> list[Any]:
        async with self.databases.of("default").reading() as session:
            return list(await session.scalars(select(table).where(*where)))

    async def wanted(self, kind: str = "") -> set[tuple[str, str]]:
        """(cluster's name, key) of everything that is desired somewhere."""
        names = {row.id: row.name for row in await self.rows(tables.Cluster)}
        rows = await self.rows(tables.Desired, tables.Desired.action == "apply")
        return {(names[row.cluster_id], row.key) for row in rows if not kind or row.kind == kind}

    async def numbers(self) -> dict[tuple[str, str], int]:
        return {(row.cluster_id, row.key): row.number for row in await self.rows(tables.Desired)}

    async def app(self, name: str = "web") -> tables.App:
        found: tables.App = (await self.rows(tables.App, tables.App.name == name))[0]
        return found

    async def deployment(self, name: str = "web") -> tables.Deployment:
        app = await self.app(name)
        found: tables.Deployment = (await self.rows(tables.Deployment, tables.Deployment.id == app.deployment_id))[0]
        return found

    async def topology(self, name: str = "web") -> list[tables.Topology]:
        deployment = await self.deployment(name)
        return await self.rows(tables.Topology, tables.Topology.deployment_id == deployment.id)

    async def join(self, cluster: str, shard: str = "default", *, lost: bool = False) -> None:
        place = Place((await self.rows(tables.Cluster, tables.Cluster.name == cluster))[0].id, shard)
        async with self.databases.fleet.transaction() as tx:
            agent = await tx.session.get(tables.Agent, (place.cluster, shard))
            if agent is None:
                agent = tables.Agent(
                    cluster_id=place.cluster, shard=shard, agent=f"{cluster}-{shard}", epoch=1, public_key=b"k",
                    joined_at=tx.now, last_heartbeat_at=tx.now, state=None,
                )  # fmt: skip
                tx.session.add(agent)
            agent.lost = lost

    async def report(
        self,
        deployment_id: str,
        *,
        only: str = "",
        shard: str = "",
        ready: bool = True,
        count: int | None = None,
        applied: bool = True,
        **fields: Any,
    ) -> None:
        """An agent has applied a deployment wherever it is wanted (or on one cluster, or shard) and its instances
        run."""
        clusters = {row.id: row for row in await self.rows(tables.Cluster)}
        async with self.databases.of("default").transaction(serial=False) as tx:
            wanted = await tx.session.scalars(
                select(tables.Desired).where(
                    tables.Desired.object_id == deployment_id, tables.Desired.action == "apply"
                )
            )
            for row in list(wanted):
                if only not in ("", clusters[row.cluster_id].name) or shard not in ("", row.shard):
                    continue
                if applied:
                    row.applied_number, row.applied_at = row.number, tx.now
                await self._instances(tx, row, clusters[row.cluster_id].region_id, ready, count, fields)
            await tx.session.flush()
            await readiness.after_report(tx, {deployment_id})

    async def _instances(
        self, tx: Any, row: tables.Desired, region_id: str, ready: bool, count: int | None, fields: dict[str, Any]
    ) -> None:
        topology = await tx.session.scalar(
            select(tables.Topology).where(
                tables.Topology.deployment_id == row.object_id,
                tables.Topology.cluster_id == row.cluster_id,
                tables.Topology.shard == row.shard,
            )
        )
        await tx.session.execute(
            delete(tables.Instance).where(
                tables.Instance.cluster_id == row.cluster_id,
                tables.Instance.shard == row.shard,
                tables.Instance.deployment_id == row.object_id,
            )
        )
        wanted = topology.replicas if topology.desired_status != "stopped" else 0
        for number in range(wanted if count is None else count):
            values = {"status": "running" if ready else "pending", "ready": ready, "restarts": 0, **fields}
            tx.session.add(
                tables.Instance(
                    cluster_id=row.cluster_id,
                    uid=f"{row.object_id}-{row.shard}-{number}",
                    workspace_id="default",
                    deployment_id=row.object_id,
                    region_id=region_id,
                    shard=row.shard,
                    name=f"pod-{number}",
                    reported_at=tx.now,
                    **values,
                )  # fmt: skip
            )

    async def report_app(self, name: str = "web", **options: Any) -> str:
        """The newest revision of an app is reported; returns its id."""
        deployment = await self.deployment(name)
        await self.report(deployment.id, **options)
        return deployment.id

    async def report_config(self, *kinds: str) -> None:
        """Agents have applied everything of these kinds."""
        async with self.databases.of("default").transaction() as tx:
            rows = list(await tx.session.scalars(select(tables.Desired).where(tables.Desired.kind.in_(kinds))))
            for row in rows:
                row.applied_number = row.number
            await tx.session.flush()
            await readiness.after_sentinel_report(tx, {row.key for row in rows if row.action == "apply"})

    async def report_sentinel(self, sentinel_id: str, **observed: Any) -> None:
        async with self.databases.of("default").transaction() as tx:
            key = key_of("sentinel", sentinel_id)
            rows = await tx.session.scalars(
                select(tables.Desired).where(tables.Desired.key == key, tables.Desired.action == "apply")
            )
            for row in rows:
                row.applied_number, row.observed = row.number, observed
            await tx.session.flush()
            await readiness.after_sentinel_report(tx, {key})


@asynccontextmanager
async def a_world(
    urls: dict[str, str], workspaces: dict[str, str] | None = None, seed: int = 1
) -> AsyncIterator[World]:
    clock = FakeClock()
    databases = await Databases.open(urls, clock=clock, ids=Ids(), workspaces=workspaces)
    try:
        yield World(databases, clock, seed)
    finally:
        await databases.close()


Clusters = dict[str, tuple[str, dict[str, Any]]]
DEFAULT: Clusters = {"eu1": ("eu", {}), "us1": ("us", {})}


@asynccontextmanager
async def a_fleet(
    tmp_path: Path,
    *,
    url: str = "",
    clusters: Clusters | None = None,
) -> AsyncIterator[World]:
    """A fleet of the test's own: regions eu (cluster eu1) and us (cluster us1), unless it names others."""
    known = clusters or DEFAULT
    if not url:
        shutil.copy(await _prepared(known), tmp_path / "fleet.db")
    async with asyncio.timeout(60):
        async with a_world({"main": url or f"sqlite:///{tmp_path}/fleet.db"}) as world:
            if url:
                await world.prepare(**known)
            yield world


_made: dict[str, Path] = {}


async def _prepared(clusters: Clusters) -> Path:
    """A database with regions, clusters, a project and an environment: copying it is faster than making them."""
    wanted = json.dumps(clusters)
    if wanted not in _made:
        _made[wanted] = await _make(clusters)
    return _made[wanted]


async def _make(clusters: Clusters) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="shoal-fleet-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    async with a_world({"main": f"sqlite:///{folder}/fleet.db"}, seed=2) as world:
        await world.prepare(**clusters)
    return folder / "fleet.db"
