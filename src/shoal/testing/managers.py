"""The navigator's manager in this process or as a process, and simulated edges that need no cluster.

    async with running_manager(tmp_path) as running:
        async with running.edge("east") as edge:              # claims the cluster
            await edge.sync("pods", {"default/web": b"{…}"})   # sends the kind whole; returns when stored
            await edge.change("pods", {"default/web": None})   # sends a delta
        running.manager.view.rows("pods")

    with manager_process(tmp_path) as process:                # a process that can be killed and started again
        ...

Streams are real, over TLS on loopback. The module also has builders of single messages.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pyqwest
from connectrpc.errors import ConnectError
from protobuf import Oneof

from shoal.app.pki import Pki
from shoal.base.asgi import Tls, serving
from shoal.base.clock import Clock, RealClock
from shoal.base.files import write_private
from shoal.base.ids import Ids
from shoal.base.metrics import Metrics
from shoal.base.tasks import cancel_all
from shoal.navigator.digest import KindDigest, fingerprint
from shoal.navigator.manager.config import ManagerConfig
from shoal.navigator.manager.rows import Rows
from shoal.navigator.manager.sqlite import SqliteRows
from shoal.navigator.manager.tokens import EDGE
from shoal.navigator.manager.wiring import Manager
from shoal.wire.navigator.v1 import navigator_pb as pb
from shoal.wire.navigator.v1.navigator_connect import ManagerServiceClient

QUICK = ManagerConfig(guard_s=0.05, grace_s=0.3, heard_every_s=0.2)
_WAIT_S = 60.0

# messages


def identification(cluster: str = "east", edge: str = "e1", **more: Any) -> pb.EdgeMessage:
    fields: dict[str, Any] = {"kinds": ["pods", "services"], "interval_seconds": 30.0, "software": "test"} | more
    body: Any = Oneof("identification", pb.Identification(cluster=cluster, **fields))
    return pb.EdgeMessage(edge=edge, body=body)


def edge_message(field: str, body: object, *, sequence: int, epoch: int = 1, edge: str = "e1") -> pb.EdgeMessage:
    said: Any = Oneof(field, body)
    return pb.EdgeMessage(edge=edge, epoch=epoch, sequence=sequence, body=said)


def digest_of(kind: str, rows: Mapping[str, bytes]) -> pb.KindDigest:
    made = KindDigest()
    for key, data in rows.items():
        made.add(fingerprint(kind, key, data))
    return pb.KindDigest(kind=kind, count=made.count, digest=made.value)


def transfer(kind: str, rows: Mapping[str, bytes], *, sync: int, chunk_rows: int = 2) -> list[pb.ClusterState]:
    """The chunks that send a kind whole."""
    items = list(rows.items())
    pieces = [items[start : start + chunk_rows] for start in range(0, len(items), chunk_rows)] or [[]]
    return [
        pb.ClusterState(
            kind=kind,
            sync=sync,
            chunk=number,
            last=number == len(pieces) - 1,
            rows=[pb.Row(kind=kind, key=key, data=data) for key, data in piece],
            digest=digest_of(kind, rows) if number == len(pieces) - 1 else None,
        )
        for number, piece in enumerate(pieces)
    ]


def change_put(kind: str, key: str, data: bytes) -> pb.Change:
    said: Any = Oneof("put", pb.Row(kind=kind, key=key, data=data))
    return pb.Change(change=said)


def change_remove(kind: str, key: str) -> pb.Change:
    said: Any = Oneof("remove", pb.RowKey(kind=kind, key=key))
    return pb.Change(change=said)


def cluster_delta(changes: Sequence[pb.Change], digests: Sequence[pb.KindDigest] = (), **more: Any) -> pb.ClusterDelta:
    return pb.ClusterDelta(changes=list(changes), digests=list(digests), **more)


# an edge


@dataclass(slots=True, eq=False)
class SimulatedEdge:
    """An edge with one stream. ``rows`` are the rows of its cluster; messages of the manager are kept by type."""

    client: ManagerServiceClient
    token: str
    cluster: str
    name: str = "e1"
    kinds: Sequence[str] = ("pods", "services")
    interval_s: float = 30.0
    rows: dict[str, dict[str, bytes]] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)
    epoch: int = 0
    sequence: int = 0
    acknowledged: int = 0
    syncs: int = 0
    silent: bool = False  # does not answer keep-alives
    identify: bool = True
    accepted: pb.Accepted | None = None
    rejected: pb.Rejected | None = None
    ended: bool = False
    resyncs: list[str] = field(default_factory=list)
    requests: list[pb.Request] = field(default_factory=list)
    cancels: list[str] = field(default_factory=list)
    options: list[pb.Options] = field(default_factory=list)
    _outgoing: asyncio.Queue[pb.EdgeMessage | None] = field(default_factory=asyncio.Queue)
    _news: asyncio.Event = field(default_factory=asyncio.Event)
    _task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Claim the cluster; return when the manager has answered."""
        if self.identify:
            self._outgoing.put_nowait(
                identification(
                    self.cluster,
                    self.name,
                    kinds=list(self.kinds),
                    interval_seconds=self.interval_s,
                    metadata=dict(self.metadata),
                )
            )
        self._task = asyncio.create_task(self._receive(), name=f"simulated-edge/{self.cluster}")
        await self.until(lambda: self.accepted is not None or self.rejected is not None or self.ended)

    async def close(self) -> None:
        """Break the stream, as the end of the process would."""
        if self._task is not None:
            await cancel_all(self._task)
        self.ended = True

    def send(self, field_name: str, body: object) -> int:
        """Queue a message with the next sequence number, and return that number."""
        self.sequence += 1
        self._outgoing.put_nowait(
            edge_message(field_name, body, sequence=self.sequence, epoch=self.epoch, edge=self.name)
        )
        return self.sequence

    def send_raw(self, message: pb.EdgeMessage) -> None:
        self._outgoing.put_nowait(message)

    async def sync(self, kind: str, rows: Mapping[str, bytes] | None = None, *, chunk_rows: int = 500) -> None:
        """Send a kind whole and wait until the manager has stored it."""
        if rows is not None:
            self.rows[kind] = dict(rows)
        self.syncs += 1
        last = 0
        for chunk in transfer(kind, self.rows.get(kind, {}), sync=self.syncs, chunk_rows=chunk_rows):
            last = self.send("state", chunk)
        await self.stored(last)

    async def change(self, kind: str, changes: Mapping[str, bytes | None]) -> None:
        """Send changed rows (None removes a row) and wait until the manager has stored them."""
        await self.stored(self.send("delta", self.delta(kind, changes)))

    def delta(self, kind: str, changes: Mapping[str, bytes | None]) -> pb.ClusterDelta:
        rows = self.rows.setdefault(kind, {})
        said = []
        for key, data in changes.items():
            if data is None:
                rows.pop(key, None)
                said.append(change_remove(kind, key))
            else:
                rows[key] = data
                said.append(change_put(kind, key, data))
        return cluster_delta(said, [digest_of(kind, rows)])

    async def verify(self) -> None:
        digests = [digest_of(kind, self.rows.get(kind, {})) for kind in self.kinds]
        await self.stored(self.send("verification", pb.Verification(digests=digests)))

    async def stored(self, sequence: int) -> None:
        await self.until(lambda: self.acknowledged >= sequence or self.ended)
        if self.acknowledged < sequence:
            raise ConnectionError(f"the stream of {self.name} ended: {self.rejected}")

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(_WAIT_S):
            while not holds():
                self._news.clear()
                await self._news.wait()

    async def _receive(self) -> None:
        headers = {"authorization": f"Bearer {self.token}"}
        answers = self.client.connect(self._messages(), headers=headers)
        try:
            async for message in answers:
                self._take(message)
        except ConnectError:
            pass
        finally:
            self.ended = True
            self._outgoing.put_nowait(None)
            self._news.set()
            close = getattr(answers, "aclose", None)
            if close is not None:
                with suppress(ConnectError):
                    await close()

    def _take(self, message: pb.ManagerMessage) -> None:
        said = message.body
        assert said is not None
        match said.field:
            case "accepted":
                self.accepted, self.epoch = said.value, said.value.epoch
            case "rejected":
                self.rejected = said.value
            case "received":
                self.acknowledged = said.value.sequence
            case "resync":
                self.resyncs += said.value.kinds
            case "request":
                self.requests.append(said.value)
            case "cancel":
                self.cancels.append(said.value.id)
            case "options":
                self.options.append(said.value)
            case "keep_alive":
                if not self.silent:
                    self.send("keep_alive", said.value)
        self._news.set()

    async def _messages(self) -> AsyncIterator[pb.EdgeMessage]:
        while (message := await self._outgoing.get()) is not None:
            yield message


