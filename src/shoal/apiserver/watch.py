"""Watches: many clients, one encoding of each event, no task and no queue per client.

Watchers with the same request (resource, scope, selector, representation) form a *group*. When the store
publishes a batch, each group that can be concerned encodes it once and hands the same bytes to all its *live*
watchers. A watcher whose client reads too slowly stops being live and keeps only a cursor; when the client has caught
up with what was sent, the cursor is read forward from the store's ring until the watcher is live again. One that
falls off the ring gets 410 and is closed.

Groups with a trigger (a node's pods, one object by name) are found through the event's index strings, so five
thousand kubelets do not cost five thousand comparisons per pod event.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import orjson

from shoal.apiserver.context import Call, Core
from shoal.apiserver.messages import Sink, frame
from shoal.apiserver.negotiate import YAML, Representation, flag, integer, representation
from shoal.apiserver.objects import at_revision
from shoal.apiserver.read import check_list_options, include_object, parse_revision, printer_of, reach
from shoal.apiserver.selection import Selection, select
from shoal.base.logs import get_logger
from shoal.base.tasks import OwnedTasks
from shoal.errors import ApiError, Expired, InternalError, NotAcceptable
from shoal.store import Compacted, Entry, Event, EventType, Watch

if TYPE_CHECKING:
    from shoal.apiserver.registry import Served
    from shoal.kube.resources import Resource

_TICK_S = 1.0
_ADDED, _MODIFIED, _DELETED = b"ADDED", b"MODIFIED", b"DELETED"
_TYPES = {EventType.ADDED: _ADDED, EventType.MODIFIED: _MODIFIED, EventType.DELETED: _DELETED}
_CATCH_UP = 16  # events encoded at a time for a watcher that is behind
_CONVERTED = 500  # the same where a webhook converts them: one call for all
_PART_BYTES = 32 * 1024  # about as much is encoded at a time for one watcher: it may be one of thousands

_log = get_logger("watch")

Encode = Callable[[bytes, Entry, bytes, int], bytes]  # (type, entry, bytes of the object, revision) -> one line


class WatchGroup:
    """Watchers that see the same bytes."""

    __slots__ = ("encode", "key", "live", "members", "selection", "served", "trigger")

    def __init__(self, key: Any, served: Served, selection: Selection, encode: Encode) -> None:
        self.key = key
        self.served = served
        self.selection = selection
        self.encode = encode
        self.members = 0
        self.live: set[Watcher] = set()
        self.trigger = selection.index if selection.index.startswith("@") else ""
        if selection.name is not None:
            self.trigger = f"={selection.name}"

    def lines(self, events: Sequence[Event]) -> bytes:
        """The events this group sees, one line each."""
        selection, encode = self.selection, self.encode
        namespace, where = selection.namespace, selection.where
        out = []
        for event in events:
            entry = event.entry
            if namespace is not None and entry.key.namespace != namespace:
                continue
            if where is None:
                out.append(encode(_TYPES[event.type], entry, entry.value, entry.revision))
                continue
            previous = event.previous
            was = previous is not None and where(previous.attrs)
            if event.type is EventType.DELETED:
                if was:
                    out.append(encode(_DELETED, entry, entry.value, entry.revision))
            elif where(entry.attrs):
                out.append(encode(_MODIFIED if was else _ADDED, entry, entry.value, entry.revision))
            elif was and previous is not None:
                # it left the selection: DELETED for this watcher, with its last matching state
                out.append(encode(_DELETED, previous, at_revision(previous, entry.revision), entry.revision))
        return b"".join(out)

    def foreign(self, events: Sequence[Event]) -> bool:
        """Whether a webhook must convert the events for this group."""
        if self.served.converter is None:
            return False
        prefix, previous = self.served.prefix, self.selection.where is not None
        return any(
            not event.entry.value.startswith(prefix)
            or (previous and event.previous is not None and not event.previous.value.startswith(prefix))
            for event in self.near(events)
        )

    def near(self, events: Sequence[Event]) -> Sequence[Event]:
        """The events of the group's namespace."""
        namespace = self.selection.namespace
        return events if namespace is None else [event for event in events if event.entry.key.namespace == namespace]


