"""Answers requests concurrently, each within its deadline, so that a slow one does not delay others.

A bounded number of requests is answered at a time, a bounded number waits, more are refused. Followed logs have a limit
of their own, since they last as long as a client reads them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing

from shoal.base.clock import Clock
from shoal.base.deadline import within
from shoal.base.logs import get_logger
from shoal.base.tasks import OwnedTasks
from shoal.client import TransportError
from shoal.errors import ApiError, BadRequest, ServiceUnavailable, Timeout, TooManyRequests
from shoal.navigator.edge.config import RequestConfig
from shoal.navigator.edge.metrics import EdgeMetrics
from shoal.wire.navigator.v1 import navigator_pb as pb

log = get_logger("navigator.edge.requests")

Reply = Callable[[pb.Reply], Awaitable[None]]
Answer = Callable[[pb.Request], AsyncIterator[bytes]]

_FOLLOWER_S = 86_400.0


class RequestPool:
    """``answer`` yields the parts of an answer, or raises an error of ``shoal.errors``."""

    def __init__(self, answer: Answer, config: RequestConfig, metrics: EdgeMetrics, *, clock: Clock) -> None:
        self._answer = answer
        self._config = config
        self._metrics = metrics
        self._clock = clock
        self._workers = asyncio.Semaphore(config.workers)
        self._owned = OwnedTasks()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._short = 0  # requests that are not followers
        self._followers = 0

    def configure(self, config: RequestConfig) -> None:
        """Take other limits; requests that are being answered keep theirs."""
        if config.workers != self._config.workers:
            self._workers = asyncio.Semaphore(config.workers)
        self._config = config

    def start(self, request: pb.Request, reply: Reply) -> None:
        if request.id in self._tasks:
            return  # it is being answered
        task = self._owned.start(self._run(request, reply), name=f"edge/request/{request.id}")
        self._tasks[request.id] = task
        task.add_done_callback(lambda done: self._ended(request.id, done))

    def cancel(self, id_: str) -> None:
        task = self._tasks.get(id_)
        if task is not None:
            task.cancel()

    async def stop(self) -> None:
        await self._owned.close()

    def _ended(self, id_: str, task: asyncio.Task[None]) -> None:
        if self._tasks.get(id_) is task:
            del self._tasks[id_]

    async def _run(self, request: pb.Request, reply: Reply) -> None:
        what = request.what.field if request.what is not None else "unknown"
        began_s = self._clock.monotonic()
        try:
            await self._within_limits(request, reply)
        except asyncio.CancelledError:
            self._metrics.requests.labels(what, "cancelled").inc()
            raise
        except Exception as error:
            known = _known(error)
            if known is not error and not isinstance(error, TransportError | TimeoutError):
                log.error("a request failed in an unexpected way", error=error, request=what)
            self._metrics.requests.labels(what, known.reason).inc()
            await reply(pb.Reply(id=request.id, last=True, error=str(known) or known.reason, reason=known.reason))
        else:
            self._metrics.requests.labels(what, "ok").inc()
            await reply(pb.Reply(id=request.id, last=True))
        self._metrics.request_s.labels(what).observe(self._clock.monotonic() - began_s)

    async def _within_limits(self, request: pb.Request, reply: Reply) -> None:
        if request.what is None:
            raise BadRequest("this edge does not support the request: update it")
        if request.what.field == "logs" and request.what.value.follow:
            if self._followers >= self._config.followers:
                raise TooManyRequests(f"limit reached: {self._followers} logs are being followed")
            self._followers += 1
            try:
                await self._parts(request, reply, _limited(request.deadline_seconds, _FOLLOWER_S))
            finally:
                self._followers -= 1
            return
        if self._short >= self._config.workers + self._config.waiting:
            raise TooManyRequests(f"{self._short} requests are being answered or wait")
        self._short += 1
        try:
            await self._parts(request, reply, _limited(request.deadline_seconds, self._config.longest_s), self._workers)
        finally:
            self._short -= 1

    async def _parts(
        self, request: pb.Request, reply: Reply, limit_s: float, places: asyncio.Semaphore | None = None
    ) -> None:
        """All parts, within the deadline; the time in the queue counts."""
        try:
            async with within(self._clock, limit_s):
                if places is None:
                    await self._send(request, reply)
                else:
                    async with places:
                        await self._send(request, reply)
        except TimeoutError:
            raise Timeout(f"the cluster did not answer within {limit_s:g} s") from None

    async def _send(self, request: pb.Request, reply: Reply) -> None:
        parts = self._answer(request)
        async with aclosing(parts) as answers:  # type: ignore[type-var]
            async for part in answers:
                await reply(pb.Reply(id=request.id, part=part))


def _limited(asked_s: float, longest_s: float) -> float:
    return min(asked_s, longest_s) if asked_s > 0 else longest_s


def _known(error: Exception) -> ApiError:
    if isinstance(error, ApiError):
        return error
    if isinstance(error, TransportError):
        return ServiceUnavailable(f"the cluster's API does not answer: {error}")
    return ServiceUnavailable(f"the edge could not answer: {type(error).__name__}: {error}")
