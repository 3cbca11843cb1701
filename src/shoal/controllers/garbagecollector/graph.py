"""The graph of owners and dependents, by uid, as the watches show it. Synchronous and without I/O.

``observe`` and ``forget`` return the uids that have to be looked at because of the change: dependents whose owner went
or is not known, owners whose dependents changed. An owner that was never seen is not a node: its dependents are.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from shoal.controllers.garbagecollector.model import GraphNode, OwnerReference

_REMEMBERED = 20_000  # deletions that were seen: whoever names one of these uids needs no question to the server


class Graph:
    """Invariant: ``dependents(u)`` are exactly the nodes that have a reference to ``u``, whether ``u`` is a node or
    not."""

    def __init__(self) -> None:
        self._nodes: dict[str, GraphNode] = {}
        self._dependents: dict[str, dict[str, None]] = {}  # owner -> dependents, in the order of arrival
        self._gone: OrderedDict[str, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._nodes)

    def get(self, uid: str) -> GraphNode | None:
        return self._nodes.get(uid)

    def nodes(self) -> Iterable[GraphNode]:
        return self._nodes.values()

    def is_gone(self, uid: str) -> bool:
        """Whether the deletion of this uid has been seen; a uid never comes back."""
        return uid in self._gone

    def dependents(self, uid: str) -> tuple[GraphNode, ...]:
        return tuple(self._nodes[each] for each in self._dependents.get(uid, ()))

    def blockers(self, uid: str) -> tuple[GraphNode, ...]:
        """The dependents that an owner which waits for them has to wait for."""
        return tuple(each for each in self.dependents(uid) if each.blocks(uid))

    def observe(self, new: GraphNode) -> list[str]:
        """An object was added or has changed."""
        old = self._nodes.get(new.uid)
        self._nodes[new.uid] = new
        due: dict[str, None] = {}
        if old is None or old.owners != new.owners:
            self._relate(old, new, due)
        if new.deleting and (old is None or not old.deleting or old.finalizers != new.finalizers):
            if new.waits:
                due.update(self._dependents.get(new.uid, {}))
            if new.waits or new.lets_go:
                due[new.uid] = None
        return list(due)

    def _relate(self, old: GraphNode | None, new: GraphNode, due: dict[str, None]) -> None:
        kept = {each.uid for each in new.owners}
        for reference in old.owners if old is not None else ():
            if reference.uid not in kept:
                self._cut(reference.uid, new.uid)
            self._wake_waiting(reference.uid, due)
        for reference in new.owners:
            self._dependents.setdefault(reference.uid, {})[new.uid] = None
            owner = self._nodes.get(reference.uid)
            if owner is None or owner.waits or not names(reference, owner, new):
                due[new.uid] = None
        if old is not None:
            due[new.uid] = None  # what kept it may be what was removed

    def _cut(self, owner: str, dependent: str) -> None:
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
        """An object is gone, or (not ``deleted``) is not watched any more."""
        if deleted:
            self._gone[uid] = None
            if len(self._gone) > _REMEMBERED:
                self._gone.popitem(last=False)
        node = self._nodes.pop(uid, None)
        due = dict.fromkeys(self._dependents.get(uid, ()))
        for reference in node.owners if node is not None else ():
            self._cut(reference.uid, uid)
            self._wake_waiting(reference.uid, due)
        return list(due)


def names(reference: OwnerReference, owner: GraphNode, dependent: GraphNode) -> bool:
    """Whether a reference of ``dependent`` is about ``owner``, beyond having its uid: an owner of another namespace
    cannot be meant, nor one with another name or kind."""
    if owner.name != reference.name or owner.type.kind != reference.kind or owner.type.group != reference.group:
        return False
    return not owner.type.namespaced or owner.namespace == dependent.namespace
