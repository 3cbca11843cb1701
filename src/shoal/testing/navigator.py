"""A manager of the navigator for tests of edges. It checks the protocol, records what edges send, and can misbehave.

    async with recording_manager() as manager:
        async with running_edge(client, manager.join_file(folder)):
            await manager.until(lambda: manager.model.keys("pods") == {"default/web"})

``EdgeProcess`` runs ``shoal navigator edge``. For tests of the manager itself see ``shoal.testing.managers``.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.client import HTTPConnection
from pathlib import Path
from random import Random
from typing import Any, Literal

import orjson
from connectrpc.code import Code
from connectrpc.errors import ConnectError
from protobuf import Oneof

from shoal.app.navigator.edge import EdgeProcessDeps, opened_edge
from shoal.app.pki import Pki
from shoal.app.ports import any_free
from shoal.base.asgi import AsgiListener, Tls, bind
from shoal.base.clock import RealClock
from shoal.base.ids import Ids
from shoal.base.metrics import Metrics
from shoal.base.tasks import cancel_all
from shoal.client import Client
from shoal.client.reach import NoOutage
from shoal.navigator.digest import KindDigest, fingerprint
from shoal.navigator.edge.config import ConnectionConfig, EdgeConfig, KubernetesConfig
from shoal.navigator.edge.edge import Edge
from shoal.navigator.edge.metrics import EdgeMetrics
from shoal.navigator.edge.requests.proxies import PodPorts, ProxiedPorts
from shoal.testing.waiting import eventually
from shoal.wire.navigator.v1 import navigator_pb as pb
from shoal.wire.navigator.v1.navigator_connect import ManagerService, ManagerServiceASGIApplication

TOKEN = "edge-token"
QUICK = ConnectionConfig(retry_base_s=0.05, retry_cap_s=0.5, standby_s=0.1)
QUICK_READS = KubernetesConfig(retry_base_s=0.05, retry_cap_s=0.5)
_LOOK_S = 0.1


@dataclass(slots=True)
class ManagerModel:
    """A manager's state of one cluster. A message that breaks the protocol fails an assertion."""

    max_message_bytes: int = 4 * 1024 * 1024
    strict: bool = True  # compare the digest of every message; costs a hash of all rows
    rows: dict[str, dict[str, bytes]] = field(default_factory=dict)
    statuses: dict[str, pb.KindStatus] = field(default_factory=dict)
    epoch: int = 0
    sequence: int = 0
    stored: int = 0  # the last sequence that changed something
    messages: int = 0
    resyncs: int = 0
    verifications: int = 0
    largest_bytes: int = 0
    options_taken: list[pb.OptionsTaken] = field(default_factory=list)
    _transfers: dict[str, tuple[int, int, dict[str, bytes]]] = field(default_factory=dict)  # kind → sync, chunk, rows
    _forgot: bool = False  # rows were lost here: digests may differ until the next verification

    def keys(self, kind: str) -> set[str]:
        return set(self.rows.get(kind, ()))

    def object(self, kind: str, key: str) -> dict[str, Any]:
        found: dict[str, Any] = orjson.loads(self.rows[kind][key])
        return found

    def state(self, kind: str) -> str:
        found = self.statuses.get(kind)
        return found.state if found is not None else ""

    def accept(self) -> pb.ManagerMessage:
        """Accept a claim: begin a new epoch."""
        self.epoch += 1
        self.sequence = self.stored = 0
        self._transfers.clear()
        held = [self._digest(kind) for kind in self.rows]
        accepted = pb.Accepted(epoch=self.epoch, manager="model", max_message_bytes=self.max_message_bytes, held=held)
        said: Oneof[Literal["accepted"], pb.Accepted] = Oneof("accepted", accepted)
        return pb.ManagerMessage(body=said)

    def receive(self, message: pb.EdgeMessage) -> list[pb.ManagerMessage]:
        assert message.epoch == self.epoch, f"epoch {message.epoch} instead of {self.epoch}"
        assert message.sequence == self.sequence + 1, f"sequence {message.sequence} after {self.sequence}"
        self.sequence = message.sequence
        self.messages += 1
        if self.strict:
            size = len(message.to_binary())
            self.largest_bytes = max(self.largest_bytes, size)
            assert size <= self.max_message_bytes, f"a message of {size} bytes"
        said = message.body
        assert said is not None
        match said.field:
            case "state":
                self._state(said.value)
                self.stored = message.sequence
                return [self.received()]
            case "delta":
                self._delta(said.value)
                self.stored = message.sequence
                return [self.received()]
            case "verification":
                return self._verified(said.value)
            case "keep_alive":
                back: Oneof[Literal["keep_alive"], pb.KeepAlive] = Oneof("keep_alive", said.value)
                return [pb.ManagerMessage(body=back)]
            case "reply":
                return []
            case "options_taken":
                self.options_taken.append(said.value)
                return []
            case "identification":
                raise AssertionError("a second identification")

    def received(self) -> pb.ManagerMessage:
        said: Oneof[Literal["received"], pb.Received] = Oneof("received", pb.Received(sequence=self.stored))
        return pb.ManagerMessage(body=said)

    def resync(self, kinds: list[str]) -> pb.ManagerMessage:
        said: Oneof[Literal["resync"], pb.ResyncRequest] = Oneof("resync", pb.ResyncRequest(kinds=kinds))
        return pb.ManagerMessage(body=said)

    # messages

    def _state(self, state: pb.ClusterState) -> None:
        if state.chunk == 0:
            self._transfers[state.kind] = (state.sync, 0, {})
        sync, chunk, rows = self._transfers[state.kind]
        assert (state.sync, state.chunk) == (sync, chunk), "chunks are out of order"
        for row in state.rows:
            assert row.kind == state.kind and row.key not in rows
            rows[row.key] = row.data
        self._transfers[state.kind] = (sync, chunk + 1, rows)
        self._note(state.statuses)
        if state.last:
            del self._transfers[state.kind]
            self.rows[state.kind] = rows
            assert state.digest is not None
            self._check(state.digest)

    def _delta(self, delta: pb.ClusterDelta) -> None:
        for change in delta.changes:
            said = change.change
            assert said is not None
            assert said.value.kind not in self._transfers, "a change amidst a transfer of its kind"
            rows = self.rows.setdefault(said.value.kind, {})
            if said.field == "put":
                rows[said.value.key] = said.value.data
            else:
                assert self._forgot or said.value.key in rows, "a row that is not there is removed"
                rows.pop(said.value.key, None)
        for digest in delta.digests:
            self._check(digest)
        self._note(delta.statuses)

    def _verified(self, verification: pb.Verification) -> list[pb.ManagerMessage]:
        self.verifications += 1
        self._note(verification.statuses)
        differ = [each.kind for each in verification.digests if not self._equal(each)]
        assert not set(differ) & set(self._transfers)
        self.resyncs += len(differ)
        return [self.resync(differ)] if differ else []

    def _note(self, statuses: list[pb.KindStatus]) -> None:
        for status in statuses:
            self.statuses[status.kind] = status

    def _digest(self, kind: str) -> pb.KindDigest:
        digest = KindDigest()
        for key, data in self.rows.get(kind, {}).items():
            digest.add(fingerprint(kind, key, data))
        return pb.KindDigest(kind=kind, count=digest.count, digest=digest.value)

    def _equal(self, named: pb.KindDigest) -> bool:
        mine = self._digest(named.kind)
        return (mine.count, mine.digest) == (named.count, named.digest)

    def _check(self, named: pb.KindDigest) -> None:
        assert not self.strict or self._forgot or self._equal(named), f"the digest of {named.kind} is another"

    def forget(self, kind: str, key: str) -> None:
        """Lose a row, as a manager with a bug would. Digests are not compared any more."""
        self._forgot = True
        self.rows.get(kind, {}).pop(key, None)