class Watcher:
    """One watch request; the ``Stream`` that the HTTP connection drives."""

    __slots__ = (
        "_converting", "_cursor", "_initial", "_sink", "_timeout", "bookmarks", "content_type", "group", "headers",
        "hub", "initial_end", "next_bookmark", "revision", "status", "timeout_s",
    )  # fmt: skip

    def __init__(
        self, hub: WatchHub, group: WatchGroup, revision: int, initial: Sequence[Entry], timeout_s: float,
        *, bookmarks: bool, initial_end: bool,
    ) -> None:  # fmt: skip
        self.status = 200
        self.content_type = b"application/json"
        self.headers: Sequence[tuple[bytes, bytes]] = ()
        self.hub = hub
        self.group = group
        self.revision = revision  # everything up to here has been sent
        self.bookmarks = bookmarks
        self.initial_end = initial_end  # the bookmark that closes the initial events is still owed
        self.timeout_s = timeout_s
        self.next_bookmark = 0.0
        self._initial: Iterator[Entry] | None = iter(initial) if initial else None
        self._sink: Sink | None = None
        self._cursor: Watch | None = None
        self._converting: asyncio.Task[None] | None = None
        self._timeout: asyncio.TimerHandle | None = None

    def attach(self, sink: Sink) -> None:
        self._sink = sink
        self.hub.joined(self)
        self._timeout = self.hub.loop.call_later(self.timeout_s, self._expire)
        self.on_writable()

    def on_writable(self) -> None:
        """Send pending data: initial objects, then events from the cursor, until live or the client lags again."""
        sink = self._sink
        if sink is None or self in self.group.live or self._converting is not None:
            return
        try:
            while self._initial is not None:
                if not sink.writable:
                    return
                self._write_initial(sink, self._initial)
            if self.initial_end:
                self.initial_end = False
                sink.write(frame(self.hub.bookmark(self.group, self.revision, initial_end=True)))
            self._catch_up(sink)
        except Exception as error:  # it is not called again: the client would wait for ever
            _log.error("a watch failed", resource=self.group.served.key, error=error)
            self.break_off()

    def _write_initial(self, sink: Sink, entries: Iterator[Entry]) -> None:
        """The next part of the initial objects."""
        encode, lines, size = self.group.encode, [], 0
        for entry in entries:
            lines.append(encode(_ADDED, entry, entry.value, entry.revision))
            size += len(lines[-1])
            if size >= _PART_BYTES:
                break
        else:
            self._initial = None
        if lines:
            sink.write(frame(b"".join(lines)))

    def _catch_up(self, sink: Sink) -> None:
        try:
            if self._cursor is None:
                self._cursor = self.hub.core.store.watch(self.group.served.key, self.revision)
            limit = _CATCH_UP if self.group.served.converter is None else _CONVERTED
            while sink.writable:
                events = self._cursor.take(limit)
                if not events:
                    self._cursor.close()
                    self._cursor = None
                    self.revision = self.hub.core.store.revision
                    self.group.live.add(self)
                    return
                if self.group.foreign(events):
                    self._converting = self.hub.tasks.start(self._convert(events), name="watch/convert")
                    return
                self._write(sink, events)
        except Compacted as compacted:
            self._fail(Expired(f"too old resource version: {compacted.revision} ({compacted.oldest})"))

    def _write(self, sink: Sink, events: Sequence[Event]) -> None:
        lines = self.group.lines(events)
        self.revision = events[-1].entry.revision
        if lines:
            sink.write(frame(lines))

    async def _convert(self, events: Sequence[Event]) -> None:
        """Write events that a webhook has to convert first, then go on."""
        group, revision = self.group, events[-1].entry.revision
        converter = group.served.converter
        assert converter is not None
        try:
            near = await converter.events(group.served, group.near(events), previous=group.selection.where is not None)
        except Exception as error:
            self._converting = None
            if isinstance(error, ApiError):
                self._fail(error)
                return
            self.break_off()
            raise
        self._converting = None
        if self._sink is not None:
            self._write(self._sink, near)
            self.revision = revision
            self.on_writable()

    def fall_behind(self, before: int) -> None:
        """New events cannot be sent at once: continue from the cursor ``before`` them."""
        self.group.live.discard(self)
        self.revision = max(self.revision, before)
        self.hub.loop.call_soon(self.on_writable)

    def send(self, framed: bytes, revision: int) -> None:
        """A batch as the whole group sees it. Only called while live."""
        sink = self._sink
        if sink is None:
            return
        sink.write(framed)
        self.revision = revision
        if not sink.writable:
            self.group.live.discard(self)  # the cursor takes over from here

    def bookmark_due(self, now: float) -> None:
        if self.bookmarks and now >= self.next_bookmark and self in self.group.live and self._sink is not None:
            self.next_bookmark = now + self.hub.core.config.bookmark_every_s
            self._sink.write(frame(self.hub.bookmark(self.group, self.hub.core.store.revision)))

    def _expire(self) -> None:
        """The requested timeout is over: send a last bookmark so that the client can resume, then end cleanly."""
        if self.bookmarks and self in self.group.live and self._sink is not None:
            self._sink.write(frame(self.hub.bookmark(self.group, self.hub.core.store.revision)))
        self._finish()

    def break_off(self) -> None:
        """End the watch with an error, so that the client begins again; what is wrong is in the log."""
        self._fail(InternalError("Internal error occurred: the events could not be sent"))

    def _fail(self, error: ApiError) -> None:
        if self._sink is not None:
            line = b'{"type":"ERROR","object":%b}\n' % orjson.dumps(error.status())
            self._sink.write(frame(line))
        self._finish()

    def _finish(self) -> None:
        sink, self._sink = self._sink, None
        self._leave()
        if sink is not None:
            sink.end()

    def on_closed(self) -> None:
        self._sink = None
        self._leave()

    def _leave(self) -> None:
        if self._timeout is not None:
            self._timeout.cancel()
            self._timeout = None
        if self._cursor is not None:
            self._cursor.close()
            self._cursor = None
        if self._converting is not None:
            self._converting.cancel()
            self._converting = None
        self.hub.left(self)


