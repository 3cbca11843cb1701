"""The APIServices of what this server serves itself: created with a group version, removed with it.

Every server does it: the wanted objects depend only on the built-in groups and the stored definitions, so servers
agree. An APIService without the label ``automanaged`` belongs to a user and is left alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from shoal.apiserver import objects
from shoal.apiserver.aggregator import plan
from shoal.apiserver.context import Core
from shoal.apiserver.effects import NOTHING, Extra, NoEffects
from shoal.apiserver.write import Writer
from shoal.apiserver.writing.model import Author, Retry, Write
from shoal.base.logs import get_logger
from shoal.base.supervision import SupervisedLoops
from shoal.errors import AlreadyExists, ApiError
from shoal.kube.decode import normalize
from shoal.kube.objects import Obj
from shoal.store import At, Delete, Entry, Event, RequirementFailed, StoreReadOnly, StoreUnavailable

_AUTHOR = Author("shoal-apiserver")
_RETRY_S = 0.5
_log = get_logger("apiservices")


class ApiServiceEffects(NoEffects):
    """APIServices without a service are available as soon as they are stored."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def on_create(self, obj: Obj) -> Extra:
        if (obj.get("spec") or {}).get("service") is None:
            status = plan.status_with(obj, plan.LOCAL, self._core.now())
            if status is not None:
                obj["status"] = status
        return NOTHING

    def on_update(self, new: Obj, old: Obj) -> Extra:
        return self.on_create(new)


class Registration:
    """Follows the registry. ``ensure`` before the first request; then ``start`` it."""

    def __init__(self, core: Core, writer: Writer) -> None:
        self._core, self._writer = core, writer
        self._wake = asyncio.Event()
        self._loops = SupervisedLoops(core.clock)
        self._unsubscribe: Callable[[], None] | None = None

    def start(self) -> None:
        self._unsubscribe = self._core.store.subscribe(plan.API_SERVICES, self._on_events)
        self._core.registry.on_change = self._wake.set
        self._loops.start("apiservices/registration", self._run)

    async def stop(self) -> None:
        if self._unsubscribe is not None:
            self._unsubscribe()
        await self._loops.stop()

    def _on_events(self, events: Sequence[Event]) -> None:
        self._wake.set()

    async def _run(self) -> None:
        self._wake.set()  # definitions may have changed since ``ensure``
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self.ensure(starting=False)
            except (ApiError, Retry, StoreReadOnly, StoreUnavailable) as error:
                _log.info("APIServices not written, will retry", reason=str(error))
                await self._core.clock.sleep(_RETRY_S)
                self._wake.set()

    async def ensure(self, *, starting: bool) -> None:
        """Write what differs. APIServices of built-in groups are only restored when a server starts."""
        wanted = plan.automatic(served.resource for served in self._core.registry.local())
        stored = {entry.key.name: entry for entry in self._core.store.range(plan.API_SERVICES).entries}
        changes = [self._reconcile(stored.get(name), obj, starting=starting) for name, obj in wanted.items()]
        changes += [self._remove(entry, starting=starting) for name, entry in stored.items() if name not in wanted]
        await asyncio.gather(*changes)

    async def _reconcile(self, entry: Entry | None, wanted: Obj, *, starting: bool) -> None:
        served = self._core.registry.stored(plan.API_SERVICES)
        assert served is not None
        if entry is None:
            if starting or plan.managed(wanted) == plan.ALWAYS:
                normalize(wanted, served.type)
                with suppress(AlreadyExists):
                    await self._writer.store(Write.own(served, wanted, None, _AUTHOR))
            return
        stored = objects.decode(entry)
        if plan.is_wrong(stored, wanted, starting=starting):
            await self._writer.store(Write.own(served, {**stored, "spec": wanted["spec"]}, entry, _AUTHOR))

    async def _remove(self, entry: Entry, *, starting: bool) -> None:
        if plan.is_left_over(objects.decode(entry), starting=starting):
            with suppress(RequirementFailed):  # changed in the meantime: its event starts another pass
                await self._core.store.commit([Delete(entry.key)], [At(entry.key, entry.revision)])
