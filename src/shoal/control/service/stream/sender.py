"""Sends changes while the tasks of their streams sleep.

Most of the time a stream has nothing to do but to wait for the next change of its place. To wake its task for each, to
let it ask for the object, sleep, wake again and hand it through the layers of the library costs several times what the
change itself costs. So whatever is due for streams that sleep is done here, for all of them in one turn of the event
loop, with the same machine (``Session``) and in the same order. Everything out of the ordinary (a sync, a slow reader,
a large batch) wakes the task, which goes on with the step that was begun.
"""

from __future__ import annotations

import asyncio
from collections import deque

from connectrpc.code import Code
from connectrpc.errors import ConnectError

from shoal.base import tracing
from shoal.base.clock import Clock
from shoal.base.logs import get_logger
from shoal.base.metrics import Distribution, Value
from shoal.control.service.desired.loader import Loader, Result
from shoal.control.service.desired.model import Loaded
from shoal.control.service.stream.alarm import Alarm
from shoal.control.service.stream.opened import OpenStream
from shoal.control.service.stream.outgoing import Outgoing
from shoal.control.service.stream.protocol import Arrived, Load, Send, Session, Step, Wait
from shoal.sync.keys import Place

_AT_ONCE = 100  # streams in one turn of the loop
_FEW = 8  # objects that are sent without the task

_log = get_logger("control.service.courier")


class Courier:
    """The streams of a process that have something to send, in the order in which they got it."""

    def __init__(self) -> None:
        self._due: deque[Sleeper] = deque()

    def add(self, sleeper: Sleeper) -> None:
        if not self._due:
            asyncio.get_running_loop().call_soon(self._turn)
        self._due.append(sleeper)

    def _turn(self) -> None:
        for _ in range(min(len(self._due), _AT_ONCE)):
            self._due[0].turn()
            self._due.popleft()  # only now: who is added meanwhile needs no turn of its own
        if self._due:
            asyncio.get_running_loop().call_soon(self._turn)


class Counts:
    """What is counted of a stream."""

    __slots__ = ("changes", "sent")

    def __init__(self, changes: Value, sent: Distribution) -> None:
        self.changes = changes
        self.sent = sent

    def change(self, key: str, loaded: Loaded, place: Place, wall_s: float) -> None:
        self.changes.inc()
        if loaded.committed_ms:
            self.sent.observe(max(0.0, wall_s - loaded.committed_ms / 1000))
            if tracing.is_on() and loaded.trace:
                _trace(key, loaded, place)


class Sleeper:
    """What is done for one stream while its task sleeps."""

    __slots__ = (
        "_alarm", "_asleep", "_clock", "_counts", "_courier", "_found", "_loader", "_loading", "_opened", "_out",
        "_queued", "_session", "_step",
    )  # fmt: skip

    def __init__(self, courier: Courier, loader: Loader, opened: OpenStream, counts: Counts, clock: Clock) -> None:
        self._courier = courier
        self._loader = loader
        self._opened = opened
        self._counts = counts
        self._clock = clock
        self._alarm = Alarm(clock, self.wake)
        self._session: Session | None = None
        self._out: Outgoing | None = None
        self._asleep = False
        self._queued = False
        self._loading = False
        self._found: dict[str, Result] | None = None  # what was loaded and not sent yet
        self._step: Step | None = None  # that the task has to go on with

    def wake(self) -> None:
        """There may be something to send."""
        if not self._asleep:
            self._opened.wake.set()
        elif not self._queued and not self._loading:
            self._queued = True
            self._courier.add(self)

    async def sleep(self, session: Session, out: Outgoing, until: float, now: float) -> Step | None:
        """Called by the task when it has nothing to do before ``until``; returns when it has, with what was begun."""
        self._alarm.set(until, now)
        self._session, self._out, self._asleep = session, out, out.direct
        try:
            await self._opened.wake.wait()
        finally:
            self._asleep = False
        await out.finish()
        step, self._step = self._step, None
        return step

    def close(self) -> None:
        self._asleep = False
        self._session = None
        self._alarm.cancel()

    def turn(self) -> None:
        self._queued = False
        if not self._asleep or self._session is None or self._opened.wake.is_set():
            return  # the task is awake, or will be: it goes on by itself
        try:
            self._work(self._session)
        except Exception as error:
            _log.error("a stream failed", place=str(self._opened.place), error=error)
            self._opened.end("failed", ConnectError(Code.INTERNAL, "the stream failed: connect again"))

    def _work(self, session: Session) -> None:
        now = self._clock.monotonic()
        found, self._found = self._found, None
        if found is not None and not self._send_found(session, found, now):
            return
        while True:
            step = session.next(now)
            if isinstance(step, Wait):
                self._alarm.set(step.until, now)
                return
            if isinstance(step, Send) and not session.syncing:
                if not self._push([event.to_binary() for event in step.events]):
                    return
            elif isinstance(step, Load) and not session.syncing:
                self._loading = True
                found = self._loader.request(session.place, step.keys, self._arrived, urgent=step.urgent)
                if found is None:
                    return
                self._loading = False
                if not self._send_found(session, found, now):
                    return
            else:
                self._leave(step)
                return

    def _arrived(self, found: dict[str, Result]) -> None:
        self._loading = False
        if self._asleep:
            self._found = found
            self.wake()

    def _send_found(self, session: Session, found: dict[str, Result], now: float) -> bool:
        """False when the task has to go on."""
        if len(found) > _FEW:
            self._leave(Arrived(found, syncing=False))
            return False
        ready = session.loaded(found, now)
        messages = [loaded.data for _, loaded in ready]
        if messages and (progress := session.accompany(now)) is not None:
            messages.append(progress.to_binary())
        went = not messages or self._push(messages)
        wall_s = self._clock.wall_s()
        for key, loaded in ready:
            self._counts.change(key, loaded, session.place, wall_s)
        return went

    def _push(self, messages: list[bytes]) -> bool:
        assert self._out is not None
        if self._out.push(messages):
            return True
        self._opened.wake.set()  # the reader is slow: the task waits for it
        return False

    def _leave(self, step: Step) -> None:
        self._step = step
        self._opened.wake.set()


def _trace(key: str, loaded: Loaded, place: Place) -> None:
    """From the commit of a change until it was sent."""
    with tracing.span("stream.send", parent=loaded.trace, since_ms=loaded.committed_ms, key=key, place=str(place)):
        pass
