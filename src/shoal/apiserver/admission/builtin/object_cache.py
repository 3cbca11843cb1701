"""A cache of the data that plugins need from the objects of one resource; it follows the store."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

from shoal.apiserver import objects
from shoal.apiserver.context import Core
from shoal.kube.objects import Obj
from shoal.store import Event, EventType

T = TypeVar("T")
_NONE: Mapping[str, object] = {}


class ObjectCache(Generic[T]):
    """``read`` returns the data to keep of an object, None to skip it. ``version`` changes with every change of that
    data; ``on_change`` is called with the namespace."""

    def __init__(
        self, core: Core, resource: str, read: Callable[[Obj], T | None], on_change: Callable[[str], None] | None = None
    ) -> None:
        self.version = 0
        self._core = core
        self._resource = resource
        self._read = read
        self._on_change = on_change
        self._kept: dict[str, dict[str, T]] = {}  # namespace -> name -> kept data

    def start(self) -> None:
        self._core.store.subscribe(self._resource, self._on_events)
        for entry in self._core.store.range(self._resource).entries:
            self._set(entry.key.namespace, entry.key.name, self._read(objects.decode(entry)))

    def get(self, name: str, namespace: str = "") -> T | None:
        kept = self._kept.get(namespace)
        return None if kept is None else kept.get(name)

    def of(self, namespace: str = "") -> Mapping[str, T]:
        """The kept data of a namespace, by object name."""
        return self._kept.get(namespace) or _NONE  # type: ignore[return-value]

    def __contains__(self, namespace: str) -> bool:
        return namespace in self._kept

    def _on_events(self, events: Sequence[Event]) -> None:
        for event in events:
            key = event.entry.key
            gone = event.type is EventType.DELETED
            self._set(key.namespace, key.name, None if gone else self._read(objects.decode(event.entry)))

    def _set(self, namespace: str, name: str, value: T | None) -> None:
        kept = self._kept.get(namespace)
        if value == (None if kept is None else kept.get(name)):
            return
        if value is not None:
            self._kept.setdefault(namespace, {})[name] = value
        elif kept is not None:
            del kept[name]
            if not kept:
                del self._kept[namespace]
        self.version += 1
        if self._on_change is not None:
            self._on_change(namespace)