@dataclass(frozen=True, slots=True)
class ClaimRejection:
    """The answer to a claim that is rejected."""

    code: pb.RejectionCode
    retry_after_s: float = 0.0
    message: str = "refused"


class EdgeConnection:
    """One connection of an edge."""

    def __init__(self, identification: pb.Identification, edge: str) -> None:
        self.identification = identification
        self.edge = edge
        self.outgoing: asyncio.Queue[pb.ManagerMessage | None] = asyncio.Queue()
        self.bodies: list[str] = []  # fields of the messages, in order
        self.replies: dict[str, list[pb.Reply]] = {}


class RecordingManager(ManagerService):
    """The manager's service. A test makes it misbehave with ``refusals``, ``mute``, ``silent_stores`` and ``end``."""

    def __init__(self, model: ManagerModel, folder: Path) -> None:
        self.model = model
        self.folder = folder
        self.sessions: list[EdgeConnection] = []
        self.current: EdgeConnection | None = None
        self.overlapping = 0  # connections that came while another was open
        self.refusals: list[ClaimRejection] = []
        self.claims = 0
        self.mute = False  # answers nothing
        self.silent_stores = False  # acknowledges nothing
        self.port = 0
        self.failures: list[BaseException] = []
        self._changed = asyncio.Event()
        self._over = asyncio.Event()

    # the service

    async def connect(self, request: AsyncIterator[pb.EdgeMessage], ctx: Any) -> AsyncIterator[pb.ManagerMessage]:
        headers = ctx.request_headers
        if headers.get("authorization") != f"Bearer {TOKEN}":
            raise ConnectError(Code.UNAUTHENTICATED, "this token is not known")
        first = await anext(request, None)
        if first is None or first.body is None or first.body.field != "identification":
            raise ConnectError(Code.INVALID_ARGUMENT, "the first message is no identification")
        self.claims += 1
        self._tell()
        if self.mute:
            await self._over.wait()
            return
        if self.refusals:
            yield _rejected(self.refusals.pop(0))
            return
        session = EdgeConnection(first.body.value, first.edge)
        self.overlapping += self.current is not None
        self.sessions.append(session)
        self.current = session
        session.outgoing.put_nowait(self.model.accept())
        reading = asyncio.create_task(self._read(request, session), name="recording-manager/read")
        try:
            while (message := await session.outgoing.get()) is not None:
                yield message
        finally:
            await cancel_all(reading)
            if self.current is session:
                self.current = None
            self._tell()

    async def _read(self, request: AsyncIterator[pb.EdgeMessage], session: EdgeConnection) -> None:
        try:
            async for message in request:
                assert message.body is not None
                session.bodies.append(message.body.field)
                if message.body.field == "reply":
                    session.replies.setdefault(message.body.value.id, []).append(message.body.value)
                answers = self.model.receive(message)
                for answer in answers:
                    kept = answer.body is not None and answer.body.field == "received" and self.silent_stores
                    if not self.mute and not kept:
                        session.outgoing.put_nowait(answer)
                self._tell()
        except AssertionError as error:
            self.failures.append(error)
        except ConnectError:
            pass  # the edge is gone
        finally:
            session.outgoing.put_nowait(None)

    # for tests

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def join_file(self, folder: Path | None = None, **more: str) -> Path:
        """Write a join file for an edge."""
        path = (folder or self.folder) / "join.json"
        ca = (self.folder / "pki" / "ca.crt").read_text()
        content = {"url": self.url, "token": TOKEN, "cluster": "east", "region": "eu", "ca": ca} | more
        path.write_bytes(orjson.dumps(content))
        return path

    def say(self, message: pb.ManagerMessage) -> None:
        assert self.current is not None
        self.current.outgoing.put_nowait(message)

    def close(self) -> None:
        self._over.set()
        self.end()

    def end(self) -> None:
        """End the stream properly."""
        if self.current is not None:
            self.current.outgoing.put_nowait(None)

    async def ask(self, id_: str, what: Any, *, deadline_s: float = 10.0) -> list[pb.Reply]:
        """Send a request; returns the parts of the answer."""
        assert self.current is not None
        session = self.current
        said: Oneof[Literal["request"], pb.Request] = Oneof(
            "request", pb.Request(id=id_, deadline_seconds=deadline_s, what=what)
        )
        self.say(pb.ManagerMessage(body=said))

        def complete() -> bool:
            parts = session.replies.get(id_)
            return parts is not None and (parts[-1].last or bool(parts[-1].error))

        await self.until(complete, timeout_s=deadline_s + 20)
        return session.replies[id_]

    def cancel(self, id_: str) -> None:
        said: Oneof[Literal["cancel"], pb.Cancel] = Oneof("cancel", pb.Cancel(id=id_))
        self.say(pb.ManagerMessage(body=said))

    async def until(self, condition: Callable[[], object], *, timeout_s: float = 30.0) -> None:
        """Wait until ``condition`` holds. It is checked at every message and, for the state of the edge itself, every
        0.1 s."""

        async def check() -> object:
            self._changed.clear()
            found = condition() or self.failures
            if not found:
                with suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK_S):
                        await self._changed.wait()
            return found

        await eventually(check, timeout_s=timeout_s, every_s=0.0)
        assert not self.failures, self.failures

    def _tell(self) -> None:
        self._changed.set()


