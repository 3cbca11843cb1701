"""The store's seam: what a write is, what a read returns, what a watcher sees.

A store is a log of revisions, one global gapless number in commit order. Every operation of a committed
transaction gets a revision of its own; transactions are atomic. Values are bytes with a *hole*: an object carries
its own revision (``metadata.resourceVersion``), which is known only at commit, so a writer hands over the bytes
without it and the offset where it goes.

Reads, ranges and watches are answered from memory and see only what is durable. ``attrs`` is what selectors and
indexes need to know of an object without decoding it; the writer gives it, and ``attrs_of`` recomputes it for
entries read back from disk or from another server.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

import msgspec

# Structs here are made for every write and hashed or compared on every look-up: msgspec's construct in C, frozen,
# and Key is a tuple so that hashing it never enters Python. gc=False: they only hold strings, bytes and each other
# in one direction, so they can never be part of a cycle.


class Key(NamedTuple):
    """Identity of an object in the store. ``resource`` is ``pods`` or ``deployments.apps``; cluster-scoped kinds
    have an empty namespace. Order is resource, namespace, name, bytewise, which is the order of lists."""

    resource: str
    namespace: str
    name: str


class Attrs(msgspec.Struct, frozen=True, gc=False):
    """What can be asked of an object without decoding it."""

    labels: Mapping[str, str] = {}
    fields: Mapping[str, str] = {}  # field-selector name -> value
    indexed: tuple[str, ...] = ()  # strings the store keeps an index on, e.g. "app=web" or "@spec.nodeName=n1"
    fence: str = ""  # for a Lease: holder and transitions, what a Fence requirement compares with


NO_ATTRS = Attrs()


class Put(msgspec.Struct, frozen=True, gc=False):
    """Create or replace ``key``. ``value`` lacks the revision; its decimal digits go in at ``hole``."""

    key: Key
    value: bytes
    hole: int
    attrs: Attrs = NO_ATTRS


class Delete(msgspec.Struct, frozen=True, gc=False):
    """Remove ``key``, which must exist (a missing key fails the transaction as an unmet ``Exists``)."""

    key: Key


Op = Put | Delete


class At(msgspec.Struct, frozen=True, gc=False):
    """``key`` must exist at exactly this revision."""

    key: Key
    revision: int


class Absent(msgspec.Struct, frozen=True, gc=False):
    key: Key


class Exists(msgspec.Struct, frozen=True, gc=False):
    key: Key


class Fence(msgspec.Struct, frozen=True, gc=False):
    """``key`` (a Lease) must exist with exactly this fence: the writer still leads."""

    key: Key
    fence: str


Require = At | Absent | Exists | Fence


class EventType(StrEnum):
    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


class Entry(msgspec.Struct, frozen=True, gc=False):
    """An object at a revision. ``value`` is complete: the revision stands at ``hole``."""

    key: Key
    revision: int
    created: int  # revision of the create this entry goes back to
    value: bytes
    hole: int
    attrs: Attrs


class Event(msgspec.Struct, frozen=True, gc=False):
    """One committed operation. For DELETED, ``entry`` is the last state with the deletion's revision in it, and
    ``previous`` the entry that was removed; for ADDED ``previous`` is None."""

    type: EventType
    entry: Entry
    previous: Entry | None


class RequirementFailed(Exception):
    """A transaction was not committed; nothing of it happened. ``current`` is the entry found, if any."""

    def __init__(self, require: Require, current: Entry | None) -> None:
        super().__init__(f"requirement not met: {require}")
        self.require = require
        self.current = current


class Compacted(Exception):
    """The revision asked for is below what is kept; ``oldest`` is the first one that can be asked for."""

    def __init__(self, revision: int, oldest: int) -> None:
        super().__init__(f"revision {revision} has been compacted, the oldest kept is {oldest}")
        self.revision = revision
        self.oldest = oldest


class FutureRevision(Exception):
    """The revision asked for has not happened yet."""

    def __init__(self, revision: int, current: int) -> None:
        super().__init__(f"revision {revision} is in the future, the current one is {current}")
        self.revision = revision
        self.current = current


class StoreClosed(Exception):
    """The store was stopped, or failed, or the watch was closed. A write that was waiting may or may not be durable."""


class StoreReadOnly(Exception):
    """The store refuses writes, for now or for good; ``reason`` says why. Nothing of the write happened."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the store is read-only: {reason}")
        self.reason = reason