# a manager


def edge_client(url: str, ca: bytes, closing: AsyncExitStack) -> ManagerServiceClient:
    """A client with its own connection, closed with ``closing``."""
    transport = pyqwest.HTTPTransport(tls_ca_cert=ca, http_version=pyqwest.HTTPVersion.HTTP2)
    closing.push_async_callback(transport.aclose)
    return ManagerServiceClient(url, http_client=pyqwest.Client(transport))


@dataclass(slots=True, eq=False)
class RunningManager:
    manager: Manager
    port: int
    ca: bytes
    _clients: AsyncExitStack

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    async def token(self, cluster: str) -> str:
        text, _ = await self.manager.tokens.create(kind=EDGE, cluster=cluster)
        return text

    async def join_file(self, folder: Path, cluster: str = "east", **more: str) -> Path:
        """Write a join file for an edge of ``cluster``."""
        path = folder / f"{cluster}.json"
        content = {"url": self.url, "token": await self.token(cluster), "cluster": cluster, "ca": self.ca.decode()}
        write_private(path, orjson.dumps(content | more))
        return path

    async def new_edge(self, cluster: str, name: str = "e1", *, token: str = "", **more: Any) -> SimulatedEdge:
        """An edge whose stream is not open."""
        return SimulatedEdge(
            edge_client(self.url, self.ca, self._clients), token or await self.token(cluster), cluster, name, **more
        )

    @asynccontextmanager
    async def edge(self, cluster: str, name: str = "e1", **more: Any) -> AsyncIterator[SimulatedEdge]:
        edge = await self.new_edge(cluster, name, **more)
        await edge.open()
        try:
            yield edge
        finally:
            await edge.close()


