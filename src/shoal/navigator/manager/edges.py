"""Requests to the edge of a cluster, and the delivery of its answers.

Every request has an id and a buffer for the parts of its answer, which the caller reads. A reply to a request that is
no longer pending is counted and dropped, and the stream continues.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from protobuf import Oneof

from shoal.base import tracing
from shoal.base.clock import Clock
from shoal.errors import ApiError, BadRequest, ServiceUnavailable, Timeout, TooManyRequests, from_status
from shoal.navigator.manager.config import ManagerConfig
from shoal.navigator.manager.metrics import ManagerMetrics
from shoal.navigator.manager.outbox import Outbox
from shoal.wire.navigator.v1 import navigator_pb as pb

_FIELDS: dict[type[Any], Literal["logs", "events", "proxy_config", "connections"]] = {
    pb.PodLogs: "logs",
    pb.ClusterEvents: "events",
    pb.ProxyConfig: "proxy_config",
    pb.ServiceConnections: "connections",
}


@dataclass(slots=True, eq=False)
class _PendingRequest:
    id: str
    outbox: Outbox
    parts: deque[bytes] = field(default_factory=deque)
    size: int = 0
    ended: bool = False
    error: ApiError | None = None
    waiter: asyncio.Future[None] | None = None

    def wake(self) -> None:
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)

    def fail(self, error: ApiError) -> None:
        if not self.ended:
            self.ended, self.error = True, error
            self.wake()


class EdgeLinks:
    """Implements ``Edges``. The service calls it for new and lost streams, and for replies."""

    def __init__(
        self, config: ManagerConfig, metrics: ManagerMetrics, *, clock: Clock, new_id: Callable[[], str]
    ) -> None:
        self._config = config
        self._metrics = metrics
        self._clock = clock
        self._new_id = new_id
        self._outboxes: dict[str, Outbox] = {}
        self._pending: dict[str, _PendingRequest] = {}

    def connected(self, cluster: str, outbox: Outbox) -> None:
        self._outboxes[cluster] = outbox

    def lost(self, cluster: str, outbox: Outbox) -> None:
        if self._outboxes.get(cluster) is outbox:
            del self._outboxes[cluster]
        for pending in list(self._pending.values()):
            if pending.outbox is outbox:
                pending.fail(ServiceUnavailable(f"the edge of cluster {cluster!r} was lost while it answered"))

    def deliver(self, outbox: Outbox, reply: pb.Reply) -> None:
        """Deliver a part of an answer. It must come from the edge that got the request."""
        pending = self._pending.get(reply.id)
        if pending is None or pending.outbox is not outbox or pending.ended:
            self._metrics.unknown_replies.inc()
            return
        if reply.error or reply.reason:
            pending.fail(from_status({"reason": reply.reason, "message": reply.error or reply.reason}))
            return
        if reply.part:
            pending.parts.append(reply.part)
            pending.size += len(reply.part)
        if reply.last:
            pending.ended = True
        elif pending.size > self._config.answer_bytes:
            pending.fail(TooManyRequests("the answer is read more slowly than the edge sends it"))
        pending.wake()

    async def ask(self, cluster: str, request: object, *, deadline_s: float) -> AsyncIterator[bytes]:
        name = _FIELDS.get(type(request))
        if name is None:
            raise BadRequest(f"an edge cannot be asked for {type(request).__name__}")
        outbox = self._outboxes.get(cluster)
        if outbox is None:
            raise ServiceUnavailable(f"no edge of cluster {cluster!r} is connected")
        if sum(other.outbox is outbox for other in self._pending.values()) >= self._config.max_requests:
            raise TooManyRequests(
                f"the edge of cluster {cluster!r} already has {self._config.max_requests} open requests: retry later"
            )
        pending = _PendingRequest(self._new_id(), outbox)
        self._pending[pending.id] = pending
        timer = self._clock.call_later(
            deadline_s, lambda: pending.fail(Timeout(f"the edge of cluster {cluster!r} did not answer in time"))
        )
        what: Any = Oneof(name, request)
        outbox.request(pb.Request(id=pending.id, deadline_seconds=deadline_s, what=what, trace=tracing.current()))
        result = "abandoned"
        try:
            async for part in self._parts(pending):
                yield part
            result = "ok"
        except ApiError as error:
            result = error.reason
            raise
        finally:
            timer.cancel()
            del self._pending[pending.id]
            if not pending.ended or isinstance(pending.error, Timeout | TooManyRequests):
                outbox.cancel(pending.id)
            self._metrics.requests.labels(result).inc()

    async def _parts(self, pending: _PendingRequest) -> AsyncIterator[bytes]:
        while True:
            while pending.parts:
                part = pending.parts.popleft()
                pending.size -= len(part)
                yield part
            if pending.ended:
                if pending.error is not None:
                    raise pending.error
                return
            pending.waiter = asyncio.get_running_loop().create_future()
            await pending.waiter
