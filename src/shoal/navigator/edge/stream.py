"""The stream to the manager. One supervisor owns the connection: it connects, runs, backs off and repeats. Each
connection has one writer, which sends the machine's messages. No other task connects or writes.

Errors of the protocol become errors of ``shoal.errors`` here. Every attempt opens a new connection and reads the join
file again, so that the token can be replaced.
"""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from typing import Literal, Protocol, assert_never

from shoal import __version__
from shoal.base import tracing
from shoal.base.backoff import Backoff
from shoal.base.clock import Clock
from shoal.base.connect import CallFailed, ConnectClient
from shoal.base.deadline import within
from shoal.base.http2 import Http2Link, Peer
from shoal.base.logs import get_logger
from shoal.base.tasks import wait_first
from shoal.errors import ApiError, Forbidden, ServiceUnavailable, ShoalError, Unauthorized
from shoal.navigator.edge.config import ConnectionConfig, EdgeJoinFile
from shoal.navigator.edge.metrics import EdgeMetrics
from shoal.navigator.edge.protocol import Accept, Claim, Command, EdgeMachine, Reject, Run, Stop, TakeOptions
from shoal.wire.navigator.v1 import navigator_pb as pb

log = get_logger("navigator.edge.stream")

State = Literal["connecting", "connected", "standby", "rejected", "stopped"]

_SERVICE = "shoal.navigator.v1.ManagerService"
_REPLIES = 16  # parts of answers that may wait to be sent; then their producers wait
_STANDBY = (pb.RejectionCode.ACTIVE_CONNECTION_EXISTS, pb.RejectionCode.RECENT_DISCONNECTION)
_TRACED = ("state", "delta")  # the others are small and frequent
_LIVENESS_CHECKS = 5  # per timeout


class GaveUp(ShoalError):
    """The number of failed attempts exceeds the settings."""


class EdgeRejected(ApiError):
    """The manager refused the claim, or ended it."""

    reason, code = "Conflict", 409

    def __init__(self, refusal: Reject) -> None:
        super().__init__(refusal.message or refusal.code.name)
        self.refusal = refusal