class _Resource:
    """The watch groups of one stored resource, indexed by the events they can match."""

    __slots__ = ("broad", "triggered", "unsubscribe")

    def __init__(self) -> None:
        self.broad: dict[Any, WatchGroup] = {}  # must look at every event
        self.triggered: dict[str, dict[Any, WatchGroup]] = {}  # only events that carry this index string
        self.unsubscribe: Callable[[], None] | None = None

    def empty(self) -> bool:
        return not self.broad and not self.triggered

    def find(self, key: Any, trigger: str) -> WatchGroup | None:
        return (self.triggered.get(trigger, {}) if trigger else self.broad).get(key)

    def add(self, group: WatchGroup) -> None:
        (self.triggered.setdefault(group.trigger, {}) if group.trigger else self.broad)[group.key] = group

    def remove(self, group: WatchGroup) -> None:
        if not group.trigger:
            self.broad.pop(group.key, None)
            return
        same = self.triggered.get(group.trigger, {})
        same.pop(group.key, None)
        if not same:
            self.triggered.pop(group.trigger, None)


class WatchHub:
    """All watches of a server."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.loop = asyncio.get_running_loop()
        self.tasks = OwnedTasks()  # conversions of events
        self._resources: dict[str, _Resource] = {}
        self._watchers: set[Watcher] = set()
        self._ticker: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start sending bookmarks."""
        self._ticker = self.loop.call_later(_TICK_S, self._tick)

    # -- fan-out -------------------------------------------------------------------------------------------------

    def _publish(self, key: str, events: Sequence[Event]) -> None:
        resource = self._resources.get(key)
        if resource is None:
            return
        revision = events[-1].entry.revision
        for group in list(resource.broad.values()):
            if group.live:
                self._send(group, events, revision)
        if resource.triggered:
            self._publish_triggered(resource, events, revision)

    def _publish_triggered(self, resource: _Resource, events: Sequence[Event], revision: int) -> None:
        concerned: dict[int, tuple[WatchGroup, list[Event]]] = {}
        triggered = resource.triggered
        for event in events:
            marks = {f"={event.entry.key.name}", *event.entry.attrs.indexed}
            if event.previous is not None:
                marks.update(event.previous.attrs.indexed)
            for mark in marks:
                for group in triggered.get(mark, {}).values():
                    concerned.setdefault(id(group), (group, []))[1].append(event)
        for group, seen in concerned.values():
            if group.live:
                self._send(group, seen, revision)

    @staticmethod
    def _send(group: WatchGroup, events: Sequence[Event], revision: int) -> None:
        if group.foreign(events):
            for watcher in list(group.live):
                watcher.fall_behind(events[0].entry.revision - 1)
            return
        try:
            lines = group.lines(events)
        except Exception as error:
            # These watchers would miss the batch without knowing it. Other groups have nothing to do with it.
            _log.error("events of a watch could not be encoded", resource=group.served.key, error=error)
            for watcher in list(group.live):
                watcher.break_off()
            return
        if not lines:
            return
        framed = frame(lines)
        for watcher in list(group.live):
            watcher.send(framed, revision)

    # -- membership ----------------------------------------------------------------------------------------------

    def group(self, call: Call, selection: Selection, choice: Representation) -> WatchGroup:
        served = call.served
        key: tuple[Any, ...] = (
            served,
            selection.namespace,
            selection.text,
            choice,
            call.query.get("includeObject", ""),
        )
        if choice.as_kind == "Table":
            key = (*key, object())  # the first event of each stream is special: nothing to share
        made = WatchGroup(key, served, selection, self._encoder(call, choice))
        resource = self._resources.get(served.key)
        if resource is not None:
            found = resource.find(key, made.trigger)
            if found is not None:
                return found
        return made

    def joined(self, watcher: Watcher) -> None:
        group = watcher.group
        key = group.served.key
        resource = self._resources.get(key)
        if resource is None:
            resource = self._resources[key] = _Resource()
            resource.unsubscribe = self.core.store.subscribe(
                key, lambda events: self._publish(key, events), lambda: self._reset(key)
            )
        # an answer may wait behind others on its connection: an equal group may have been added, or this one removed
        known = resource.find(group.key, group.trigger)
        if known is None:
            resource.add(group)
        else:
            group = watcher.group = known
        group.members += 1
        watcher.next_bookmark = self.core.clock.monotonic() + self.core.config.bookmark_every_s
        self._watchers.add(watcher)

    def left(self, watcher: Watcher) -> None:
        if watcher not in self._watchers:
            return
        self._watchers.discard(watcher)
        group = watcher.group
        group.live.discard(watcher)
        group.members -= 1
        resource = self._resources.get(group.served.key)
        if group.members == 0 and resource is not None:
            resource.remove(group)
            if resource.empty():
                del self._resources[group.served.key]
                if resource.unsubscribe is not None:
                    resource.unsubscribe()

    def counts(self) -> Iterator[tuple[Resource, str, int]]:
        """The number of watchers of each group, with its resource and scope."""
        for resource in self._resources.values():
            for groups in (resource.broad, *resource.triggered.values()):
                for group in groups.values():
                    selection = group.selection
                    scope = "cluster" if selection.namespace is None else "namespace"
                    yield group.served.resource, "resource" if selection.name else scope, group.members

    def _reset(self, key: str) -> None:
        """The store lost revisions that these watches have sent: each finds this at its cursor and ends."""
        for watcher in [w for w in self._watchers if w.group.served.key == key]:
            watcher.group.live.discard(watcher)
            watcher.on_writable()

    def end_resource(self, key: str) -> None:
        """Close the watches of a resource whose definition was changed or removed."""
        for watcher in [w for w in self._watchers if w.group.served.key == key]:
            watcher._finish()

    def stop(self) -> None:
        if self._ticker is not None:
            self._ticker.cancel()
        for watcher in list(self._watchers):
            watcher._finish()

    def _tick(self) -> None:
        self._ticker = self.loop.call_later(_TICK_S, self._tick)  # first: an error must not end the series
        now = self.core.clock.monotonic()
        for watcher in list(self._watchers):
            watcher.bookmark_due(now)

    # -- encoding ------------------------------------------------------------------------------------------------

    def _encoder(self, call: Call, choice: Representation) -> Encode:
        served = call.served
        if choice.as_kind == "Table":
            return self._table_encoder(call)
        if choice.as_kind == "PartialObjectMetadata":
            return self._partial_encoder(call)
        if served.from_storage is None and served.crd is None:
            return _plain_line

        def converted(kind: bytes, entry: Entry, value: bytes, revision: int) -> bytes:
            if not served.current(entry):
                value = served.encode(served.decode(entry), revision)
            return b'{"type":"%b","object":%b}\n' % (kind, value)

        return converted

    def _table_encoder(self, call: Call) -> Encode:
        from shoal.kube import tables

        served, include, use, clock = call.served, include_object(call), printer_of(call), self.core.clock
        first = True

        def line(kind: bytes, entry: Entry, value: bytes, revision: int) -> bytes:
            nonlocal first
            obj = served.present(orjson.loads(value), entry)
            table = tables.watch_table(served.resource, obj, first, include, clock.wall_s(), use=use)
            first = False
            return b'{"type":"%b","object":%b}\n' % (kind, orjson.dumps(table))

        return line

    def _partial_encoder(self, call: Call) -> Encode:
        from shoal.kube import tables

        served = call.served

        def line(kind: bytes, entry: Entry, value: bytes, revision: int) -> bytes:
            obj = tables.partial_object(served.present(orjson.loads(value), entry))
            return b'{"type":"%b","object":%b}\n' % (kind, orjson.dumps(obj))

        return line

    def bookmark(self, group: WatchGroup, revision: int, *, initial_end: bool = False) -> bytes:
        """A bookmark line: the kind, a revision, nothing else."""
        resource = group.served.resource
        choice: Representation = group.key[3]
        metadata: dict[str, Any] = {"resourceVersion": str(revision), "creationTimestamp": None}
        if initial_end:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        kind, api_version = resource.kind, resource.api_version
        if choice.as_kind == "PartialObjectMetadata":
            kind, api_version = "PartialObjectMetadata", "meta.k8s.io/v1"
        if choice.as_kind == "Table":
            partial = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}
            obj: dict[str, Any] = {
                "kind": "Table",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": {"resourceVersion": str(revision)},
                "columnDefinitions": [],
                "rows": [{"cells": [], "object": partial}],
            }
        else:
            obj = {"kind": kind, "apiVersion": api_version, "metadata": metadata}
        return b'{"type":"BOOKMARK","object":%b}\n' % orjson.dumps(obj)


