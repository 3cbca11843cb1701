"""The current objects, in memory: by key, in list order, by namespace and by index string.

A write costs the same with 50 000 objects as with 500, and a page costs what it returns. A whole list is cached until
the next write to its resource. A list at an older revision puts the old states of changed entries (``undo``, rebuilt
from the ring) over the current ones, so its cost depends on the page and the changes, not on the resource.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from shoal.store.journal import deleted_entry
from shoal.store.model import Attrs, Entry, Event, EventType, Key
from shoal.store.ordered import OrderedKeys

Where = Callable[[Attrs], bool]
Undo = Mapping[Key, Entry | None]

_NO_KEYS = OrderedKeys()


class Whole(tuple[Entry, ...]):
    """A whole list, the same object until the next write to its resource; ``notes`` caches data that readers derive
    from it."""

    notes: dict[object, bytes]

    def __new__(cls, entries: Iterable[Entry]) -> Whole:
        made = super().__new__(cls, entries)
        made.notes = {}
        return made


class _Table:
    """Keys of one resource. ``lists`` holds whole lists by namespace (None: all), dropped by any write."""

    __slots__ = ("index", "keys", "lists")

    def __init__(self, keys: OrderedKeys) -> None:
        self.keys = keys
        self.index: dict[str, OrderedKeys] = {}
        self.lists: dict[str | None, Whole] = {}

    def add_index(self, indexed: Iterable[str], key: Key) -> None:
        for text in indexed:
            bucket = self.index.get(text)
            if bucket is None:
                self.index[text] = OrderedKeys((key,))
            else:
                bucket.add(key)

    def drop_index(self, indexed: Iterable[str], key: Key) -> None:
        for text in indexed:
            bucket = self.index[text]
            if len(bucket) == 1:
                del self.index[text]
            else:
                bucket.remove(key)


class View:
    def __init__(self) -> None:
        self._entries: dict[Key, Entry] = {}
        self._tables: dict[str, _Table] = {}
        self.get = self._entries.get

    def replace(self, entries: Mapping[Key, Entry], revision: int) -> list[Event]:
        """Replace all objects; return the events from the old objects to the new ones. Deletions carry ``revision``."""
        changes: list[Event] = []
        for key, old in self._entries.items():
            new = entries.get(key)
            if new is None:
                changes.append(Event(EventType.DELETED, deleted_entry(old, revision), old))
            elif new.revision != old.revision or new.value != old.value:
                changes.append(Event(EventType.MODIFIED, new, old))
        changes += [Event(EventType.ADDED, entry, None) for key, entry in entries.items() if key not in self._entries]
        self._entries.clear()
        self._tables.clear()
        self.load(entries)
        return changes

    def load(self, entries: Mapping[Key, Entry]) -> None:
        """Load all objects at once, which is far cheaper than applying events."""
        self._entries.update(entries)
        ordered = sorted(entries)
        start = 0
        for stop in range(1, len(ordered) + 1):
            if stop == len(ordered) or ordered[stop][0] != ordered[start][0]:
                self._load_table(ordered[start:stop])
                start = stop

    def _load_table(self, keys: list[Key]) -> None:
        table = self._tables[keys[0].resource] = _Table(OrderedKeys(keys))
        buckets: dict[str, list[Key]] = {}
        for key in keys:
            for text in dict.fromkeys(self._entries[key].attrs.indexed):
                buckets.setdefault(text, []).append(key)
        table.index = {text: OrderedKeys(bucket) for text, bucket in buckets.items()}

    def apply(self, events: Iterable[Event]) -> None:
        entries, tables = self._entries, self._tables
        for event in events:
            entry, previous = event.entry, event.previous
            key = entry.key
            table = tables.get(key[0])
            if table is None:
                table = tables[key[0]] = _Table(OrderedKeys())
            if table.lists:
                table.lists = {}
            if previous is None:
                entries[key] = entry
                table.keys.add(key)
                table.add_index(dict.fromkeys(entry.attrs.indexed), key)
            elif event.type is EventType.DELETED:
                del entries[key]
                table.keys.remove(key)
                table.drop_index(dict.fromkeys(previous.attrs.indexed), key)
            else:
                entries[key] = entry
                was, now = previous.attrs.indexed, entry.attrs.indexed
                if was != now:
                    table.drop_index(dict.fromkeys(text for text in was if text not in now), key)
                    table.add_index(dict.fromkeys(text for text in now if text not in was), key)

    def count(self, resource: str, namespace: str | None) -> int:
        start, stop = self._keys(resource, "").bounds(resource, namespace, None)
        return stop - start

    def page(
        self,
        resource: str,
        namespace: str | None,
        after: tuple[str, str] | None,
        limit: int,
        where: Where | None,
        index: str,
        undo: Undo | None,
    ) -> tuple[Sequence[Entry], int]:
        """The entries of one page, and the number of matching entries after it."""
        if undo:
            return self._page_before(resource, namespace, after, limit, where, index, undo)
        if limit <= 0 and after is None and where is None and not index:
            return self._whole(resource, namespace), 0
        keys = self._keys(resource, index)
        start, stop = keys.bounds(resource, namespace, after)
        if where is not None:
            return _filtered(map(self._entries.__getitem__, keys.slice(start, stop)), where, limit)
        end = stop if limit <= 0 else min(start + limit, stop)
        return tuple(map(self._entries.__getitem__, keys.slice(start, end))), stop - end

    def _keys(self, resource: str, index: str) -> OrderedKeys:
        table = self._tables.get(resource)
        if table is None:
            return _NO_KEYS
        return table.index.get(index, _NO_KEYS) if index else table.keys

    def _whole(self, resource: str, namespace: str | None) -> tuple[Entry, ...]:
        table = self._tables.get(resource)
        if table is None:
            return ()
        entries = table.lists.get(namespace)
        if entries is None:
            start, stop = table.keys.bounds(resource, namespace, None)
            entries = Whole(map(self._entries.__getitem__, table.keys.slice(start, stop)))
            if entries:  # requests for namespaces that do not exist must not fill the memory
                table.lists[namespace] = entries
        return entries

    def _page_before(
        self,
        resource: str,
        namespace: str | None,
        after: tuple[str, str] | None,
        limit: int,
        where: Where | None,
        index: str,
        undo: Undo,
    ) -> tuple[Sequence[Entry], int]:
        def asked(entry: Entry | None) -> bool:
            return (
                entry is not None
                and (namespace is None or entry.key.namespace == namespace)
                and (after is None or entry.key[1:] > after)
                and (not index or index in entry.attrs.indexed)
            )

        restored = [entry for entry in undo.values() if entry is not None and asked(entry)]
        hidden = sum(1 for key in undo if asked(self._entries.get(key)))
        keys = self._keys(resource, index)
        start, stop = keys.bounds(resource, namespace, after)
        matching = stop - start - hidden + len(restored)
        end = stop if limit <= 0 or where is not None else min(start + limit + hidden, stop)
        unchanged = [self._entries[key] for key in keys.slice(start, end) if key not in undo]
        merged = sorted(unchanged + restored, key=_key_of)
        if where is not None:
            return _filtered(merged, where, limit)
        entries = merged if limit <= 0 else merged[:limit]
        return entries, matching - len(entries)


def _key_of(entry: Entry) -> Key:
    return entry.key


def _filtered(entries: Iterable[Entry], where: Where, limit: int) -> tuple[Sequence[Entry], int]:
    matching = [entry for entry in entries if where(entry.attrs)]
    if limit <= 0:
        return matching, 0
    return matching[:limit], max(0, len(matching) - limit)