class StoreUnavailable(Exception):
    """The database has not answered for longer than writers and fresh reads are willing to wait; try again. A write
    that was on its way may or may not have happened, and if it did it will be seen."""


class Page(msgspec.Struct, frozen=True):
    """A slice of a range at one revision. ``remaining`` counts the entries after the last one, of those asked for
    (namespace, index and filter applied); ``more`` says whether there are any."""

    entries: Sequence[Entry]
    revision: int
    more: bool
    remaining: int


class Watch(Protocol):
    """A cursor over one resource's ring. It holds no events: a slow reader costs nothing and is closed when the
    ring has moved past it."""

    @property
    def revision(self) -> int:
        """Everything up to here has been returned by ``take`` (it moves even when no event matched)."""

    def take(self, limit: int = 1000) -> Sequence[Event]:
        """Events after the cursor, in order, without waiting; empty when caught up. Raises Compacted when the ring
        has moved past the cursor, and after that always."""

    async def wait(self) -> None:
        """Return when ``take`` has something to say. Cancelling it loses nothing."""

    def close(self) -> None: ...


class Store(Protocol):
    """The seam. One instance serves one process; memory, SQLite and PostgreSQL behave the same."""

    shared: bool  # whether other servers write too, so that what is seen here may be a moment old

    @property
    def revision(self) -> int:
        """The newest durable, visible revision; 0 when nothing was ever written."""

    async def start(self) -> None: ...

    async def stop(self) -> None:
        """Finish the queued commits, then release everything."""

    async def commit(self, ops: Sequence[Op], requires: Sequence[Require] = ()) -> Sequence[Entry]:
        """Atomically check ``requires`` and apply ``ops``. Returns, per op, the new entry (for Delete: the removed
        object with the deletion's revision). Returns only when durable and visible. Raises RequirementFailed,
        StoreReadOnly, StoreUnavailable."""

    async def fresh(self) -> int:
        """A revision that includes every write acknowledged by any server before this call; waits until this server
        has it. On one-process stores that is ``revision`` at once. Raises StoreUnavailable."""

    async def reached(self, revision: int, timeout_s: float) -> None:
        """Wait until ``revision`` is visible here; FutureRevision when it is not within ``timeout_s``."""

    def get(self, key: Key) -> Entry | None: ...

    def range(
        self,
        resource: str,
        namespace: str | None = None,
        *,
        after: tuple[str, str] | None = None,  # (namespace, name) of the last entry of the previous page
        limit: int = 0,  # 0 = all
        revision: int = 0,  # 0 = now; older ones are rebuilt from the ring, else Compacted
        where: Callable[[Attrs], bool] | None = None,  # filter; ``remaining`` then counts matching entries only
        index: str = "",  # only entries that have this string in ``attrs.indexed``
    ) -> Page: ...

    def count(self, resource: str, namespace: str | None = None) -> int: ...

    def watch(self, resource: str, after: int) -> Watch:
        """A cursor that sees every event of ``resource`` with a revision above ``after``. Raises Compacted."""

    def subscribe(
        self,
        resource: str,
        on_events: Callable[[Sequence[Event]], None],
        on_reset: Callable[[], None] | None = None,
    ) -> Callable[[], None]:
        """Call ``on_events`` on the loop, in order, once per commit batch that touched ``resource``; returns the
        unsubscribe function. Must not raise and must not block: this is the fan-out path.

        When the database has lost its newest writes (a failover, a restored backup) everything is loaded anew and
        watches end as Compacted. ``on_reset`` is then called; one who gave none gets, as events, what makes the old
        objects the new ones, with revisions in no order."""

    def forget_old(self) -> None:
        """Let go of history past its age. Writes do it by themselves; call it now and then where nothing is written,
        so that page tokens end with time and not with the next write."""

    async def compact(self, revision: int) -> None:
        """Forget history up to and including ``revision`` (never current objects)."""
