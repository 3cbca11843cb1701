"""Decides what to do with one object, given the state of its owners."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from shoal.controllers.garbagecollector.graph import Graph, names
from shoal.controllers.garbagecollector.model import FOREGROUND, ORPHAN, GraphNode, OwnerReference, PropagationPolicy


class OwnerState(StrEnum):
    SOLID = "solid"  # exists: its dependents stay
    ABSENT = "absent"
    WAITING = "waiting"  # exists, in foreground deletion: waits for its dependents
    UNRESOLVABLE = "unresolvable"  # a namespaced owner of a cluster-scoped object: its namespace is unknown


@dataclass(frozen=True, slots=True)
class KeepObject:
    """Leave the object as it is."""


@dataclass(frozen=True, slots=True)
class DropReferences:
    """It has an owner that stays: remove the references to the others."""

    owners: tuple[OwnerReference, ...]  # those that remain


@dataclass(frozen=True, slots=True)
class Remove:
    """No owner keeps it. ``unblock``: first remove its blocking references, because it and its waiting dependents own
    each other."""

    propagation: PropagationPolicy
    unblock: bool = False


@dataclass(frozen=True, slots=True)
class DeleteDependents:
    """It waits for its dependents: delete them."""

    dependents: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReleaseObject:
    """It waits for nothing any more: remove the finalizer."""

    finalizer: str


@dataclass(frozen=True, slots=True)
class Orphan:
    """Remove these dependents' references to it, then release it."""

    dependents: tuple[GraphNode, ...]


Action = KeepObject | DropReferences | Remove | DeleteDependents | ReleaseObject | Orphan

KEEP = KeepObject()


def known_state(graph: Graph, item: GraphNode, reference: OwnerReference) -> OwnerState | None:
    """The state of an owner from the graph; None if only the server knows."""
    if graph.is_gone(reference.uid):
        # a cluster-scoped object cannot have a namespaced owner: ask the server which it was
        return OwnerState.ABSENT if item.namespace else None
    owner = graph.get(reference.uid)
    if owner is None or not names(reference, owner, item):
        return None
    return OwnerState.WAITING if owner.waits else OwnerState.SOLID


def deletion_step(graph: Graph, item: GraphNode) -> Action | None:
    """The next step of an object that is being deleted; None if it is not."""
    if not item.deleting:
        return None
    if item.orphans_dependents:
        dependents = graph.dependents(item.uid)
        return Orphan(dependents) if dependents else ReleaseObject(ORPHAN)
    if not item.waits:
        return KEEP
    blockers = graph.blockers(item.uid)
    if not blockers or _in_waiting_cycle(graph, item):
        return ReleaseObject(FOREGROUND)
    return DeleteDependents(tuple(each.uid for each in blockers if not each.waits))


def _in_waiting_cycle(graph: Graph, item: GraphNode) -> bool:
    """Whether ``item`` is in a cycle of waiting objects that wait only for each other."""
    waited_for = {item.uid: graph.blockers(item.uid)}
    to_see = list(waited_for[item.uid])
    while to_see:
        node = to_see.pop()
        if not node.waits:
            return False
        if node.uid not in waited_for:
            waited_for[node.uid] = graph.blockers(node.uid)
            to_see += waited_for[node.uid]
    return all(_reaches(waited_for, uid, item.uid) for uid in waited_for)


def _reaches(waited_for: dict[str, tuple[GraphNode, ...]], start: str, end: str) -> bool:
    seen: set[str] = set()
    to_see = [each.uid for each in waited_for[start]]
    while to_see:
        uid = to_see.pop()
        if uid == end:
            return True
        if uid not in seen:
            seen.add(uid)
            to_see += (each.uid for each in waited_for[uid])
    return False


def decide(graph: Graph, item: GraphNode, states: Sequence[OwnerState]) -> Action:
    """The step of an object that is not being deleted; ``states`` are those of ``item.owners``, in order."""
    if not states or OwnerState.UNRESOLVABLE in states:
        return KEEP
    if OwnerState.SOLID in states:
        pairs = zip(item.owners, states, strict=True)
        solid = tuple(owner for owner, state in pairs if state is OwnerState.SOLID)
        return KEEP if len(solid) == len(item.owners) else DropReferences(solid)
    dependents = graph.dependents(item.uid)
    if OwnerState.WAITING in states and dependents:
        return Remove(PropagationPolicy.FOREGROUND, unblock=any(each.waits for each in dependents))
    return Remove(item.propagation)
