"""An API server, an edge and the manager as three processes, each of which can be killed and started again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import orjson

from shoal.app.ports import any_free
from shoal.base.clock import RealClock
from shoal.base.files import write_private
from shoal.base.ids import Ids
from shoal.client import Client, ResourceType, TransportError, connect, load
from shoal.errors import ApiError
from shoal.navigator.edge.reporting import row_of
from shoal.navigator.edge.rows import key_of
from shoal.navigator.manager.sqlite import SqliteRows
from shoal.navigator.manager.tokens import EDGE, NavigatorTokens
from shoal.navigator.model import KINDS
from shoal.testing import istio
from shoal.testing.managers import ManagerProcess
from shoal.testing.navigator import EdgeProcess
from shoal.testing.servers import ServerProcess, start_server_process
from shoal.testing.waiting import eventually

COMPARED = ("pods", "services", "deployments", "namespaces", "virtualservices", "destinationrules")
SETTINGS = {
    "KUBERNETES__RETRY_BASE_S": "0.1", "KUBERNETES__RETRY_CAP_S": "0.5", "CONNECTION__RETRY_BASE_S": "0.1", "CONNECTION__RETRY_CAP_S": "0.5", "CONNECTION__STANDBY_S": "0.1",
    "SYNC__INTERVAL_S": "2", "SYNC__MIN_INTERVAL_S": "1", "SYNC__MAX_INTERVAL_S": "2", "DISCOVERY_S": "0.5",
    "CONNECTION__KEEP_ALIVE_S": "2", "CONNECTION__KEEP_ALIVE_TIMEOUT_S": "10",
}  # fmt: skip


class Processes:
    def __init__(self, folder: Path, *, edge_name: str = "") -> None:
        self.folder = folder
        for name in ("cluster", "manager"):
            (folder / name).mkdir()
        self._cluster_flags = ("--port", str(any_free("127.0.0.1")))
        self.server: ServerProcess | None = None
        self.manager = ManagerProcess(folder / "manager", "--port", str(any_free("127.0.0.1")), "--grace", "0.5")
        self.edge = EdgeProcess(
            folder, folder / "join.json", str(folder / "cluster" / "kubeconfig"), name=edge_name, **SETTINGS
        )

    async def start(self) -> None:
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda start: start(), (self.start_server, self.manager.start)))
        join = {
            "url": self.manager.url, "token": await self._token(), "cluster": "east", "region": "eu",
            "ca": self.manager.ca.decode(),
        }  # fmt: skip
        write_private(self.folder / "join.json", orjson.dumps(join))
        self.edge.start()

    async def _token(self) -> str:
        """As a command makes it, without the time that a command takes."""
        rows = SqliteRows(self.folder / "manager" / "navigator.db")
        await rows.open(manager=False)
        try:
            text, _ = await NavigatorTokens(rows, clock=RealClock(), new_id=Ids().new_uid).create(
                kind=EDGE, cluster="east"
            )
            return text
        finally:
            await rows.close()

    def start_server(self) -> None:
        self.server = start_server_process(self.folder / "cluster", *self._cluster_flags)

    def stop(self) -> None:
        self.edge.kill()
        self.manager.kill()
        self.kill_server()

    def kill_server(self) -> None:
        if self.server is not None:
            self.server.kill()
            self.server = None

    @property
    def victims(self) -> dict[str, tuple[Callable[[], None], Callable[[], None]]]:
        """What can be killed, and how it comes back."""
        return {
            "edge": (self.edge.kill, self.edge.start),
            "manager": (self.manager.kill, self.manager.start),
            "server": (self.kill_server, self.start_server),
        }

    def client(self) -> Any:
        return connect(load(self.folder / "cluster" / "kubeconfig"), clock=RealClock())

    async def converged(self, *, timeout_s: float = 60.0) -> None:
        """The manager's rows are exactly what the cluster has."""

        async def differences() -> dict[str, Any]:
            async with self.client() as client:
                wanted = await rows_of(client)
            held = await self.held()
            return {
                kind: sorted({*wanted[kind].items()} ^ {*held.get(kind, {}).items()})[:4]
                for kind in COMPARED
                if wanted[kind] != held.get(kind, {})
            }

        await eventually(
            differences, until=lambda found: not found, timeout_s=timeout_s, every_s=0.1,
            retry_on=(ApiError, TransportError), explain=self._edge_status,
        )  # fmt: skip

    def _edge_status(self) -> str:
        try:
            return f"the edge says {self.edge.ask('/status')[1].decode()}"
        except OSError as error:
            return f"the edge does not answer: {error}"

    async def held(self) -> dict[str, dict[str, bytes]]:
        rows = SqliteRows(self.folder / "manager" / "navigator.db")
        await rows.open(manager=False)
        found: dict[str, dict[str, bytes]] = {}
        try:
            async for piece in rows.load():
                for row in piece:
                    found.setdefault(row.kind, {})[row.key] = row.data
        finally:
            await rows.close()
        return found


