"""Supervised loops: a loop that fails is started again, and the process says so when it stays down.

A long-lived loop is meant to run until it is cancelled. ``supervise`` runs it and starts it again whenever it ends in
any other way: after a delay that grows with each failure, with a log line and ``shoal_loop_restarts_total``. ``run`` is
called anew each time, so what it reads at its beginning is rebuilt; a loop that keeps state between starts rebuilds
that there too.

A loop is *up* while it does its work: from the moment its ``ready`` says so, or after a time without a failure where it
has none. ``stalled_loops`` names the loops of this process that have not been up for a minute: ``/livez`` fails with
them, and the supervisor of the process starts it again.

Parts of a loop that cannot go on without each other run in a ``TaskGroup`` or ``run_all`` inside ``run``: the failure
of one ends all, and they start again together. What must not be repeated, such as a write whose outcome is unknown,
is not supervised: it ends the process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from shoal.base.backoff import Backoff
from shoal.base.clock import Clock
from shoal.base.logs import get_logger
from shoal.base.metrics import PROCESS, Counter, Metrics
from shoal.base.tasks import OwnedTasks, beside, wait_first

_log = get_logger("supervision")

Run = Callable[[], Coroutine[Any, Any, None]]


def define_loop_metrics(metrics: Metrics) -> Counter:
    return metrics.counter(
        "shoal_loop_restarts_total", "Restarts of long-lived loops of this process after a failure.", ("loop",)
    )


_restarts = define_loop_metrics(PROCESS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Supervision:
    """When a loop is started again, and when it counts as up or as stalled."""

    backoff: Backoff = Backoff(base_s=0.5, cap_s=30.0)
    steady_s: float = 30.0  # up, and its failures forgotten, after so long without a failure
    stalled_s: float = 60.0  # without being up


DEFAULT = Supervision()


class _Loop:
    """The state of one supervised loop."""

    def __init__(self, name: str, detail: str, clock: Clock, ready: Callable[[], bool] | None, how: Supervision):
        self.name = name
        self.detail = detail
        self._clock = clock
        self._ready = ready
        self._how = how
        self._failures = 0  # in a row
        self._began_s: float | None = None  # when it was started last; None: it waits to be started
        self._down_since_s: float | None = None  # when it failed for the first time since it was up

    def begin(self) -> None:
        self._began_s = self._clock.monotonic()

    def fail(self, error: BaseException | None) -> float:
        """Note the failure; return the delay before the next start."""
        now = self._clock.monotonic()
        if self._is_up(now):
            self._failures, self._down_since_s = 0, None
        if self._down_since_s is None:
            self._down_since_s = now
        self._failures += 1
        self._began_s = None
        delay_s = self._how.backoff.bound_s(self._failures)
        _restarts.labels(self.name).inc()
        _log.error(
            "a loop failed; starting it again", loop=self.name, detail=self.detail, failures=self._failures,
            delay_s=delay_s, error=error,
        )  # fmt: skip
        return delay_s

    def problem(self) -> str:
        """Why it counts as stalled; empty: it does not."""
        now = self._clock.monotonic()
        if self._down_since_s is None or self._is_up(now) or now - self._down_since_s < self._how.stalled_s:
            return ""
        return f"down for {now - self._down_since_s:.0f} s, {self._failures} failures in a row: see the log"

    def _is_up(self, now: float) -> bool:
        if self._began_s is None:
            return False
        return self._ready() if self._ready is not None else now - self._began_s >= self._how.steady_s


_loops: dict[int, _Loop] = {}  # of this process, by the id of the state: names are not unique in tests


async def supervise(
    name: str,
    run: Run,
    *,
    clock: Clock,
    detail: str = "",
    ready: Callable[[], bool] | None = None,
    ends: tuple[type[Exception], ...] = (),
    may_return: bool = False,
    until: asyncio.Event | None = None,
    how: Supervision = DEFAULT,
) -> None:
    """Run a loop until cancelled.

    ``name`` is a metric's label and comes from a closed set; ``detail`` says which one it is, in logs. ``ready`` says
    whether the loop does its work: without it, a loop that has run for a while does. Errors of ``ends`` are the
    planned end of the loop, and raised; with ``may_return`` so is a return. Once ``until`` is set, a loop that has
    ended or waits to be started is not started again.
    """
    loop = _Loop(name, detail, clock, ready, how)
    _loops[id(loop)] = loop
    try:
        while True:
            loop.begin()
            error = await _until_ended(run(), f"{name}/{detail}" if detail else name)
            if isinstance(error, ends):
                raise error
            if error is None and may_return:
                return
            if until is not None and until.is_set():
                if error is not None:
                    _log.error("a loop failed when it was stopped", loop=name, detail=detail, error=error)
                return
            delay_s = loop.fail(error)
            del error  # else it would keep everything alive that it has passed through
            if until is None:
                await clock.sleep(delay_s)
            else:
                await wait_first(clock.sleep(delay_s), until.wait())
                if until.is_set():
                    return
    finally:
        del _loops[id(loop)]


async def _until_ended(work: Coroutine[Any, Any, None], name: str) -> BaseException | None:
    """Why the work ended; None when it returned. In a task of its own, so that it is certain who was cancelled: the
    work may wait for a task that is cancelled, and some libraries swallow a cancellation."""
    async with beside(work, name=name, looked_at=True) as task:
        await asyncio.wait((task,))
        return asyncio.CancelledError("a task that it waited for") if task.cancelled() else task.exception()


def stalled_loops() -> dict[str, str]:
    """The loops of this process that stay down, and why; for ``/livez``."""
    found: dict[str, str] = {}
    for loop in tuple(_loops.values()):
        problem = loop.problem()
        if problem:
            found[f"{loop.name} ({loop.detail})" if loop.detail else loop.name] = problem
    return found


class SupervisedLoops:
    """The loops of one owner that is started and stopped by calls instead of running in a task."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._tasks = OwnedTasks()

    def start(self, name: str, run: Run, *, detail: str = "", ends: tuple[type[Exception], ...] = ()) -> None:
        self._tasks.start(supervise(name, run, clock=self._clock, detail=detail, ends=ends), name=name)

    async def stop(self) -> None:
        await self._tasks.close()
