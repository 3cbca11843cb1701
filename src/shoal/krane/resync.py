"""Asks the control plane again for every object, in case the stream has missed something.

Every desired object is asked for at least once in ``resync_s``, evenly spread: each is due after nearly half of that
time, and the questions are spread over as much again. Once in that time the cluster is listed too: objects that are not
known lead to a sync, and desired objects that are missing are applied again. Keys to be rechecked come first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from shoal.errors import ApiError, NotFound, ServiceUnavailable
from shoal.krane.actual import Actual
from shoal.krane.context import ControllerContext
from shoal.krane.following import Follower
from shoal.krane.protocol import version_of

_LOOKS_PER_PERIOD = 20  # how often new keys are noticed
_SHARE = 0.45  # of the period: twice this, and the time until a key is noticed, stay below it
_DISCONNECTED_S = 5.0  # how soon to see whether questions can be asked again
_LEAST_PAUSE_S = 0.005


class Resync:
    """``overdue`` is called now and then with keys that were removed and whose report is still owed."""

    def __init__(
        self, context: ControllerContext, follower: Follower, actual: Actual, *, overdue: Callable[[str], None]
    ) -> None:
        self._context = context
        self._follower = follower
        self._actual = actual
        self._overdue = overdue
        self._asked: dict[str, float] = {}  # when, in the order of asking
        self._not_before_s = 0.0  # the next question
        self._now = asyncio.Event()

    def recheck(self, key: str) -> None:
        """Look at this key as soon as possible."""
        self._context.key_state.doubtful.add(key)
        self._now.set()

    async def run(self) -> None:
        clock, period_s = self._context.clock, self._context.limits.resync_s
        listed_s = looked_s = clock.monotonic()
        self._notice_keys(looked_s)
        while True:
            await self._recheck_keys()
            now_s = clock.monotonic()
            if now_s - listed_s >= period_s:
                listed_s = now_s
                await self._list_cluster()
            if now_s - looked_s >= period_s / _LOOKS_PER_PERIOD:
                looked_s = now_s
                self._notice_keys(now_s)
            await self._ask_next(now_s)
            await self._rest(self._pause_s(looked_s + period_s / _LOOKS_PER_PERIOD))

    def _notice_keys(self, now_s: float) -> None:
        desired = self._context.machine.desired
        for key in [key for key in self._asked if key not in desired]:
            del self._asked[key]
        for key in desired:
            late_s = self._context.limits.resync_s if key in self._context.key_state.unverified else 0.0
            self._asked.setdefault(key, now_s - late_s)
        for key, applied in self._context.key_state.applied.items():
            if applied.removed:
                self._overdue(key)

    async def _ask_next(self, now_s: float) -> None:
        context, key = self._context, next(iter(self._asked), None)
        if key is None or self._due_s(key) > now_s:
            return
        watching = self._follower.state == "watching"
        if not watching and key not in context.key_state.unverified:
            self._not_before_s = now_s + _DISCONNECTED_S
            return
        self._not_before_s = now_s + context.limits.resync_s * _SHARE / len(self._asked)
        del self._asked[key]
        if key in context.machine.desired:
            self._asked[key] = now_s if watching else now_s - context.limits.resync_s
            self._verify(key)
            if watching:
                await self._ask(key)

    def _verify(self, key: str) -> None:
        """Apply once what was in the cluster before this process: its version says nothing about drift meanwhile."""
        context = self._context
        item = context.cache.get(key)
        if key in context.key_state.unverified and item is not None and context.inbox.offer(item):
            context.key_state.unverified.discard(key)

    async def _ask(self, key: str) -> None:
        context = self._context
        try:
            item = await context.ask(key)
        except NotFound:
            await self._follower.ask_again([key])  # absence is for a sync to establish
        except ApiError as error:
            context.log.debug("reading an object from the control plane failed", key=key, reason=str(error))
        else:
            if await self._follower.take(item):
                context.metrics.corrections.labels(context.stream, "version").inc()
                context.log.warning("an object had changed without a message", key=key)
            self._actual.correct_drift(key)

    async def _recheck_keys(self) -> None:
        context = self._context
        keys = sorted(context.key_state.doubtful)
        context.key_state.doubtful.clear()
        for key in keys:
            item, applied = context.cache.get(key), context.key_state.applied.get(key)
            if item is None or context.inbox.pending(key) is not None:
                continue
            if applied is None or version_of(item).is_after(applied.version):
                await context.inbox.put(item)
        if self._follower.state == "watching":
            for key in keys:
                if key in context.machine.desired:
                    await self._ask(key)

    async def _list_cluster(self) -> None:
        context = self._context
        try:
            live = await context.live()
        except ServiceUnavailable as error:
            context.log.warning("stray and missing objects cannot be determined now", reason=str(error))
            return
        strays = [key for key in live if context.machine.known(key) is None]
        await self._follower.ask_again(strays)
        for key in list(context.machine.desired):
            if key not in live:
                self._actual.correct_drift(key, missing=True)

    def _due_s(self, key: str) -> float:
        return max(self._not_before_s, self._asked[key] + self._context.limits.resync_s * _SHARE)

    def _pause_s(self, look_s: float) -> float:
        first = next(iter(self._asked), None)
        due_s = look_s if first is None else min(look_s, self._due_s(first))
        return max(_LEAST_PAUSE_S, due_s - self._context.clock.monotonic())

    async def _rest(self, seconds: float) -> None:
        timer = self._context.clock.call_later(seconds, self._now.set)
        try:
            await self._now.wait()
        finally:
            timer.cancel()
            self._now.clear()
