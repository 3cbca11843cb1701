"""Carries out the steps of a session. This is the only module that interprets them; nothing here waits.

    woken, alarm, loaded, reader ready ──▶ run ──▶ session.next ──┬─ Load ──▶ load(keys) ──▶ now, or ``arrived`` later
                                            ▲                     ├─ Send ──▶ send(messages)
                                            └──── until blocked ──┼─ Wait ──▶ alarm.set(until)
                                                                  └─ Done ──▶ done(failed)

A stream of the control plane, an agent's stream at a relay and each channel of a relay's own stream differ only in what
they give the driver: where objects are loaded from, where messages go, what wakes them. The driver stops when the
session waits, while something is loaded, and when ``send`` says that the reader has to catch up; ``resume`` ends that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from shoal.base.clock import Clock
from shoal.control.service.desired.model import Failure, Loaded
from shoal.control.service.stream.protocol import Load, Send, Wait, WatchSession
from shoal.sync.keys import Place

Found = Mapping[str, Loaded | Failure | None]


class LoadKeys(Protocol):
    """Gives what is known of the keys now; None when ``done`` will be called with it."""

    def __call__(
        self, place: Place, keys: tuple[str, ...], done: Callable[[Found], None], *, urgent: bool
    ) -> Found | None: ...


class SetAlarm(Protocol):
    def set(self, at: float, now: float) -> None:
        """Wake the driver's owner at a moment; a later call replaces an earlier one."""


class ItemCounts(Protocol):
    """What is counted of a stream."""

    def item(self, key: str, loaded: Loaded, place: Place, *, syncing: bool, wall_s: float) -> None: ...

    def synced(self, seconds: float) -> None:
        """The first sync of the stream is over."""


class SessionDriver:
    """``send`` takes encoded messages and returns False when nothing more may follow before ``resume``. ``wake`` is
    called when ``run`` has something to do again; ``done`` when a one-time sync is over."""

    __slots__ = (
        "_alarm", "_began", "_blocked", "_clock", "_counts", "_done", "_found", "_load", "_loading", "_send",
        "_session", "_syncing", "_wake",
    )  # fmt: skip

    def __init__(
        self,
        session: WatchSession,
        *,
        load: LoadKeys,
        send: Callable[[list[bytes]], bool],
        alarm: SetAlarm,
        wake: Callable[[], None],
        done: Callable[[tuple[str, ...]], None],
        counts: ItemCounts,
        clock: Clock,
    ) -> None:
        self._session = session
        self._load = load
        self._send = send
        self._alarm = alarm
        self._wake = wake
        self._done = done
        self._counts = counts
        self._clock = clock
        self._began: float | None = clock.monotonic()  # None once the first sync was measured
        self._blocked = False  # the reader has to catch up
        self._loading = False
        self._syncing = False  # what is loaded belongs to a sync
        self._found: Found | None = None  # loaded and not sent yet

    @property
    def loading(self) -> bool:
        return self._loading

    @property
    def blocked(self) -> bool:
        return self._blocked

    def resume(self) -> None:
        """The reader has caught up."""
        self._blocked = False

    def run(self) -> None:
        session, now = self._session, self._clock.monotonic()
        while not self._loading and not self._blocked:
            found, self._found = self._found, None
            if found is not None:
                ready = session.loaded(found, now)
                messages = [loaded.data for _, loaded in ready]
                if messages and (progress := session.accompany(now)) is not None:
                    messages.append(progress.to_binary())
                self._blocked = bool(messages) and not self._send(messages)
                self._count(ready)
                continue
            step = session.next(now)
            if isinstance(step, Load):
                self._syncing, self._loading = session.syncing and not step.urgent, True
                self._found = self._load(session.place, step.keys, self._arrived, urgent=step.urgent)
                self._loading = self._found is None
            elif isinstance(step, Send):
                self._blocked = not self._send([event.to_binary() for event in step.events])
                self._count_sync(now)
            elif isinstance(step, Wait):
                self._alarm.set(step.until, now)
                return
            else:
                self._done(step.failed)
                return

    def _arrived(self, found: Found) -> None:
        self._loading = False
        self._found = found
        self._wake()

    def _count(self, sent: Sequence[tuple[str, Loaded]]) -> None:
        wall_s = self._clock.wall_s()
        for key, loaded in sent:
            self._counts.item(key, loaded, self._session.place, syncing=self._syncing, wall_s=wall_s)

    def _count_sync(self, now: float) -> None:
        if self._began is not None and self._session.syncs == 1 and not self._session.syncing:
            self._counts.synced(now - self._began)
            self._began = None