def _rejected(refusal: ClaimRejection) -> pb.ManagerMessage:
    rejected = pb.Rejected(code=refusal.code, message=refusal.message, retry_after_seconds=refusal.retry_after_s)
    said: Oneof[Literal["rejected"], pb.Rejected] = Oneof("rejected", rejected)
    return pb.ManagerMessage(body=said)


@asynccontextmanager
async def recording_manager(
    model: ManagerModel | None = None, *, port: int = 0, folder: Path | None = None
) -> AsyncIterator[RecordingManager]:
    """Serve a ``RecordingManager`` with TLS and HTTP/2."""
    with tempfile.TemporaryDirectory(prefix="shoal-manager-") as temporary:
        base = folder or Path(temporary)
        pair = Pki(base / "pki", now=datetime.now(UTC)).ensure_server(["127.0.0.1", "localhost"])
        manager = RecordingManager(model or ManagerModel(), base)
        listening = bind("127.0.0.1", port)
        manager.port = listening.getsockname()[1]
        app: Any = ManagerServiceASGIApplication(manager, read_max_bytes=64 << 20)
        listener = AsgiListener(app, listening, Tls(pair.cert, pair.key), clock=RealClock())
        running = asyncio.create_task(listener.run(), name="recording-manager")
        try:
            yield manager
        finally:
            manager.close()
            listener.stop()
            await asyncio.wait([running])


