"""A small reconcile loop over the objects of one resource: handles each after every change, one at a time.

A look reads the stored object and makes at most one step, with the revision as a condition. So it can be
repeated and interrupted; if several servers handle the same object, one succeeds and the others have nothing to do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from shoal.apiserver.context import Core
from shoal.apiserver.writing.model import Retry
from shoal.base.logs import get_logger
from shoal.base.supervision import SupervisedLoops
from shoal.errors import ApiError
from shoal.store import Entry, Event, EventType, Key, StoreClosed, StoreReadOnly, StoreUnavailable

_RETRY_S = 0.5

Look = Callable[[Key], Awaitable[None]]


class StoreLoop:
    """Calls ``look`` with the key of every object that ``concerns`` it, now and after each change."""

    def __init__(self, core: Core, resource: str, look: Look, concerns: Callable[[Entry], bool]) -> None:
        self._core = core
        self._resource = resource
        self._look = look
        self._concerns = concerns
        self._keys: dict[Key, None] = {}  # ordered set: a key waits once however often it is added
        self._wake = asyncio.Event()
        self._loops = SupervisedLoops(core.clock)
        self._unsubscribe: Callable[[], None] | None = None
        self._log = get_logger("authn")

    def start(self) -> None:
        self._unsubscribe = self._core.store.subscribe(self._resource, self._on_events, self._add_all)
        self._loops.start(f"authn/{self._resource}", self._run)

    async def stop(self) -> None:
        if self._unsubscribe is not None:
            self._unsubscribe()
        await self._loops.stop()

    def add(self, key: Key) -> None:
        self._keys[key] = None
        self._wake.set()

    def _add_all(self) -> None:
        for entry in self._core.store.range(self._resource).entries:
            if self._concerns(entry):
                self.add(entry.key)

    def _on_events(self, events: Sequence[Event]) -> None:
        for event in events:
            if event.type is not EventType.DELETED and self._concerns(event.entry):
                self.add(event.entry.key)

    async def _run(self) -> None:
        self._add_all()
        while True:
            await self._wake.wait()
            self._wake.clear()
            failed = []
            while self._keys:
                key = next(iter(self._keys))
                del self._keys[key]
                try:
                    await self._look(key)
                except (ApiError, Retry, StoreReadOnly, StoreUnavailable) as error:
                    self._log.info("object will be retried", resource=self._resource, name=key.name, reason=str(error))
                    failed.append(key)
                except StoreClosed:
                    raise
                except Exception as error:
                    # one object that cannot be handled must not end the work on the others
                    self._log.error("object not handled", resource=self._resource, name=key.name, reason=repr(error))
            if failed:
                await self._core.clock.sleep(_RETRY_S)
                for key in failed:
                    self.add(key)
