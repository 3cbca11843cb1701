"""Asking the edge of a cluster, and bringing what it answers to who asked.

Every question has a number and a place where its parts gather; whoever asked takes them from there. An answer to a
question that nobody waits for any more finds no such place: it is counted and forgotten, and the stream goes on.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from protobuf import Oneof

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
class _Question:
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
    """Implements ``Edges``. The service tells it of streams that come and go, and of replies."""

    def __init__(
        self, config: ManagerConfig, metrics: ManagerMetrics, *, clock: Clock, new_id: Callable[[], str]
    ) -> None:
        self._config = config
        self._metrics = metrics
        self._clock = clock
        self._new_id = new_id
        self._outboxes: dict[str, Outbox] = {}
        self._questions: dict[str, _Question] = {}

    def connected(self, cluster: str, outbox: Outbox) -> None:
        self._outboxes[cluster] = outbox

    def lost(self, cluster: str, outbox: Outbox) -> None:
        if self._outboxes.get(cluster) is outbox:
            del self._outboxes[cluster]
        for question in list(self._questions.values()):
            if question.outbox is outbox:
                question.fail(ServiceUnavailable(f"the edge of cluster {cluster!r} was lost while it answered"))

    def deliver(self, outbox: Outbox, reply: pb.Reply) -> None:
        """A part of an answer. It must come from the edge that was asked."""
        question = self._questions.get(reply.id)
        if question is None or question.outbox is not outbox or question.ended:
            self._metrics.unknown_replies.inc()
            return
        if reply.error or reply.reason:
            question.fail(from_status({"reason": reply.reason, "message": reply.error or reply.reason}))
            return
        if reply.part:
            question.parts.append(reply.part)
            question.size += len(reply.part)
        if reply.last:
            question.ended = True
        elif question.size > self._config.answer_bytes:
            question.fail(TooManyRequests("the answer is read more slowly than the edge sends it"))
        question.wake()

    async def ask(self, cluster: str, request: object, *, deadline_s: float) -> AsyncIterator[bytes]:
        name = _FIELDS.get(type(request))
        if name is None:
            raise BadRequest(f"an edge cannot be asked for {type(request).__name__}")
        outbox = self._outboxes.get(cluster)
        if outbox is None:
            raise ServiceUnavailable(f"no edge of cluster {cluster!r} is connected")
        if sum(other.outbox is outbox for other in self._questions.values()) >= self._config.max_requests:
            raise TooManyRequests(
                f"the edge of cluster {cluster!r} already has {self._config.max_requests} open requests: retry later"
            )
        question = _Question(self._new_id(), outbox)
        self._questions[question.id] = question
        timer = self._clock.call_later(
            deadline_s, lambda: question.fail(Timeout(f"the edge of cluster {cluster!r} did not answer in time"))
        )
        what: Any = Oneof(name, request)
        outbox.request(pb.Request(id=question.id, deadline_seconds=deadline_s, what=what))
        result = "abandoned"
        try:
            async for part in self._parts(question):
                yield part
            result = "ok"
        except ApiError as error:
            result = error.reason
            raise
        finally:
            timer.cancel()
            del self._questions[question.id]
            if not question.ended or isinstance(question.error, Timeout | TooManyRequests):
                outbox.cancel(question.id)
            self._metrics.requests.labels(result).inc()

    async def _parts(self, question: _Question) -> AsyncIterator[bytes]:
        while True:
            while question.parts:
                part = question.parts.popleft()
                question.size -= len(part)
                yield part
            if question.ended:
                if question.error is not None:
                    raise question.error
                return
            question.waiter = asyncio.get_running_loop().create_future()
            await question.waiter
