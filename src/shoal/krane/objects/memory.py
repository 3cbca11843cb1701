"""The last applied and observed objects by key, shared by an applier and an observer.

With it an observer can tell what was changed since, and an applier need not read an object that is watched anyway. An
object from here may be a moment old; each write names the version that was seen, so nothing newer is overwritten.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from shoal.krane.objects.compare import FOREIGN, additions, differences, foreign_fields
from shoal.kube.objects import Obj
from shoal.reconcile.cache import Cache
from shoal.reconcile.keys import ObjectKey, is_older
from shoal.reconcile.keys import key_of as object_key

SECRET = "Secret"
_Slot = tuple[str, ObjectKey]  # kind, and which one


def with_foreign_fields(obj: Obj) -> Obj:
    """A transform for informers: keeps of the managed fields only those of others."""
    obj[FOREIGN] = foreign_fields(obj)
    obj["metadata"].pop("managedFields", None)
    return obj


def secret_metadata(obj: Obj) -> Obj:
    """A transform for the informer of Secrets of which only the metadata is read: a server without support for that
    sends them whole, and no value may stay in memory."""
    kept: Obj = {"apiVersion": "v1", "kind": SECRET, "metadata": obj["metadata"]}
    return with_foreign_fields(kept)


@dataclass(frozen=True, slots=True)
class Written:
    """An object as it was wanted, and when the cluster had it so. ``settled`` are fields that the cluster's own rules
    make otherwise at once: to put them back again and again would change nothing."""

    want: Obj
    resource_version: str
    settled: frozenset[str] = frozenset()

    @classmethod
    def of(cls, want: Obj, made: Obj) -> Written:
        """``made`` is what the server answered."""
        return cls(want, made["metadata"]["resourceVersion"], frozenset(_fields(want, made)))

    @property
    def object_key(self) -> ObjectKey:
        return object_key(self.want)


class Memory:
    """One per controller. The applier tells what it wrote; the observer gives its caches, by kind."""

    def __init__(self, *, keeps_secrets: bool = False) -> None:
        self.caches: Mapping[str, Cache] = {}
        self._keeps_secrets = keeps_secrets
        self._written: dict[str, tuple[Written, ...]] = {}
        self._kinds: dict[str, frozenset[tuple[str, str]]] = {}  # with names
        self._judged: dict[str, dict[_Slot, tuple[Written, Obj, list[str]]]] = {}  # by key: drift as it was

    def remember(self, key: str, written: Iterable[Written]) -> None:
        """Unless it ``keeps_secrets``, the values of a Secret are not kept, only its metadata."""
        made = tuple(self._kept(one) for one in written)
        self._kinds[key] = frozenset((one.want["kind"], one.want["metadata"]["name"]) for one in made)
        self._written[key] = made

    def _kept(self, one: Written) -> Written:
        if self._keeps_secrets or one.want["kind"] != SECRET:
            return one
        return replace(one, want={name: one.want[name] for name in ("apiVersion", "kind", "metadata")})

    def has_written(self, key: str) -> bool:
        """Whether this process has applied the key."""
        return key in self._written

    def forget(self, key: str) -> None:
        self._written.pop(key, None)
        self._kinds.pop(key, None)
        self._judged.pop(key, None)

    def has_none(self, key: str, kind: str, name: str = "") -> bool:
        """Whether it is certain that the key has no object of ours of this kind, or none of this name."""
        if self._is_watched(kind):
            names = {obj["metadata"]["name"] for obj in self.caches[kind].by_index("key", key)}
        elif key in self._kinds:
            names = {each for of_kind, each in self._kinds[key] if of_kind == kind}
        else:
            return False
        return name not in names if name else not names

    def names(self, key: str, kind: str) -> set[str] | None:
        """The key's objects of a kind that were seen, or written and perhaps not seen yet; None when neither is known
        whole."""
        written = {each for of_kind, each in self._kinds.get(key, ()) if of_kind == kind}
        if self._is_watched(kind):
            return written | {obj["metadata"]["name"] for obj in self.caches[kind].by_index("key", key)}
        return written if key in self._kinds else None

    def recall(self, key: str, want: Obj) -> Obj | None:
        """The object as it was last seen, without its managed fields; None when it is not watched, was not seen, or is
        known to be newer than what was seen. Of Secrets whose values are not kept, too little was seen."""
        kind, wanted = want["kind"], object_key(want)
        if kind == SECRET and not self._keeps_secrets:
            return None
        live = self.caches[kind].get(wanted) if self._is_watched(kind) else None
        if live is None:
            return None
        for one in self._written.get(key, ()):
            if one.want["kind"] == kind and one.object_key == wanted and _is_before(live, one.resource_version):
                return None
        return live

    def _is_watched(self, kind: str) -> bool:
        return kind in self.caches and self.caches[kind].synced.is_set()

    def knows(self, key: str, obj: Obj) -> bool:
        """Whether the object was applied for the key, and is not a user's copy of it."""
        found = object_key(obj)
        return any(written.object_key == found for written in self._written.get(key, ()))

    def drift(self, key: str) -> list[str]:
        """Fields of the key's objects that are not as they were applied. What was not seen yet is not judged."""
        return [
            f"{written.want['kind']}.{path}"
            for written in self._written.get(key, ())
            if self._is_watched(written.want["kind"])
            for path in self._drift(key, written)
        ]

    def _drift(self, key: str, written: Written) -> list[str]:
        """Worked out once for what was written and what is seen: pods change much more often."""
        kind = written.want["kind"]
        live = self.caches[kind].get(written.object_key)
        if live is None:
            return _missing(written, self.caches[kind])
        judged = self._judged.setdefault(key, {})
        slot = (kind, written.object_key)
        known = judged.get(slot)
        if known is None or known[0] is not written or known[1] is not live:
            known = judged[slot] = (written, live, _drift(written, live))
        return known[2]


def _is_before(live: Obj, resource_version: str) -> bool:
    seen: str = live["metadata"]["resourceVersion"]
    return seen != resource_version and is_older(seen, resource_version)


def _missing(written: Written, cache: Cache) -> list[str]:
    seen = cache.resource_version
    return [] if seen != written.resource_version and is_older(seen, written.resource_version) else ["(deleted)"]


def _drift(written: Written, live: Obj) -> list[str]:
    if _is_before(live, written.resource_version):
        return []
    return [field for field in _fields(written.want, live) if field not in written.settled]


def _fields(want: Obj, live: Obj) -> list[str]:
    """What is otherwise in the live object than wanted, or is there in addition."""
    return [*differences(want, live), *additions(want, foreign_fields(live))]
