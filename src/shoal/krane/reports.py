"""Reports the state of the cluster to the control plane: the newest report per key, delivered, without repetition.

A key is marked when its report may differ. The report is made at the moment of sending, so while the control plane is
unreachable a key costs one entry, however often it changes. Several requests are in flight at once, and a key is in at
most one of them: a slow call delays its own keys only, and reports of one object arrive in order. A report that equals
the last one is not sent. The last reports are forgotten after a reconnect, and that of a key when its object is
removed. One change of an object causes several in its cluster, so a report waits a moment to combine them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from shoal.base import tracing
from shoal.base.logs import correlated
from shoal.errors import ApiError, BadRequest, Invalid, TooManyRequests
from shoal.krane.actual import Actual
from shoal.krane.context import ControllerContext
from shoal.krane.model import Report, ReportRequest
from shoal.krane.protocol import causes_of
from shoal.sync.digest import Digest, bucket_of
from shoal.sync.fingerprint import fingerprint
from shoal.wire.fleet.v1 import cluster_pb as pb


@dataclass(frozen=True, slots=True, kw_only=True)
class ReporterDeps:
    """How a request is made of reports, and the controller's callbacks for the answers."""

    request: Callable[[int, list[Report]], ReportRequest]
    gone: Callable[[str], None]  # the control plane knows that the key is removed
    unknown: Callable[[list[str]], None]  # keys the control plane does not know
    delivered: Callable[[Report], None]  # the control plane has got it


