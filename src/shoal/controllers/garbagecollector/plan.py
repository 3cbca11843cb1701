"""What becomes of one object, given the state of its owners."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from shoal.controllers.garbagecollector.graph import Graph, names
from shoal.controllers.garbagecollector.model import FOREGROUND, ORPHAN, GraphNode, OwnerReference, Propagation


class OwnerState(StrEnum):
    SOLID = "solid"  # it is there: its dependents stay
    ABSENT = "absent"
    WAITING = "waiting"  # it is there, being deleted, and waits for its dependents
    UNTOLD = "untold"  # a namespaced owner of a cluster-wide object: nobody can say where it should be


@dataclass(frozen=True, slots=True)
class KeepObject:
    """Leave the object as it is."""


@dataclass(frozen=True, slots=True)
class DropReferences:
    """It has an owner that stays: forget the others."""

    owners: tuple[OwnerReference, ...]  # those that remain


@dataclass(frozen=True, slots=True)
class Remove:
    """Nobody keeps it. ``unblock`` first: it and its waiting dependents own each other."""

    propagation: Propagation
    unblock: bool = False


@dataclass(frozen=True, slots=True)
class DeleteDependents:
    """It waits for dependents: see to it that they go."""

    dependents: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReleaseObject:
    """What it waited for has happened: take the finalizer away."""

    finalizer: str


@dataclass(frozen=True, slots=True)
class Orphan:
    """Cut these dependents off, then release it."""

    dependents: tuple[GraphNode, ...]


Action = KeepObject | DropReferences | Remove | DeleteDependents | ReleaseObject | Orphan

KEEP = KeepObject()


def known_state(graph: Graph, item: GraphNode, reference: OwnerReference) -> OwnerState | None:
    """The state of an owner as far as the graph can tell; None when only the server can."""
    if graph.is_gone(reference.uid):
        # an owner in a namespace cannot be meant by a cluster-wide object, there or not: find out which it was
        return OwnerState.ABSENT if item.namespace else None
    owner = graph.get(reference.uid)
    if owner is None or not names(reference, owner, item):
        return None
    return OwnerState.WAITING if owner.waits else OwnerState.SOLID


def deletion_step(graph: Graph, item: GraphNode) -> Action | None:
    """The next step of an object that is being deleted already; None when it is not."""
    if not item.deleting:
        return None
    if item.lets_go:
        dependents = graph.dependents(item.uid)
        return Orphan(dependents) if dependents else ReleaseObject(ORPHAN)
    if not item.waits:
        return KEEP
    blockers = graph.blockers(item.uid)
    if not blockers or _in_knot(graph, item):
        return ReleaseObject(FOREGROUND)
    return DeleteDependents(tuple(each.uid for each in blockers if not each.waits))


def _in_knot(graph: Graph, item: GraphNode) -> bool:
    """Whether objects that all wait, ``item`` among them, wait for each other and for nobody else."""
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
    """What to do with an object that is not being deleted; ``states`` are those of ``item.owners``, in order."""
    if not states or OwnerState.UNTOLD in states:
        return KEEP
    if OwnerState.SOLID in states:
        pairs = zip(item.owners, states, strict=True)
        solid = tuple(owner for owner, state in pairs if state is OwnerState.SOLID)
        return KEEP if len(solid) == len(item.owners) else DropReferences(solid)
    dependents = graph.dependents(item.uid)
    if OwnerState.WAITING in states and dependents:
        return Remove(Propagation.FOREGROUND, unblock=any(each.waits for each in dependents))
    return Remove(item.propagation)
