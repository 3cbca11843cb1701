"""The interface between the in-memory part and the durable part of a store, and the commit rules of a single writer.

A journal receives batches of transactions and returns for each its entries or the exception that refused it. It
checks requirements and assigns revisions, because a database with several writers must do both itself, in its own
transaction. It also controls *visibility*: it calls ``Replica.publish`` with every event in revision order, including
those of other servers, each only when durable, and returns a transaction only after publishing it. So a single writer
(memory, SQLite) checks against the replica, which is authoritative, while a shared database checks in SQL and publishes
from its change feed; the store above sees no difference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

import msgspec

from shoal.store.model import (
    Absent,
    At,
    Entry,
    Event,
    EventType,
    Exists,
    Fence,
    Key,
    Op,
    Put,
    Require,
    RequirementFailed,
    StoreFull,
)

MAX_KEY_BYTES = 2500  # PostgreSQL cannot index more than a third of a page

Lookup = Callable[[Key], Entry | None]
Result = Sequence[Entry] | Exception


class Transaction(msgspec.Struct, frozen=True, gc=False):
    ops: Sequence[Op]
    requires: Sequence[Require]


class Loaded(msgspec.Struct, frozen=True):
    """The content of a journal: current objects, the events above each resource's floor, and the newest revision."""

    entries: Mapping[Key, Entry]
    events: Sequence[Event]
    floors: Mapping[str, int]
    revision: int
    incarnation: str  # id of this log: revisions of another incarnation are not comparable


class Replica(Protocol):
    """The in-memory part, as the journal uses it."""

    @property
    def revision(self) -> int: ...

    def get(self, key: Key) -> Entry | None: ...

    def publish(self, events: Sequence[Event]) -> None:
        """Make durable events visible, in revision order."""

    def reset(self, loaded: Loaded) -> None:
        """Replace everything visible by ``loaded``: the log was replaced by another."""

    def fail(self, error: BaseException) -> None:
        """Report that nothing can be made durable any more."""


class Journal(Protocol):
    shared: bool  # whether other servers write to the same log

    @property
    def size_bytes(self) -> int:
        """The size on disk, as of the last look at it; 0 where there is none."""

    async def open(self, replica: Replica) -> Loaded: ...

    async def commit(self, batch: Sequence[Transaction]) -> Sequence[Result]:
        """Check, number, make durable and publish a batch; return one result per transaction. If it raises, the journal
        is broken and the outcome of the batch unknown: the store then fails as a whole."""

    async def newest(self) -> int:
        """The newest revision acknowledged by any server."""

    def forget(self, revisions: Sequence[int], floors: Mapping[str, int]) -> None:
        """Delete revisions that are no longer needed; every prefix of the sequence may be deleted alone. Must not
        block: the work is done between batches, in small steps."""

    async def settle(self) -> None:
        """Return when everything given to ``forget`` is deleted."""

    async def close(self) -> None: ...


class LoneWriter:
    """Commit for journals with a single writing process: memory decides, ``append`` makes durable."""

    shared = False
    _replica: Replica

    async def commit(self, batch: Sequence[Transaction]) -> Sequence[Result]:
        results, events = decide(batch, self._replica.get, self._replica.revision)
        if not events:
            return results
        try:
            await self.append(events)
        except StoreFull as full:
            if len(batch) == 1:
                return [full]
            # Each alone: a large write must not keep small ones out, such as deletions.
            return [result for transaction in batch for result in await self.commit([transaction])]
        self._replica.publish(events)
        return results

    async def newest(self) -> int:
        return self._replica.revision

    async def append(self, events: Sequence[Event]) -> None:
        """Make the events durable. Raises StoreFull if nothing was written because there is no room; any other error
        leaves the outcome unknown."""
        raise NotImplementedError


def decide(batch: Iterable[Transaction], current: Lookup, revision: int) -> tuple[list[Result], list[Event]]:
    """Check the transactions in order, each on top of those before it, and number their operations from
    ``revision`` + 1. One that fails has no effect and uses no revision."""
    results: list[Result] = []
    events: list[Event] = []
    pending: dict[Key, Entry | None] = {}

    def lookup(key: Key) -> Entry | None:
        return pending[key] if key in pending else current(key)

    for transaction in batch:
        try:
            for require in transaction.requires:
                check(require, lookup)
            done = _perform(transaction.ops, lookup, revision)
        except Exception as refused:
            results.append(refused)
            continue
        entries = []
        for event in done:
            entry = event.entry
            entries.append(entry)
            pending[entry.key] = None if event.type is EventType.DELETED else entry
        revision += len(done)
        events += done
        results.append(entries)
    return results, events


def _perform(ops: Sequence[Op], lookup: Lookup, revision: int) -> list[Event]:
    done: list[Event] = []
    for op in ops:
        revision += 1
        key = op.key
        previous = lookup(key) if len(ops) == 1 else _after_own(done, key, lookup)
        if type(op) is Put:
            if previous is None:
                check_key(key)
                done.append(Event(EventType.ADDED, _entry(op, revision, revision), None))
            else:
                done.append(Event(EventType.MODIFIED, _entry(op, revision, previous.created), previous))
        elif previous is None:
            raise RequirementFailed(Exists(key), None)
        else:
            done.append(Event(EventType.DELETED, deleted_entry(previous, revision), previous))
    return done


def _after_own(done: Sequence[Event], key: Key, lookup: Lookup) -> Entry | None:
    """The entry after the earlier operations of the same transaction."""
    for event in reversed(done):
        if event.entry.key == key:
            return None if event.type is EventType.DELETED else event.entry
    return lookup(key)


def check(require: Require, lookup: Lookup) -> None:
    found = lookup(require.key)
    kind = type(require)
    if kind is At:
        met = found is not None and found.revision == require.revision  # type: ignore[union-attr]
    elif kind is Absent:
        met = found is None
    elif kind is Fence:
        met = found is not None and found.attrs.fence == require.fence  # type: ignore[union-attr]
    else:
        met = found is not None
    if not met:
        raise RequirementFailed(require, found)


def check_key(key: Key) -> None:
    """Raise for a key that a database could not store unchanged or index; only its transaction fails."""
    text = "".join(key)
    if "\0" in text:
        raise ValueError(f"zero byte in the key {key}")
    if len(text if text.isascii() else text.encode()) > MAX_KEY_BYTES:
        raise ValueError(f"the key {key.name[:60]}... has more than {MAX_KEY_BYTES} bytes")


def _entry(op: Put, revision: int, created: int) -> Entry:
    value, hole = op.value, op.hole
    return Entry(op.key, revision, created, b"%b%d%b" % (value[:hole], revision, value[hole:]), hole, op.attrs)


def deleted_entry(last: Entry, revision: int) -> Entry:
    """The last state of a deleted object, with the deletion's revision in place of its own."""
    value, hole = last.value, last.hole
    tail = value[hole + len(str(last.revision)) :]
    return Entry(last.key, revision, last.created, b"%b%d%b" % (value[:hole], revision, tail), hole, last.attrs)