class Reporter:
    def __init__(self, context: ControllerContext, actual: Actual, deps: ReporterDeps) -> None:
        self._context = context
        self._actual = actual
        self._deps = deps
        self._clock = context.clock
        self._limits = context.limits
        self._backoff = context.backoff()
        self._deduped = context.metrics.deduped.labels(context.stream)
        self._durations = {
            result: context.metrics.report_s.labels(context.stream, result) for result in ("ok", "error")
        }
        self._marked: dict[str, bool] = {}  # in the order they came; True: send also when nothing changed
        self._sending: set[str] = set()
        self._requests = 0
        self._alone: set[str] = set()  # were in a request that was refused: sent one by one until they arrive
        self._last: dict[str, int] = {}  # fingerprints of what was delivered
        self._delivered_s: dict[str, float] = {}  # when, on the monotonic clock
        self._digest = Digest()  # of what was delivered last; also after a reconnect, unlike _last
        self._failures = 0
        self._failed_s = float("-inf")
        self._paused_until_s = 0.0
        self._changed = asyncio.Event()

    # what happens

    def mark(self, key: str, *, again: bool = False) -> None:
        """The report of the key may differ; ``again``: send it in any case."""
        self._marked[key] = self._marked.get(key, False) or again
        self._changed.set()

    def reconnected(self) -> None:
        """The control plane may have lost earlier reports: send everything again."""
        self._last.clear()
        self._failures = 0
        self._paused_until_s = 0.0
        self._changed.set()

    def removed(self, key: str) -> None:
        """The object was deleted here: its last report says nothing about a next one of that name."""
        self._last.pop(key, None)

    def resend(self, buckets: Iterable[int], asked_s: float) -> int:
        """The control plane has these buckets otherwise than the digest it was given at ``asked_s``. What has been
        delivered since, or is on its way, is not sent again."""
        wanted = frozenset(buckets)
        count = 0
        for key in {*self._actual.keys(), *self._digest.keys_in(wanted)}:
            if bucket_of(key) not in wanted or key in self._sending or key in self._marked:
                continue
            if self._delivered_s.get(key, -1.0) < asked_s:
                self.mark(key, again=True)
                count += 1
        return count

    @property
    def digest(self) -> list[int]:
        return self._digest.buckets

    @property
    def pending(self) -> int:
        return len(self._marked) + len(self._sending - self._marked.keys())

    # sending

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                await self._until_some()
                if self._limits.report_gather_s:
                    await self._clock.sleep(self._limits.report_gather_s)
                reports = self._take()
                if reports:
                    self._requests += 1
                    self._sending.update(report.key for report in reports)
                    group.create_task(self._send(reports), name=f"report/{reports[0].key}")

    async def _until_some(self) -> None:
        while True:
            self._changed.clear()
            paused_s = self._paused_until_s - self._clock.monotonic()
            free = self._requests < self._limits.report_parallel and any(
                key not in self._sending for key in self._marked
            )
            if free and paused_s <= 0:
                return
            timer = self._clock.call_later(max(paused_s, 0.001), self._changed.set) if free else None
            try:
                await self._changed.wait()
            finally:
                if timer is not None:
                    timer.cancel()

    def _take(self) -> list[Report]:
        reports: list[Report] = []
        for key in [key for key in self._marked if key not in self._sending]:
            alone = key in self._alone
            if alone and reports:
                continue
            again = self._marked.pop(key)
            report = self._actual.describe(key)
            if report is None:
                self._forget(key)
            elif not again and self._last.get(key) == fingerprint(report):
                self._deduped.inc()
            else:
                reports.append(report)
            if len(reports) >= self._limits.report_batch or (alone and reports):
                break
        return reports

    async def _send(self, reports: list[Report]) -> None:
        context, session = self._context, self._context.session
        started_s = self._clock.monotonic()
        try:
            await session.joined.wait()
            session.check()
            request = self._deps.request(session.next_sequence(context.stream), reports)
            causes = self._causes_of(reports)
            with (
                correlated(**causes),
                tracing.span("krane.report", parent=causes.get("trace", ""), reports=len(reports)),
                context.calling(),
            ):
                answer = await context.plane.report(context.stream, request)
        except (BadRequest, Invalid, TooManyRequests) as error:
            self._durations["error"].observe(self._clock.monotonic() - started_s)
            self._refused(reports, error, started_s)
        except ApiError as error:
            self._durations["error"].observe(self._clock.monotonic() - started_s)
            self._failed(reports, error, started_s)
        else:
            self._durations["ok"].observe(self._clock.monotonic() - started_s)
            self._delivered(reports, answer)
        finally:
            self._requests -= 1
            self._sending.difference_update(report.key for report in reports)
            self._changed.set()

    def _causes_of(self, reports: list[Report]) -> dict[str, str]:
        """The request and the trace of the change that a single report belongs to; empty for several reports."""
        item = self._context.cache.get(reports[0].key) if len(reports) == 1 else None
        return causes_of(item) if item is not None else {}

    def _delivered(self, reports: list[Report], answer: pb.ReportResponse) -> None:
        self._failures = 0
        now_s = self._clock.monotonic()
        for report in reports:
            key = report.key
            self._alone.discard(key)
            if report.gone:
                self._forget(key)
                self._deps.gone(key)
                continue
            self._deps.delivered(report)
            self._last[key] = print_ = fingerprint(report)
            self._delivered_s[key] = now_s
            self._digest.put(key, str(print_))
        gone = {report.key for report in reports if report.gone}
        unknown = [key for key in answer.unknown if key not in gone]
        for key in unknown:
            self._forget(key)
        if unknown:
            self._deps.unknown(unknown)

    def _failed(self, reports: list[Report], error: ApiError, started_s: float) -> None:
        if not self._failures:
            self._context.log.warning("reporting failed; trying again until it succeeds", reason=str(error))
        if started_s > self._failed_s:  # what was under way together fails together, and counts once
            self._failures += 1
            self._failed_s = self._clock.monotonic()
            self._paused_until_s = self._failed_s + self._backoff.delay_s(self._failures, self._context.random)
        for report in reports:
            self.mark(report.key, again=True)

    def _refused(self, reports: list[Report], error: ApiError, started_s: float) -> None:
        """One of them is malformed, or all of them are too much for one request: each is sent alone."""
        if len(reports) == 1 and isinstance(error, TooManyRequests):
            self._failed(reports, error, started_s)
            return
        if len(reports) == 1:
            self._alone.discard(reports[0].key)
            self._context.log.error("the control plane cannot read a report", key=reports[0].key, reason=str(error))
            return
        for report in reports:
            self._alone.add(report.key)
            self.mark(report.key, again=True)

    def _forget(self, key: str) -> None:
        self._last.pop(key, None)
        self._delivered_s.pop(key, None)
        self._digest.drop(key)