@asynccontextmanager
async def running_manager(
    folder: Path,
    *,
    config: ManagerConfig = QUICK,
    clock: Clock | None = None,
    rows: Rows | None = None,
    port: int = 0,
) -> AsyncIterator[RunningManager]:
    """Run a manager. ``clock`` is the manager's; its sockets use real time. The data stay in ``folder``."""
    from shoal.app.ports import any_free

    pki = Pki(folder / "pki", now=datetime.now(UTC))
    keys = pki.ensure_server(("127.0.0.1", "localhost"))
    port = port or any_free("127.0.0.1")
    clock = clock or RealClock()
    manager = Manager(
        rows or SqliteRows(folder / "navigator.db"), clock=clock, new_id=Ids().new_uid, config=config,
        metrics=Metrics(),
    )  # fmt: skip
    await manager.open()
    running = asyncio.create_task(manager.run(), name="running-manager")
    try:
        async with (
            serving(manager.app, host="127.0.0.1", port=port, clock=RealClock(), tls=Tls(keys.cert, keys.key)),
            AsyncExitStack() as clients,
        ):
            try:
                yield RunningManager(manager, port, pki.ca_cert.read_bytes(), clients)
            finally:
                await cancel_all(running)
    finally:
        await cancel_all(running)
        await manager.close()


# a manager as a process

COMMAND = (sys.executable, "-c", "from shoal.app.commands.navigator import app; app()")
_START_S = 60.0


class ManagerProcess:
    """``shoal navigator manager`` with its data in a folder."""

    def __init__(self, folder: Path, *flags: str) -> None:
        self.folder = folder
        self._flags = flags
        self._process: subprocess.Popen[str] | None = None
        self.url = ""

    def start(self) -> None:
        """Start it; return when it is ready."""
        with (self.folder / "manager.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*COMMAND, "manager", "--dir", str(self.folder), "--stop-on-eof", *self._flags],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
            )  # fmt: skip
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.startswith("ready "):
            self.kill()
            raise RuntimeError(f"the manager did not start:\n{(self.folder / 'manager.log').read_text()[-4000:]}")
        self.url = line.removeprefix("ready ").strip()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def ca(self) -> bytes:
        return (self.folder / "pki" / "ca.crt").read_bytes()

    @property
    def admin_token(self) -> str:
        return (self.folder / "admin.token").read_text().strip()

    def kill(self) -> None:
        """End it with SIGKILL."""
        self._end(lambda process: process.kill())

    def stop(self) -> int:
        """Stop it with SIGTERM; returns its exit code."""
        return self._end(lambda process: process.terminate())

    def token(self, *arguments: str) -> str:
        """Run ``shoal navigator token``; returns its output."""
        command = [*COMMAND, "token", *arguments, "--dir", str(self.folder)]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=_START_S).stdout

    def _end(self, how: Callable[[subprocess.Popen[str]], None]) -> int:
        process, self._process = self._process, None
        if process is None:
            return 0
        how(process)
        process.communicate(timeout=_START_S)
        return process.returncode


@contextmanager
def manager_process(folder: Path, *flags: str) -> Iterator[ManagerProcess]:
    """Start a manager; it is killed at the end of the block."""
    process = ManagerProcess(folder, *flags)
    process.start()
    try:
        yield process
    finally:
        process.kill()
