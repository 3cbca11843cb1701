"""The graph of owners and dependents, by uid, as the watches show it. Synchronous and without I/O.

``observe`` and ``forget`` return the uids to process because of the change: dependents whose owner was deleted or is
unknown, and owners whose dependents changed. An owner that was never seen has no node; its dependents have.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from shoal.controllers.garbagecollector.model import GraphNode, OwnerReference

_REMEMBERED = 20_000  # seen deletions: references to these uids need no request to the server


class Graph:
    """Invariant: ``dependents(u)`` are exactly the nodes with a reference to ``u``, whether ``u`` is a node or not."""

    def __init__(self) -> None:
        self._nodes: dict[str, GraphNode] = {}
        self._dependents: dict[str, dict[str, None]] = {}  # owner -> dependents, in insertion order
        self._gone: OrderedDict[str, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._nodes)

    def get(self, uid: str) -> GraphNode | None:
        return self._nodes.get(uid)

    def nodes(self) -> Iterable[GraphNode]:
        return self._nodes.values()

    def is_gone(self, uid: str) -> bool:
        """Whether the deletion of this uid was seen; uids are never reused."""
        return uid in self._gone

    def dependents(self, uid: str) -> tuple[GraphNode, ...]:
        return tuple(self._nodes[each] for each in self._dependents.get(uid, ()))

    def blockers(self, uid: str) -> tuple[GraphNode, ...]:
        """The dependents that block the foreground deletion of an owner."""
        return tuple(each for each in self.dependents(uid) if each.blocks(uid))

    def observe(self, new: GraphNode) -> list[str]:
        """Take an added or changed object; return the uids to process."""
        old = self._nodes.get(new.uid)
        self._nodes[new.uid] = new
        due: dict[str, None] = {}
        if old is None or old.owners != new.owners:
            self._relate(old, new, due)
        if new.deleting and (old is None or not old.deleting or old.finalizers != new.finalizers):
            if new.waits:
                due.update(self._dependents.get(new.uid, {}))
            if new.waits or new.orphans_dependents:
                due[new.uid] = None
        return list(due)

    def _relate(self, old: GraphNode | None, new: GraphNode, due: dict[str, None]) -> None:
        kept = {each.uid for each in new.owners}
        for reference in old.owners if old is not None else ():
            if reference.uid not in kept:
                self._remove_dependent(reference.uid, new.uid)
            self._wake_waiting(reference.uid, due)
        for reference in new.owners:
            self._dependents.setdefault(reference.uid, {})[new.uid] = None
            owner = self._nodes.get(reference.uid)
            if owner is None or owner.waits or not names(reference, owner, new):
                due[new.uid] = None
        if old is not None:
            due[new.uid] = None  # the removed reference may have been what kept it

    def _remove_dependent(self, owner: str, dependent: str) -> None:
        found = self._dependents.get(owner)
        if found is not None:
            found.pop(dependent, None)
            if not found:
                del self._dependents[owner]

    def _wake_waiting(self, owner: str, due: dict[str, None]) -> None:
        found = self._nodes.get(owner)
        if found is not None and found.waits:
            due[owner] = None

    def forget(self, uid: str, *, deleted: bool = True) -> list[str]:
        """Remove an object that was deleted, or (not ``deleted``) is no longer watched."""
        if deleted:
            self._gone[uid] = None
            if len(self._gone) > _REMEMBERED:
                self._gone.popitem(last=False)
        node = self._nodes.pop(uid, None)
        due = dict.fromkeys(self._dependents.get(uid, ()))
        for reference in node.owners if node is not None else ():
            self._remove_dependent(reference.uid, uid)
            self._wake_waiting(reference.uid, due)
        return list(due)


def names(reference: OwnerReference, owner: GraphNode, dependent: GraphNode) -> bool:
    """Whether a reference of ``dependent`` with the uid of ``owner`` is valid: namespace, name and kind must match
    too."""
    if owner.name != reference.name or owner.type.kind != reference.kind or owner.type.group != reference.group:
        return False
    return not owner.type.namespaced or owner.namespace == dependent.namespace
