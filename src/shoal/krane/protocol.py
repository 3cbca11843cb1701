"""One stream of desired state as a machine that never waits: messages in, commands out.

    idle ──connect──▶ greeting ──welcome──▶ live ◀─────────────┐
      ▲                                      │ sync_begin      │ sync_end
      └──────────disconnect (from any)       └────▶ syncing ───┘

It knows the newest version of every key, what is desired and what is being removed, and keeps these promises:

- a state is taken only when it is newer than what is known of its key;
- the cursor moves only when everything before it is durable (``saved``), and not at all inside a full sync;
- absence removes a key only when a complete sync at moment S did not name it, its version is known and not after S, and
  the control plane, asked for this very key, does not know it (``suspects``, then ``absent``);
- a digest that differs leads to the buckets that differ being sent whole, one that is equal proves the cursor it names.

Messages that are cut off, repeated or out of order do no harm: what they would have said is found by the next digest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, assert_never

from protobuf import Oneof

from shoal.sync.digest import Digest, bucket_of, differing
from shoal.sync.versions import Version
from shoal.wire.fleet.v1 import cluster_pb as pb

Phase = Literal["idle", "greeting", "live", "syncing"]

_REMOVED_KEPT = 10_000  # versions of keys that are gone: enough to know a late, older state when it comes


@dataclass(frozen=True, slots=True)
class Send:
    """Say this on the stream."""

    request: pb.WatchRequest


@dataclass(frozen=True, slots=True)
class Take:
    """New desired state of a key: into the cache and the buffer."""

    item: pb.Item


@dataclass(frozen=True, slots=True)
class Save:
    """Make everything taken so far durable with this cursor, then call ``saved``."""

    cursor: str


@dataclass(slots=True)
class Sync:
    """A sync of everything, or of some buckets, that is under way or has just ended."""

    number: int
    cursor: str
    buckets: frozenset[int]  # empty: everything
    at: Mapping[str, Version]  # the moment, per database
    keys: set[str] = field(default_factory=set)
    items: int = 0

    @property
    def full(self) -> bool:
        return not self.buckets

    def concerns(self, key: str) -> bool:
        return not self.buckets or bucket_of(key) in self.buckets


@dataclass(frozen=True, slots=True)
class FindAbsent:
    """The sync is complete: compare with the cluster (``suspects``) and ask for each that it did not name."""

    sync: Sync


Command = Send | Take | Save | FindAbsent


def causes_of(item: pb.Item) -> dict[str, str]:
    """Fields of every log line about the item: the request and the trace that led to it."""
    causes = {"correlation": item.correlation, "trace": item.trace}
    return {name: text for name, text in causes.items() if text}


def version_of(item: pb.Item) -> Version:
    return version_from(item.version)


def version_from(version: pb.Version | None) -> Version:
    if version is None:
        return Version("", 0, 0)
    return Version(version.database, version.incarnation, version.number)


def wire_version(version: Version) -> pb.Version:
    return pb.Version(database=version.database, incarnation=version.incarnation, number=version.number)


def is_removal(item: pb.Item) -> bool:
    return item.action is not None and item.action.field in ("delete", "release")


class WatchMachine:
    """One per controller; it outlives connections."""

    def __init__(self, *, cursor: str = "", items: Iterable[pb.Item] = ()) -> None:
        self.phase: Phase = "idle"
        self.cursor = cursor  # version_last_seen: everything up to here is durable
        self.observe_only = False  # the database is another one than before: deletions wait for the brake or a person
        self.welcome_reason = ""
        self.ignored = 0  # messages that made no sense where they came
        self._desired: dict[str, Version] = {}
        self._removed: dict[str, Version] = {}  # being removed, or gone; disjoint from _desired
        self._digest = Digest()  # of _desired
        self._sync: Sync | None = None
        self._digests_in_sync = 0
        for item in items:
            self._learn(item)

    # what is known

    @property
    def desired(self) -> Mapping[str, Version]:
        return self._desired

    def known(self, key: str) -> Version | None:
        """The newest version heard of, of a desired key or of one that was removed."""
        return self._desired.get(key) or self._removed.get(key)

    @property
    def digest(self) -> list[int]:
        return self._digest.buckets

    # the connection

    def connect(self, identity: pb.Identity) -> list[Command]:
        self.phase = "greeting"
        self._sync = None
        hello: Oneof[Literal["hello"], pb.Hello] = Oneof("hello", pb.Hello(identity=identity, cursor=self.cursor))
        return [Send(pb.WatchRequest(request=hello))]

    def disconnect(self) -> None:
        self.phase = "idle"
        self._sync = None

    def cursor_refused(self) -> None:
        """The control plane cannot read the cursor: begin the next time from nothing, which is a full sync."""
        self.cursor = ""

    # messages

    def receive(self, event: pb.WatchEvent) -> list[Command]:
        said = event.event
        if said is None:
            self.ignored += 1  # a kind of message from a newer control plane
            return []
        match said.field:
            case "welcome":
                return self._welcome(said.value)
            case "item":
                return self._item(said.value)
            case "progress":
                return self._progress(said.value.cursor)
            case "sync_begin":
                return self._sync_begin(said.value)
            case "sync_keys":
                return self._sync_keys(said.value)
            case "sync_end":
                return self._sync_end(said.value)
            case "digest":
                return self._digest_came(said.value)
            case "heartbeat":  # answers to heartbeats were handled before
                return []
            case _:
                assert_never(said)

    def saved(self, cursor: str) -> list[Command]:
        """Everything up to the cursor is durable. Tells the control plane when a connection is there to say it on."""
        self.cursor = cursor
        if self.phase not in ("live", "syncing"):
            return []
        received: Oneof[Literal["received"], pb.Received] = Oneof("received", pb.Received(cursor=cursor))
        return [Send(pb.WatchRequest(request=received))]

    def learned(self, item: pb.Item) -> list[Command]:
        """The control plane was asked for one object and answered."""
        return self._item(item)

    def ask_again(self, keys: Iterable[str]) -> list[Command]:
        """Have the buckets of these keys sent whole; nothing while there is no connection to ask on."""
        buckets = sorted({bucket_of(key) for key in keys})
        return self._request(buckets) if self.phase == "live" and buckets else []

    # absence

    def suspects(self, sync: Sync, live: Mapping[str, Version | None]) -> list[str]:
        """Keys that the sync should have named if they were still desired, out of what is known and what the cluster
        has (``live``). Each must be asked for before it counts as absent."""
        return sorted(key for key in {*self._desired, *live} if self._suspect(sync, key, live))

    def absent(self, sync: Sync, key: str, live: Mapping[str, Version | None], where: pb.Delete) -> list[Command]:
        """The control plane does not know the key: remove it, unless it was heard of again in the meantime."""
        version = self._suspect(sync, key, live)
        if version is None:
            return []
        delete: Oneof[Literal["delete"], pb.Delete] = Oneof("delete", where)
        tombstone = pb.Item(key=key, version=wire_version(sync.at[version.database]), action=delete)
        tombstone.by_user = key not in live  # nothing is there to be deleted, so the brake need not count it
        return self._item(tombstone)

    def _suspect(self, sync: Sync, key: str, live: Mapping[str, Version | None]) -> Version | None:
        """The version of a key that the sync should have named; None when it did, or when nothing follows from it."""
        if key in sync.keys or key in self._removed or not sync.concerns(key):
            return None
        version = self._desired.get(key) or live.get(key)
        moment = sync.at.get(version.database) if version is not None else None
        return None if version is None or moment is None or version.is_after(moment) else version

    # each message

    def _welcome(self, welcome: pb.Welcome) -> list[Command]:
        self.phase = "live"
        self.observe_only = self.observe_only or welcome.observe_only
        self.welcome_reason = welcome.reason
        return []

    def _item(self, item: pb.Item) -> list[Command]:
        if item.action is None or not item.key:
            self.ignored += 1
            return []
        if self._sync is not None:
            self._sync.items += 1
        known = self.known(item.key)
        if known is not None and not version_of(item).is_after(known):
            return []
        self._learn(item)
        return [Take(item)]

    def _learn(self, item: pb.Item) -> None:
        version = version_of(item)
        if is_removal(item):
            self._desired.pop(item.key, None)
            self._digest.drop(item.key)
            self._removed.pop(item.key, None)  # to the end: the newest are kept longest
            self._removed[item.key] = version
            if len(self._removed) > _REMOVED_KEPT:
                del self._removed[next(iter(self._removed))]
        else:
            self._removed.pop(item.key, None)
            self._desired[item.key] = version
            self._digest.put(item.key, str(version))

    def _progress(self, cursor: str) -> list[Command]:
        if not cursor or (self._sync is not None and self._sync.full):
            return []  # parts of the full sync may still be missing; its end names a cursor that covers this one
        return self._save(cursor)

    def _save(self, cursor: str) -> list[Command]:
        return [Save(cursor)] if cursor else []

    def _sync_begin(self, begin: pb.SyncBegin) -> list[Command]:
        at = {version.database: version_from(version) for version in begin.versions}
        self._sync = Sync(begin.sync, begin.cursor, frozenset(begin.buckets), at)
        self._digests_in_sync = 0
        self.phase = "syncing"
        return []

    def _sync_keys(self, part: pb.SyncKeys) -> list[Command]:
        if self._sync is None or self._sync.number != part.sync:
            self.ignored += 1
            return []
        self._sync.keys.update(part.keys)
        return []

    def _sync_end(self, end: pb.SyncEnd) -> list[Command]:
        sync = self._sync
        if sync is None or sync.number != end.sync:
            self.ignored += 1
            return []
        self._sync = None
        self.phase = "live"
        commands: list[Command] = [FindAbsent(sync)]
        if sync.full:
            commands += self._save(end.cursor or sync.cursor)
        return commands

    def _digest_came(self, digest: pb.Digest) -> list[Command]:
        if self._sync is not None:
            self._digests_in_sync += 1
            if self._digests_in_sync < 2:
                return []
            self._sync = None  # its end was lost
            self.phase = "live"
        differ = differing(self._digest.buckets, digest.buckets)
        return self._request(differ) if differ else self._save(digest.cursor)

    def _request(self, buckets: list[int]) -> list[Command]:
        asked: Oneof[Literal["buckets"], pb.BucketRequest] = Oneof("buckets", pb.BucketRequest(buckets=buckets))
        return [Send(pb.WatchRequest(request=asked))]