async def rows_of(client: Client) -> dict[str, dict[str, bytes]]:
    """What an edge should report, by asking the server."""
    found: dict[str, dict[str, bytes]] = {}
    for name in COMPARED:
        kind = KINDS[name]
        version = kind.versions[0]
        listed = await client.of(ResourceType(kind.group, version, name, kind.namespaced, kind.kind)).list()
        found[name] = {
            key_of(item["metadata"].get("namespace") or "", item["metadata"]["name"]): canonical(
                row_of(kind, version, item)
            )
            for item in listed.items
        }
    return found


def canonical(data: bytes) -> bytes:
    return orjson.dumps(orjson.loads(data), option=orjson.OPT_SORT_KEYS)


async def fill(client: Client) -> None:
    routing = [kind for kind in istio.istio_kinds() if kind.name in COMPARED]
    shop = [obj for obj in istio.shop() if "istio.io" not in obj["apiVersion"] or _plural(obj) in COMPARED]
    await istio.create(client, *istio.istio_crds(routing), *shop)
    await istio.create(client, *(istio.pod("shop", "front", "v1", at) for at in range(20)))


def _plural(obj: dict[str, Any]) -> str:
    return next(kind.name for kind in KINDS.values() if kind.kind == obj["kind"] and kind.istio)


class Writer:
    """Changes pods and VirtualServices all the time, also while the API server is down."""

    def __init__(self, processes: Processes, random: Callable[[], float]) -> None:
        self._processes = processes
        self._random = random
        self.written = 0
        self._error: Exception | None = None

    async def run(self) -> None:
        async with self._processes.client() as client:
            while True:
                try:
                    await self._write(client)
                    self.written += 1
                except (ApiError, TransportError) as error:
                    self._error = error
                    await asyncio.sleep(0.05)
                except Exception as error:
                    self._error = error
                    raise
                await asyncio.sleep(0.005)

    async def progressed(self, writes: int) -> None:
        """Wait until so many more writes were acknowledged."""
        target = self.written + writes
        await eventually(
            lambda: self.written >= target, timeout_s=60, what=f"{writes} writes", explain=lambda: repr(self._error)
        )

    async def _write(self, client: Client) -> None:
        at = int(self._random() * 40)
        what = self._random()
        if what < 0.6:
            await istio.create(client, istio.pod("shop", "front", f"v{int(self._random() * 3)}", at))
        elif what < 0.8:
            pods = client.resource("", "v1", "pods")
            await pods.delete(f"front-v{int(self._random() * 3)}-{at}", "shop", grace_period_s=0)
        else:
            spec = {"hosts": [f"host-{at}"], "weight": int(self._random() * 1000)}
            await istio.create(client, istio.resource("virtualservices", "shop", f"r{at % 7}", spec))
