"""This process's own writes that its caches do not show yet, so that it never decides on outdated objects."""

from __future__ import annotations

from collections.abc import Iterable

from shoal.base.clock import Clock
from shoal.kube.objects import Obj
from shoal.reconcile.keys import ObjectKey, is_older, key_of, version_of

_FORGOTTEN_S = 10.0  # a cache that has not shown a write by then shows something newer, or the object is gone


class Overlay:
    """The server's answers to writes of one resource. Where versions cannot be compared the cached object is used; a
    write based on an old copy then fails at its resourceVersion."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._written: dict[ObjectKey, tuple[Obj, float]] = {}
        self._deleted: dict[ObjectKey, tuple[str, float]] = {}  # uid

    def wrote(self, obj: Obj) -> None:
        self._written[key_of(obj)] = obj, self._clock.monotonic()

    def deleted(self, obj: Obj) -> None:
        key = key_of(obj)
        self._written.pop(key, None)
        self._deleted[key] = obj["metadata"].get("uid", ""), self._clock.monotonic()

    def over(self, cached: Iterable[Obj], namespace: str, wanted: str, label: str) -> list[Obj]:
        """The cached objects, each in its newer version, and the objects created with this label; in order of keys."""
        self._forget()
        found: dict[ObjectKey, Obj] = {}
        for obj in cached:
            key = key_of(obj)
            if key in self._deleted and self._deleted[key][0] == obj["metadata"].get("uid", ""):
                continue
            found[key] = self.over_one(obj)
        for key, (obj, _) in self._written.items():
            labels = obj["metadata"].get("labels") or {}
            if key not in found and key.namespace == namespace and labels.get(label) == wanted:
                found[key] = obj
        return [found[key] for key in sorted(found)]

    def over_one(self, cached: Obj) -> Obj:
        """The cached object, or our newer version of it."""
        key = key_of(cached)
        known = self._written.get(key)
        if known is None:
            return cached
        ours = known[0]
        if version_of(ours) != version_of(cached) and is_older(version_of(cached), version_of(ours)):
            return ours
        del self._written[key]
        return cached

    def _forget(self) -> None:
        limit_s = self._clock.monotonic() - _FORGOTTEN_S
        for key in [key for key, (_, at_s) in self._written.items() if at_s < limit_s]:
            del self._written[key]
        for key in [key for key, (_, at_s) in self._deleted.items() if at_s < limit_s]:
            del self._deleted[key]
