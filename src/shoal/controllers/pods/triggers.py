"""Triggers: enqueues owners when an object that they control or could adopt changes.

A change in the number of objects is handled at once, a change of their state is paced, and a change of fields that
owners do not read is ignored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from shoal.controllers.pods.pace import Pace
from shoal.controllers.pods.status import condition_of, is_active, is_terminating, phase_of
from shoal.kube.labels import Selector
from shoal.kube.objects import Obj
from shoal.reconcile.cache import Cache, Change
from shoal.reconcile.keys import ObjectKey, controller_of, key_of


def pod_facts(pod: Obj) -> Any:
    """The fields of a pod's state that workloads read."""
    ready = condition_of(pod, "Ready")
    since = (ready["status"], ready.get("lastTransitionTime")) if ready is not None else None
    return phase_of(pod), since, is_terminating(pod)


@dataclass(frozen=True, slots=True, kw_only=True)
class Triggers:
    """A change handler for ``cache.add_handler``."""

    kind: str
    group: str
    owners: Cache
    selector_of: Callable[[Obj], Selector]
    pace: Pace
    facts: Callable[[Obj], Any] = pod_facts
    counts: Callable[[Obj], bool] = is_active  # whether an object counts; a change of this is urgent

    def __call__(self, change: Change) -> None:
        old, new = change.old, change.new
        if new is None:
            assert old is not None
            self._owner_of(old, urgent=self.counts(old))
        elif old is None:
            if not self._owner_of(new, urgent=True):
                self._offer(new)
        else:
            self._changed(old, new)

    def _changed(self, old: Obj, new: Obj) -> None:
        moved = _controller_uid(old) != _controller_uid(new)
        relabelled = old["metadata"].get("labels") != new["metadata"].get("labels")
        if moved:
            self._owner_of(old, urgent=True)
        urgent = moved or relabelled or self.counts(old) != self.counts(new)
        if not urgent and self.facts(old) == self.facts(new):
            return
        if not self._owner_of(new, urgent=urgent) and (moved or relabelled):
            self._offer(new)

    def _owner_of(self, obj: Obj, *, urgent: bool) -> bool:
        """Whether the object has a controller, of our kind or not."""
        reference = controller_of(obj)
        if reference is None:
            return False
        if reference["kind"] == self.kind and reference["apiVersion"].rpartition("/")[0] == self.group:
            key = ObjectKey(obj["metadata"].get("namespace") or "", reference["name"])
            if urgent:
                self.pace.now(key)
            else:
                self.pace.soon(key)
        return True

    def _offer(self, orphan: Obj) -> None:
        """Enqueue the owners that select an object without a controller, since they may adopt it."""
        about = orphan["metadata"]
        tags = about.get("labels")
        if not tags or is_terminating(orphan):
            return
        for owner in self.owners.select(namespace=about.get("namespace") or ""):
            if self.selector_of(owner).matches(tags):
                self.pace.now(key_of(owner))


def _controller_uid(obj: Obj) -> str:
    reference = controller_of(obj)
    return "" if reference is None else str(reference["uid"])
