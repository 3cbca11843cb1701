"""A journal without storage, for tests and temporary clusters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shoal.base.ids import Ids
from shoal.store.journal import Loaded, LoneWriter, Replica
from shoal.store.model import Event


class MemoryJournal(LoneWriter):
    size_bytes = 0

    async def open(self, replica: Replica) -> Loaded:
        self._replica = replica
        return Loaded(entries={}, events=(), floors={}, revision=0, incarnation=Ids().new_uid())

    async def append(self, events: Sequence[Event]) -> None:
        return None

    def forget(self, revisions: Sequence[int], floors: Mapping[str, int]) -> None:
        return None

    async def settle(self) -> None:
        return None

    async def close(self) -> None:
        return None
