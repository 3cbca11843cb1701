"""Forwards agents' calls, and keeps reports while the control plane is unreachable.

Joins and requests for objects need the control plane itself. Reports and heartbeats of agents that it has admitted
before are kept in the outbox while it is unreachable, and answered as received. If the relay loses them, the digest of
reports in the next heartbeat shows it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from connectrpc.code import Code
from connectrpc.errors import ConnectError

from shoal.base.clock import Clock
from shoal.base.ids import token_digest
from shoal.base.logs import get_logger
from shoal.base.tasks import run_all
from shoal.base.tracing import span
from shoal.control.relay.link import AWAY, CallerHeaders, Link
from shoal.control.relay.metrics import RelayMetrics
from shoal.control.relay.outbox import Forward, Outbox, Sender
from shoal.control.relay.roster import Roster
from shoal.sync.keys import Place, StreamKind
from shoal.wire.fleet.v1 import cluster_pb as pb

Reports = pb.ReportDeploymentStatusRequest | pb.ReportSentinelStatusRequest

_WORKERS = 8
_AGAIN_S = 1.0
_REPORTS = {StreamKind.DEPLOYMENTS: "report_deployment_status", StreamKind.SENTINELS: "report_sentinel_status"}
_REFUSED = frozenset({Code.UNAUTHENTICATED, Code.PERMISSION_DENIED, Code.FAILED_PRECONDITION})

_log = get_logger("control.relay.forwarding")


class Forwarding:
    """``run`` passes on what was kept. ``connected`` says whether the control plane is there; ``joined`` is called with
    each new epoch."""

    def __init__(
        self,
        link: Link,
        roster: Roster,
        outbox: Outbox,
        metrics: RelayMetrics,
        *,
        connected: Callable[[], bool],
        joined: Callable[[Place, int], None],
        clock: Clock,
    ) -> None:
        self._link = link
        self._roster = roster
        self._outbox = outbox
        self._metrics = metrics
        self._connected = connected
        self._joined = joined
        self._clock = clock
        self._wake = asyncio.Event()
        metrics.waiting.follow(lambda: float(len(outbox)))

    def look(self) -> None:
        """The connection came or went."""
        self._wake.set()

    async def join(self, request: pb.JoinRequest, caller: CallerHeaders) -> pb.JoinResponse:
        answer: pb.JoinResponse = await self._pass("join", request, caller, request.identity)
        identity = request.identity
        if identity is not None:
            place = Place(identity.cluster, identity.shard)
            self._roster.joined(place, answer.epoch, bytes(request.public_key), token_digest(caller.token))
            self._outbox.forget(place, answer.epoch - 1)
            self._joined(place, answer.epoch)
        return answer

    async def get(self, method: str, request: pb.GetDesiredRequest, caller: CallerHeaders) -> pb.Item:
        """Only the control plane can say that there is no such object."""
        found: pb.Item = await self._pass(method, request, caller, request.identity)
        return found

    async def heartbeat(self, request: pb.HeartbeatRequest, caller: CallerHeaders) -> pb.HeartbeatResponse:
        sender = _sender(request.identity, caller)
        if self._connected() and not self._outbox.waiting(sender.place):
            try:
                answer: pb.HeartbeatResponse = await self._pass("heartbeat", request, caller, request.identity)
                return answer
            except ConnectError as error:
                if error.code not in AWAY:
                    raise
        self._check(sender, caller)
        self._outbox.put_heartbeat(sender, request)
        self._kept("heartbeat")
        return pb.HeartbeatResponse()

    async def report(self, stream: StreamKind, request: Reports, caller: CallerHeaders) -> pb.ReportResponse:
        sender, method = _sender(request.identity, caller), _REPORTS[stream]
        if request.sequence == 0:
            raise ConnectError(Code.INVALID_ARGUMENT, "sequence: Required value: reports are numbered from 1")
        if self._connected() and not self._outbox.waiting(sender.place):
            try:
                answer: pb.ReportResponse = await self._pass(method, request, caller, request.identity)
                return answer
            except ConnectError as error:
                if error.code not in AWAY:
                    raise
        self._check(sender, caller)
        if not self._outbox.put(sender, stream, request.sequence, request.reports, request.times):
            raise ConnectError(Code.RESOURCE_EXHAUSTED, "the relay's queue of reports is full: try again later")
        self._kept(method)
        return pb.ReportResponse()

    async def run(self) -> None:
        await run_all({f"relay-forward/{n}": self._work() for n in range(_WORKERS)})

    async def _work(self) -> None:
        while True:
            forward = self._outbox.take() if self._connected() else None
            if forward is None:
                self._wake.clear()
                if not (self._connected() and self._outbox.has_ready):
                    await self._wake.wait()
                continue
            if not await self._deliver(forward):
                await self._clock.sleep(_AGAIN_S)

    async def _deliver(self, forward: Forward) -> bool:
        """False when it has to be tried again."""
        caller, identity = CallerHeaders(forward.sender.token), forward.sender.identity
        method = "heartbeat" if forward.stream is None else _REPORTS[forward.stream]
        try:
            await self._pass(method, _request(forward), caller, identity)
        except ConnectError as error:
            if error.code in AWAY:
                self._outbox.later(forward)
                return False
            self._outbox.done(forward)
            if error.code in _REFUSED:
                self._outbox.forget(forward.sender.place, identity.epoch)
            _log.warning("the control plane refused kept reports", method=method, reason=error.message,
                         place=str(forward.sender.place))  # fmt: skip
        except BaseException:
            self._outbox.later(forward)
            raise
        else:
            self._outbox.done(forward)
        self._wake.set()
        return True

    async def _pass(self, method: str, request: Any, caller: CallerHeaders, identity: pb.Identity | None) -> Any:
        try:
            with span("relay.forward", parent=caller.trace, method=method) as trace:
                answer = await self._link.call(method, request, replace(caller, trace=trace))
        except ConnectError as error:
            self._metrics.calls.labels(method, "refused").inc()
            if error.code in _REFUSED and identity is not None:
                self._roster.refused(Place(identity.cluster, identity.shard), token_digest(caller.token))
            raise
        self._metrics.calls.labels(method, "passed").inc()
        if identity is not None and identity.epoch:
            self._roster.admitted(Place(identity.cluster, identity.shard), identity.epoch, token_digest(caller.token))
        return answer

    def _check(self, sender: Sender, caller: CallerHeaders) -> None:
        self._roster.check(sender.place, sender.identity.epoch, token_digest(caller.token))

    def _kept(self, method: str) -> None:
        self._metrics.calls.labels(method, "kept").inc()
        self._wake.set()


def _sender(identity: pb.Identity | None, caller: CallerHeaders) -> Sender:
    if identity is None:
        raise ConnectError(Code.INVALID_ARGUMENT, "identity: Required value")
    return Sender(identity, caller.token)


def _request(forward: Forward) -> Any:
    if forward.stream is None:
        return forward.heartbeat
    kind: Any = (
        pb.ReportDeploymentStatusRequest if forward.stream is StreamKind.DEPLOYMENTS else pb.ReportSentinelStatusRequest
    )
    return kind(
        identity=forward.sender.identity, sequence=forward.sequence, reports=list(forward.reports),
        times=list(forward.times),
    )  # fmt: skip
