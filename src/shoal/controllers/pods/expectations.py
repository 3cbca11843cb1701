"""Expectations: a controller does not decide again before its caches show its own writes.

The server's response has the revision of a write, and a cache knows its own revision; so no counting of events is
needed, and an object that was created and deleted unseen is not waited for. A deletion is visible when the object is
gone or terminating. An expectation expires after five minutes: the cluster may have been restored from a backup.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from shoal.base.clock import Clock
from shoal.kube.objects import Obj
from shoal.reconcile.cache import Cache
from shoal.reconcile.keys import ObjectKey, key_of, revision_of, version_of

TTL_S: Final = 300.0
RECHECK_S: Final = 1.0  # normally events end the wait; this covers lost ones


@dataclass(slots=True)
class _Pending:
    until_s: float
    revisions: dict[Cache, int] = field(default_factory=dict)  # the newest write, which the cache must show
    # for servers with non-numeric versions: a write is visible when the object exists
    present: list[tuple[Cache, ObjectKey, str]] = field(default_factory=list)
    gone: list[tuple[Cache, ObjectKey, str]] = field(default_factory=list)

    def over(self) -> bool:
        for cache, revision in self.revisions.items():
            shown = revision_of(cache.resource_version)
            if shown is not None and shown < revision:
                return False
        self.revisions.clear()
        self.present = [each for each in self.present if not _is_present(*each)]
        self.gone = [each for each in self.gone if not _is_gone(*each)]
        return not self.present and not self.gone


def _is_present(cache: Cache, key: ObjectKey, uid: str) -> bool:
    found = cache.get(key)
    return found is not None and found["metadata"].get("uid") == uid


def _is_gone(cache: Cache, key: ObjectKey, uid: str) -> bool:
    found = cache.get(key)
    return (
        found is None or found["metadata"].get("uid") != uid or found["metadata"].get("deletionTimestamp") is not None
    )


class Expectations:
    """The expectations of one controller, by the uid of the owner it writes for."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._pending: dict[str, _Pending] = {}

    def wrote(self, owner: str, cache: Cache, answer: Obj) -> None:
        """Expect a created or changed object; ``answer`` is the server's response."""
        pending = self._of(owner)
        revision = revision_of(version_of(answer))
        if revision is None:
            pending.present.append((cache, key_of(answer), answer["metadata"].get("uid", "")))
        elif revision > pending.revisions.get(cache, -1):
            pending.revisions[cache] = revision

    def deleted(self, owner: str, cache: Cache, obj: Obj) -> None:
        """Expect the deletion of an object."""
        self._of(owner).gone.append((cache, key_of(obj), obj["metadata"].get("uid", "")))

    def satisfied(self, owner: str) -> bool:
        """Whether the caches show all writes, or the expectation has expired."""
        pending = self._pending.get(owner)
        if pending is None:
            return True
        if not pending.over() and self._clock.monotonic() < pending.until_s:
            return False
        del self._pending[owner]
        return True

    def forget(self, owner: str) -> None:
        self._pending.pop(owner, None)

    def _of(self, owner: str) -> _Pending:
        pending = self._pending.get(owner)
        if pending is None:
            pending = self._pending[owner] = _Pending(0.0)
        pending.until_s = self._clock.monotonic() + TTL_S
        return pending