@asynccontextmanager
async def running_edge(
    client: Client, join: Path, *, ports: PodPorts | None = None, **settings: Any
) -> AsyncIterator[Edge]:
    """Run an edge in this process; it reports the client's cluster to the manager of the join file."""
    around = EdgeProcessDeps(RealClock(), Ids(), Random(), EdgeMetrics(Metrics()))
    quick: dict[str, Any] = {"connection": QUICK, "kubernetes": QUICK_READS}
    config = EdgeConfig(join=join, **(quick | settings))
    async with opened_edge(config, client, ports or ProxiedPorts(client), around, NoOutage()) as edge:
        running = asyncio.create_task(edge.run(), name="edge")
        try:
            yield edge
        finally:
            await cancel_all(running)


class EdgeProcess:
    """``shoal navigator edge`` as a process. ``settings`` are variables without their prefix: ``SYNC__INTERVAL_S``."""

    def __init__(self, folder: Path, join: Path, kubeconfig: str, *, name: str = "", **settings: str) -> None:
        self._log = folder / "edge.log"
        self._arguments = ["--join", str(join), "--kubeconfig", kubeconfig, *(("--name", name) if name else ())]
        self._environment = {f"SHOAL_EDGE_{key}": value for key, value in settings.items()}
        self._process: subprocess.Popen[str] | None = None
        self.port = 0

    def start(self) -> None:
        """Start it; return when its health endpoint listens."""
        self.port = self.port or any_free("127.0.0.1")
        command = "from shoal.app.commands.navigator import app; app()"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", command, "edge", "--port", str(self.port), "--stop-on-eof", *self._arguments],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
                env={**os.environ, **self._environment},
            )  # fmt: skip
        assert self._process.stdout is not None
        if self._process.stdout.readline() != "ready\n":
            self.kill()
            raise RuntimeError(f"the edge did not start:\n{self._log.read_text()[-4000:]}")

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def ask(self, path: str) -> tuple[int, bytes]:
        """GET ``/livez``, ``/readyz``, ``/metrics`` or ``/status``; returns status code and body."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def reload(self) -> None:
        """Make it read its settings again."""
        os.kill(self.pid, signal.SIGHUP)

    def kill(self) -> None:
        """End it with SIGKILL."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """Stop it with SIGTERM; returns its exit code."""
        return self._end(signal.SIGTERM)

    def wait(self) -> int:
        """Wait until it ends by itself; returns its exit code."""
        return self._end(0)

    def _end(self, number: int) -> int:
        process, self._process = self._process, None
        if process is None:
            return 0
        if number:
            process.send_signal(number)
        if number == 0:
            process.wait(timeout=60)
        process.communicate(timeout=60)
        return process.returncode


def statuses_of(model: ManagerModel) -> Mapping[str, str]:
    """The state of each kind."""
    return {kind: status.state for kind, status in model.statuses.items()}
