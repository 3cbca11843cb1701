"""The informer's cache: the last seen objects of a resource, with indexes, and handlers called for each change.

One reflector writes whole lists (``replace``) and single changes (``upsert``, ``remove``); a resync corrects what it
has missed. The cache never awaits, so a reader never sees half a change. Objects belong to the cache: readers must not
change them (``Cache(guard=True)`` detects it). Handlers only enqueue.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

import orjson

from shoal.base.logs import get_logger
from shoal.kube.labels import Selector
from shoal.kube.objects import Obj
from shoal.reconcile.keys import ObjectKey, is_older, key_of, version_of

Transform = Callable[[Obj], Obj]
IndexFunction = Callable[[Obj], Iterable[str]]

_NAMESPACE = "namespace"
_LABELS = "labels"
_TOMBSTONES = 4096

log = get_logger("reconcile.cache")


class ChangeType(StrEnum):
    ADDED = "added"
    UPDATED = "updated"
    DELETED = "deleted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change of one object. ``old`` is the previous state in the cache, ``new`` the current one."""

    type: ChangeType
    key: ObjectKey
    old: Obj | None = None
    new: Obj | None = None
    final_state_known: bool = True  # False: the deletion event was missed; ``old`` is the last state seen

    @property
    def object(self) -> Obj:
        """The current state, or the last one of a deleted object."""
        found = self.new if self.new is not None else self.old
        assert found is not None
        return found


Handler = Callable[[Change], None]


def without_managed_fields(obj: Obj) -> Obj:
    """A transform that removes ``managedFields``: often half of an object, and no controller reads it."""
    obj["metadata"].pop("managedFields", None)
    return obj


class _Index:
    """Value → keys of the objects that have it."""

    __slots__ = ("function", "values")

    def __init__(self, function: IndexFunction) -> None:
        self.function = function
        self.values: dict[str, dict[ObjectKey, None]] = {}  # inner dicts keep insertion order

    def add(self, key: ObjectKey, obj: Obj) -> None:
        for value in self.function(obj):
            self.values.setdefault(value, {})[key] = None

    def remove(self, key: ObjectKey, obj: Obj) -> None:
        for value in self.function(obj):
            keys = self.values.get(value)
            if keys is not None:
                keys.pop(key, None)
                if not keys:
                    del self.values[value]

    def keys(self, value: str) -> Iterable[ObjectKey]:
        return self.values.get(value, {})


def _namespaces(obj: Obj) -> Iterable[str]:
    return (obj["metadata"].get("namespace") or "",)


def _labels(obj: Obj) -> Iterable[str]:
    return (f"{key}={value}" for key, value in (obj["metadata"].get("labels") or {}).items())