def _plain_line(kind: bytes, entry: Entry, value: bytes, revision: int) -> bytes:
    return b'{"type":"%b","object":%b}\n' % (kind, value)


async def watch(hub: WatchHub, call: Call) -> Watcher:
    """Open a watch; errors of the request itself are raised before the stream starts, 410 comes inside it."""
    check_list_options(call, watch=True)
    core, query = hub.core, call.query
    choice = _watch_representation(call)
    selection = select(call)
    version = query.get("resourceVersion", "")
    start = parse_revision(version) if version else 0
    wanted = query.get("sendInitialEvents")
    send_initial = flag(query, "sendInitialEvents") if wanted is not None else start == 0
    if start:
        await reach(core, start)
    else:
        await core.store.fresh()
    initial: Sequence[Entry] = ()
    revision = start or core.store.revision
    if send_initial:
        stored = selection.before_conversion(call)
        named = stored.entries(core.store, call.served)
        if named is not None:
            initial, revision = named, core.store.revision
        else:
            page = core.store.range(call.served.key, stored.namespace, where=stored.where, index=stored.index)
            initial, revision = page.entries, page.revision
    if call.served.converter is not None:
        initial = selection.of(await call.served.converter.entries(call.served, initial))
    bookmarks = flag(query, "allowWatchBookmarks")
    group = hub.group(call, selection, choice)
    return Watcher(
        hub, group, revision, initial, _timeout_s(core, call),
        bookmarks=bookmarks, initial_end=send_initial and bookmarks,
    )  # fmt: skip


def _watch_representation(call: Call) -> Representation:
    choice = representation(call.request.headers.get(b"accept"), collection=False)
    if choice.media == YAML:
        raise NotAcceptable("a watch is a stream of JSON documents: accept application/json")
    return choice


def _timeout_s(core: Core, call: Call) -> float:
    asked = integer(call.query, "timeoutSeconds")
    if asked is not None and asked > 0:
        return float(asked)
    low, high = core.config.watch_timeout_s
    return low + (high - low) * int(core.ids.new_uid()[:8], 16) / 0xFFFFFFFF
