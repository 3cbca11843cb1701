"""The store's interface: writes, reads and watches.

A store is a log of revisions: one global number without gaps, in commit order. Every operation of a committed
transaction gets its own revision; transactions are atomic. Values are bytes with a *hole*: an object contains its
revision (``metadata.resourceVersion``), which is known only at commit, so a writer passes the bytes without it and
the offset where it goes.

Reads, ranges and watches are served from memory and see only durable writes. ``attrs`` holds the fields that selectors
and indexes use without decoding the object; the writer provides it, and ``attrs_of`` recomputes it for entries that
come from disk or from another server.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

if TYPE_CHECKING:
    from shoal.store.figures import StoreFigures

# These structs are created for every write and hashed or compared on every look-up: msgspec constructs them in C, and
# Key is a tuple, so that hashing it never enters Python. gc=False: they only hold strings, bytes and each other in one
# direction, so they cannot be part of a cycle.


class Key(NamedTuple):
    """Identity of an object in the store. ``resource`` is ``pods`` or ``deployments.apps``; cluster-scoped kinds
    have an empty namespace. Order is resource, namespace, name, bytewise, which is the order of lists."""

    resource: str
    namespace: str
    name: str


class Attrs(msgspec.Struct, frozen=True, gc=False):
    """Fields of an object that selectors and indexes use without decoding it."""

    labels: Mapping[str, str] = {}
    fields: Mapping[str, str] = {}  # field-selector name -> value
    indexed: tuple[str, ...] = ()  # strings the store keeps an index on, e.g. "app=web" or "@spec.nodeName=n1"
    fence: str = ""  # for a Lease: holder and transitions, compared by a Fence requirement


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
    """An object at a revision. ``value`` is complete, with the revision at ``hole``."""

    key: Key
    revision: int
    created: int  # revision at which the object was created
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
    """A transaction was not committed and had no effect. ``current`` is the entry found, if any."""

    def __init__(self, require: Require, current: Entry | None) -> None:
        super().__init__(f"requirement not met: {require}")
        self.require = require
        self.current = current


class Compacted(Exception):
    """The requested revision is older than the kept history; ``oldest`` is the first one available."""

    def __init__(self, revision: int, oldest: int) -> None:
        super().__init__(f"revision {revision} has been compacted, the oldest kept is {oldest}")
        self.revision = revision
        self.oldest = oldest


class FutureRevision(Exception):
    """The requested revision does not exist yet."""

    def __init__(self, revision: int, current: int) -> None:
        super().__init__(f"revision {revision} is in the future, the current one is {current}")
        self.revision = revision
        self.current = current


class StoreClosed(Exception):
    """The store was stopped or failed, or the watch was closed. A pending write may or may not be durable."""


class StoreReadOnly(Exception):
    """The store refuses writes, temporarily or permanently, for ``reason``. The write had no effect."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the store is read-only: {reason}")
        self.reason = reason


class StoreFull(StoreReadOnly):
    """There is no room on the disk for this write, and it had no effect. Later ones are accepted once there is room."""

    def __init__(self) -> None:
        super().__init__("the disk is full; free some space on it, or enlarge it")


class StoreUnavailable(Exception):
    """The database has not responded within the time limit of writes and fresh reads; try again. A write in flight may
    or may not have happened; if it did, it becomes visible."""


class StorePage(msgspec.Struct, frozen=True):
    """A slice of a range at one revision. ``remaining`` counts the matching entries after the last one (namespace,
    index and filter applied); ``more`` is whether there are any."""

    entries: Sequence[Entry]
    revision: int
    more: bool
    remaining: int


class Watch(Protocol):
    """A cursor over one resource's ring. It holds no events: a slow reader costs nothing and is closed when the
    ring has moved past it."""

    @property
    def revision(self) -> int:
        """``take`` has returned everything up to this revision, which advances even when no event matches."""

    def take(self, limit: int = 1000) -> Sequence[Event]:
        """Events after the cursor, in order, without waiting; empty when caught up. Raises Compacted when the ring
        has moved past the cursor, and after that always."""

    async def wait(self) -> None:
        """Return when ``take`` would return events or raise. Cancelling it loses nothing."""

    def close(self) -> None: ...


class Store(Protocol):
    """One instance serves one process; memory, SQLite and PostgreSQL behave the same."""

    shared: bool  # whether other servers write too, so that the view here may lag
    figures: StoreFigures

    @property
    def revision(self) -> int:
        """The newest durable, visible revision; 0 for an empty store."""

    @property
    def size_bytes(self) -> int:
        """The size on disk, as of the last look at it; 0 where there is none."""

    @property
    def problem(self) -> str:
        """Why nothing can be written; empty: it works."""

    @property
    def history_bytes(self) -> int:
        """Bytes of history in memory, beyond the current objects."""

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
        """Wait until ``revision`` is visible here; raise FutureRevision after ``timeout_s``."""

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
    ) -> StorePage: ...

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
        unsubscribe function. ``on_events`` must not raise or block: this is the fan-out path.

        When the database has lost its newest writes (a failover, a restored backup), everything is reloaded and watches
        end with Compacted. Then ``on_reset`` is called; without one, ``on_events`` gets the difference between the old
        and the new objects, with revisions in no order."""

    def forget_old(self) -> None:
        """Drop history past its age. Writes do this too; call it periodically, so that page tokens expire on time even
        without writes."""

    async def compact(self, revision: int) -> None:
        """Drop history up to and including ``revision`` (never current objects)."""