class Cache:
    """Objects by key. ``synced`` is set when the handlers have seen the first whole list."""

    def __init__(
        self,
        *,
        transform: Transform = without_managed_fields,
        indexes: Mapping[str, IndexFunction] | None = None,
        guard: bool = False,
    ) -> None:
        self.synced = asyncio.Event()
        self.resource_version = ""  # of the last list, event or bookmark
        self._objects: dict[ObjectKey, Obj] = {}
        self._transform = transform
        self._indexes = {_NAMESPACE: _Index(_namespaces)}
        self._handlers: list[Handler] = []
        # revisions of deletions, so that a late older event does not restore the object; bounded, oldest dropped
        self._tombstones: OrderedDict[ObjectKey, str] = OrderedDict()
        self._fingerprints: dict[ObjectKey, bytes] | None = {} if guard else None
        for name, function in (indexes or {}).items():
            self.add_index(name, function)

    # reading

    def __len__(self) -> int:
        return len(self._objects)

    def __contains__(self, key: ObjectKey) -> bool:
        return key in self._objects

    def __iter__(self) -> Iterator[Obj]:
        return iter(tuple(self._objects.values()))

    def get(self, key: ObjectKey) -> Obj | None:
        return self._objects.get(key)

    def keys(self) -> tuple[ObjectKey, ...]:
        return tuple(self._objects)

    def select(self, selector: Selector | None = None, *, namespace: str = "") -> tuple[Obj, ...]:
        """The objects with these labels, in all namespaces or in one."""
        objects = self._objects
        keys: Iterable[ObjectKey] = objects
        hint = selector.index_hint() if selector is not None else None
        if hint is not None:
            keys = self._label_index().keys(hint)
        elif namespace:
            keys = self._indexes[_NAMESPACE].keys(namespace)
        found = (objects[key] for key in keys if not namespace or key.namespace == namespace)
        if selector is None or selector.everything:
            return tuple(found)
        matches = selector.matches
        return tuple(obj for obj in found if matches(obj["metadata"].get("labels") or {}))

    def by_index(self, name: str, value: str) -> tuple[Obj, ...]:
        """The objects for which the index function returned ``value``."""
        return tuple(self._objects[key] for key in self._indexes[name].keys(value))

    def add_index(self, name: str, function: IndexFunction) -> None:
        """Index by a function that depends on the object alone. Adding the same function again has no effect; another
        function under the same name raises."""
        present = self._indexes.get(name)
        if present is not None:
            if present.function is not function:
                raise ValueError(f"the index {name!r} already exists with another function")
            return
        index = self._indexes[name] = _Index(function)
        for key, obj in self._objects.items():
            index.add(key, obj)

    def _label_index(self) -> _Index:
        # built on the first use: many caches are never read by label
        self.add_index(_LABELS, _labels)
        return self._indexes[_LABELS]

    # writing: only the reflector and the resync of the informer call these

    def shaped(self, obj: Obj) -> Obj:
        """The object after the transform, for callers that collect many before ``replace``."""
        return self._transform(obj)

    def replace(self, objects: Iterable[Obj], resource_version: str, *, shaped: bool = False) -> None:
        """Take a whole list: objects that are not in it are removed, even those newer than the list."""
        fresh = {key_of(obj): obj for obj in objects}
        self._tombstones.clear()  # the list is authoritative, even if the server's history was reset
        for key in [key for key in self._objects if key not in fresh]:
            _notify(self._handlers, self._drop(key, self._objects[key], final_state_known=False))
        for key, obj in fresh.items():
            old = self._objects.get(key)
            if old is None or version_of(old) != version_of(obj) or _is_another(old, obj):
                _notify(self._handlers, self._put(key, old, obj if shaped else self._transform(obj)))
        self.resource_version = resource_version
        self.synced.set()

    def upsert(self, obj: Obj) -> bool:
        """Take an added or changed object; return False if the cache has this or a newer version."""
        key, version = key_of(obj), version_of(obj)
        old = self._objects.get(key)
        known = version_of(old) if old is not None else self._tombstones.get(key)
        if known is not None and is_older(version, known):
            return False
        self._tombstones.pop(key, None)
        _notify(self._handlers, self._put(key, old, self._transform(obj)))
        return True

    def remove(self, obj: Obj) -> bool:
        """Take a deletion; ``obj`` is the last state, with the resourceVersion of the deletion."""
        key, version = key_of(obj), version_of(obj)
        old = self._objects.get(key)
        if old is None or (version != version_of(old) and is_older(version, version_of(old))):
            return False
        self._bury(key, version)
        _notify(self._handlers, self._drop(key, self._transform(obj), final_state_known=True))
        return True

    def _bury(self, key: ObjectKey, version: str) -> None:
        self._tombstones[key] = version
        if len(self._tombstones) > _TOMBSTONES:
            self._tombstones.popitem(last=False)

    def remove_missed(self, key: ObjectKey, revision: str) -> bool:
        """Take a deletion whose event was missed: a list at ``revision`` does not have the object. Return False if the
        cache does not have it either, or has a newer one."""
        old = self._objects.get(key)
        if old is None or not is_older(version_of(old), revision):
            return False
        self._bury(key, revision)
        _notify(self._handlers, self._drop(key, old, final_state_known=False))
        return True

    def observe(self, resource_version: str) -> None:
        """Record that the cache is at least at this revision."""
        self.resource_version = resource_version

    def _put(self, key: ObjectKey, old: Obj | None, new: Obj) -> Change:
        if old is not None and _is_another(old, new):
            # its deletion was missed: handlers that keep state by uid need the event
            _notify(self._handlers, self._drop(key, old, final_state_known=False))
            old = None
        for index in self._indexes.values():
            if old is not None:
                index.remove(key, old)
            index.add(key, new)
        self._objects[key] = new
        if self._fingerprints is not None:
            self._check(key, old)
            self._fingerprints[key] = _fingerprint(new)
        return Change(type=ChangeType.ADDED if old is None else ChangeType.UPDATED, key=key, old=old, new=new)

    def _drop(self, key: ObjectKey, last: Obj, *, final_state_known: bool) -> Change:
        old = self._objects.pop(key)
        for index in self._indexes.values():
            index.remove(key, old)
        if self._fingerprints is not None:
            self._check(key, old)
            del self._fingerprints[key]
        return Change(type=ChangeType.DELETED, key=key, old=last, final_state_known=final_state_known)

    # handlers

    def add_handler(self, handler: Handler) -> None:
        """Call ``handler`` for each existing object now, and for each later change."""
        self._handlers.append(handler)
        for key, obj in tuple(self._objects.items()):
            _notify((handler,), Change(type=ChangeType.ADDED, key=key, new=obj))

    def remove_handler(self, handler: Handler) -> None:
        self._handlers.remove(handler)

    # detects readers that change objects

    def verify(self) -> None:
        """With ``guard``: raise if a reader has changed an object of the cache."""
        for key, obj in self._objects.items():
            self._check(key, obj)

    def _check(self, key: ObjectKey, obj: Obj | None) -> None:
        if obj is None or self._fingerprints is None:
            return
        if self._fingerprints[key] != _fingerprint(obj):
            raise RuntimeError(f"{key} was changed in the cache; copy an object before changing it")


def _notify(handlers: Iterable[Handler], change: Change) -> None:
    for handler in tuple(handlers):
        try:
            handler(change)
        except Exception as error:  # a failing handler must not keep the change from the others
            log.error("cache handler failed", error=error, key=str(change.key), change=change.type)


def _is_another(old: Obj, new: Obj) -> bool:
    return bool(old["metadata"].get("uid") != new["metadata"].get("uid"))


def _fingerprint(obj: Obj) -> bytes:
    return orjson.dumps(obj)