class RequestAnswerer(Protocol):
    """Answers the manager's requests."""

    def start(self, request: pb.Request, reply: Callable[[pb.Reply], Awaitable[None]]) -> None: ...

    def cancel(self, id_: str) -> None: ...

    async def stop(self) -> None:
        """Cancel all requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamDeps:
    machine: EdgeMachine
    join: Callable[[], EdgeJoinFile]
    claim: Callable[[], Claim]
    requests: RequestAnswerer
    take_options: Callable[[int, Mapping[str, str]], None]  # by revision; answers through the machine
    config: ConnectionConfig
    metrics: EdgeMetrics
    clock: Clock
    random: Callable[[], float]


class EdgeStream:
    def __init__(self, parts: StreamDeps) -> None:
        self._deps = parts
        self._machine = parts.machine
        self._clock = parts.clock
        self._config = parts.config
        self._wake = asyncio.Event()
        self._reply_space = asyncio.Event()
        self._session_number = 0  # the writer of an earlier connection must not send on a later one
        self._accepted = False  # on the current connection
        self.state: State = "connecting"
        self.reason = ""  # why there is no connection, for people
        self.manager = ""

    def wake(self) -> None:
        """The machine may have a message."""
        self._wake.set()

    def configure(self, config: ConnectionConfig) -> None:
        self._config = config
        self._wake.set()

    async def run(self) -> None:
        """Until cancelled, or ``GaveUp``."""
        failures = 0
        try:
            while True:
                wait_s: float | None = None
                try:
                    await self._session()
                    self._lost("connecting", "ended", "the manager ended the stream")
                except EdgeRejected as error:
                    wait_s = self._refused(error)
                except (Unauthorized, Forbidden) as error:
                    self._lost("rejected", "unauthorized", str(error))
                except ApiError as error:
                    self._lost("connecting", "unavailable", str(error))
                except Exception as error:
                    log.error("the stream failed in an unexpected way", error=error)
                    self._lost("connecting", "failed", f"{type(error).__name__}: {error}")
                if self._accepted:
                    failures = 0
                if wait_s is None:
                    failures += 1
                    config = self._config
                    if config.retry_count and failures > config.retry_count:
                        raise GaveUp(f"no connection to the manager after {failures} attempts: {self.reason}")
                    floor_s = min(0.02, config.retry_cap_s)
                    backoff = Backoff(base_s=config.retry_base_s, cap_s=config.retry_cap_s, floor_s=floor_s)
                    wait_s = backoff.delay_s(failures, self._deps.random)
                await self._clock.sleep(wait_s)
        finally:
            self.state = "stopped"

    # one connection

    async def _session(self) -> None:
        self._accepted = False
        self._session_number += 1
        join = self._deps.join()
        link = Http2Link(Peer.of(join.url, join.ca))
        client = ConnectClient(
            link, _SERVICE, user_agent=f"shoal-navigator-edge/{__version__}", max_bytes=self._config.max_message_bytes
        )
        headers = {"authorization": f"Bearer {join.token}"}
        first = self._machine.connect(self._deps.claim(), self._clock.monotonic(), self._wall_ms())
        messages = client.stream("Connect", self._messages(first), pb.ManagerMessage, headers, gzip=_fast_gzip)
        try:
            async with aclosing(messages):
                await wait_first(self._receive(messages), self._check_alive())
        finally:
            self._machine.disconnect()
            self._wake.set()  # the writer ends
            self._reply_space.set()
            await self._deps.requests.stop()
            await link.close()

    async def _receive(self, messages: AsyncIterator[pb.ManagerMessage]) -> None:
        try:
            async with within(self._clock, self._config.connect_timeout_s):
                with _translated():
                    message = await anext(messages, None)
        except TimeoutError:
            raise ServiceUnavailable(
                f"the manager did not answer within {self._config.connect_timeout_s:g} s"
            ) from None
        while message is not None:
            said = message.body.field if message.body is not None else "unknown"
            self._deps.metrics.received.labels(said).inc()
            for command in self._machine.receive(message, self._clock.monotonic()):
                self._do(command)
            self._wake.set()
            with _translated():
                message = await anext(messages, None)

    async def _check_alive(self) -> None:
        """Raise when the manager has stopped answering."""
        while True:
            config = self._config
            await self._clock.sleep(min(config.keep_alive_timeout_s, config.request_timeout_s) / _LIVENESS_CHECKS)
            reason = self._machine.dead(self._clock.monotonic())
            if reason:
                raise ServiceUnavailable(reason)

    async def _messages(self, first: pb.EdgeMessage) -> AsyncIterator[pb.EdgeMessage]:
        """The one writer of a connection."""
        machine, clock, sent = self._machine, self._clock, self._deps.metrics.sent
        session = self._session_number
        yield first
        while machine.phase != "idle" and session == self._session_number:
            self._wake.clear()
            now_s = clock.monotonic()
            message = machine.next(now_s, self._wall_ms())
            self._reply_space.set()
            if message is not None:
                assert message.body is not None
                sent.labels(message.body.field).inc()
                if tracing.is_on() and message.body.field in _TRACED:
                    opened = tracing.begin(f"edge.{message.body.field}", cluster=self._deps.claim().cluster)
                    message.trace = opened.text
                    yield message
                    opened.end()  # it is on its way
                    continue
                yield message
                continue
            due_s = machine.due_s(now_s)
            timer = clock.call_later(due_s - now_s, self._wake.set) if due_s != float("inf") else None
            try:
                await self._wake.wait()
            finally:
                if timer is not None:
                    timer.cancel()

    def _do(self, command: Command) -> None:
        match command:
            case Accept(epoch, manager):
                self._accepted = True
                self.state, self.reason, self.manager = "connected", "", manager
                self._deps.metrics.connections.labels("ok").inc()
                log.info("the manager has accepted this edge", manager=manager, epoch=epoch)
            case Reject():
                raise EdgeRejected(command)
            case Run(request):
                self._deps.requests.start(request, self._reply)
            case Stop(id_):
                self._deps.requests.cancel(id_)
            case TakeOptions(revision, values):
                self._deps.take_options(revision, values)
            case _:
                assert_never(command)

    async def _reply(self, reply: pb.Reply) -> None:
        """Waits while too many parts wait to be sent."""
        size = max(1, self._machine.part_bytes)
        for start in range(0, max(1, len(reply.part)), size):
            while self._machine.replies_waiting >= _REPLIES:
                self._reply_space.clear()
                await self._reply_space.wait()
            ends = start + size >= len(reply.part)
            self._machine.reply(
                pb.Reply(
                    id=reply.id,
                    part=reply.part[start : start + size],
                    last=reply.last and ends,
                    error=reply.error if ends else "",
                    reason=reply.reason if ends else "",
                )
            )
            self._wake.set()

    # how it ended

    def _refused(self, error: EdgeRejected) -> float | None:
        """How long to wait, if the manager or the kind of refusal says so; None: as after any failure."""
        refusal = error.refusal
        if refusal.code in _STANDBY:
            self._lost("standby", refusal.code.name.lower(), str(error))
            return refusal.retry_after_s or self._config.standby_s
        if refusal.code is pb.RejectionCode.STALE_EPOCH:
            self._lost("connecting", "stale_epoch", str(error))
            return refusal.retry_after_s or None
        self._lost("rejected", refusal.code.name.lower(), str(error))
        return refusal.retry_after_s or None

    def _lost(self, state: State, result: str, reason: str) -> None:
        self._deps.metrics.connections.labels(result).inc()
        if (state, reason) != (self.state, self.reason):
            log.warning("not connected to the manager", state=state, reason=reason)
        self.state, self.reason = state, reason

    def _wall_ms(self) -> int:
        return int(self._clock.wall_s() * 1000)


def _fast_gzip(content: bytes) -> bytes:
    """Level 1: compression dominates the time of a sync."""
    return gzip.compress(content, compresslevel=1, mtime=0)


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except CallFailed as error:
        kind = {"unauthenticated": Unauthorized, "permission_denied": Forbidden}.get(error.code, ServiceUnavailable)
        raise kind(str(error)) from None
