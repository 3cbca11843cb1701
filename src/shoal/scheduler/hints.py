"""Cluster events, and per plugin whether an event could let a refused pod fit.

A wrong yes costs work, a wrong no leaves a pod waiting; so in doubt the answer is yes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from shoal.scheduler import nodematch
from shoal.scheduler.nodes import NodeInfo, ports_conflict
from shoal.scheduler.shapes import PodInfo
from shoal.scheduler.snapshot import Snapshot


class ClusterEventKind(Enum):
    NODE_ADDED = "node added"
    NODE_CHANGED = "node changed"
    NODE_GONE = "node gone"
    POD_PLACED = "pod placed"
    POD_CHANGED = "pod changed"  # labels or requests of a pod on a node
    POD_GONE = "pod gone"
    STORAGE = "storage"  # claims, volumes, classes
    SELECTORS = "selectors"  # services and owners


@dataclass(frozen=True, slots=True)
class ClusterEvent:
    """An event in the cluster. Nodes are without their pods."""

    happening: ClusterEventKind
    node: NodeInfo | None = None
    before: NodeInfo | None = None
    pod: PodInfo | None = None


Hint = Callable[[ClusterEvent, PodInfo, Snapshot], bool]
_NODE_EVENTS = (ClusterEventKind.NODE_ADDED, ClusterEventKind.NODE_CHANGED)
_POD_EVENTS = (ClusterEventKind.POD_PLACED, ClusterEventKind.POD_CHANGED, ClusterEventKind.POD_GONE)


def node_facts(obj: dict[str, object]) -> NodeInfo:
    """A node without its pods, for events."""
    node = NodeInfo("", -1)
    node.set(obj)
    node.name = obj["metadata"]["name"]  # type: ignore[index]
    return node


def _unschedulable(event: ClusterEvent, pod: PodInfo, snapshot: Snapshot) -> bool:
    node, before = event.node, event.before
    return node is not None and not node.unschedulable and (before is None or before.unschedulable)


def _taints(event: ClusterEvent, pod: PodInfo, snapshot: Snapshot) -> bool:
    node, before, tolerations = event.node, event.before, pod.shape.tolerations
    if node is None or nodematch.untolerated(node.taints, tolerations):
        return False
    return before is None or nodematch.untolerated(before.taints, tolerations)


def _affinity(event: ClusterEvent, pod: PodInfo, snapshot: Snapshot) -> bool:
    node, before, match = event.node, event.before, pod.shape.node_match
    if node is None or (pod.pinned is not None and node.name not in pod.pinned):
        return False
    if match is None:
        return before is None
    return match(node.labels, node.name) and (before is None or not match(before.labels, before.name))


def _ports(event: ClusterEvent, pod: PodInfo, snapshot: Snapshot) -> bool:
    if event.happening is ClusterEventKind.NODE_ADDED:
        return True
    gone = event.pod if event.happening is ClusterEventKind.POD_GONE else None
    return gone is not None and ports_conflict(pod.shape.ports, gone.shape.ports)


def _resources(event: ClusterEvent, pod: PodInfo, snapshot: Snapshot) -> bool:
    if event.happening in (ClusterEventKind.POD_GONE, ClusterEventKind.POD_CHANGED):
        return True
    node, before, wanted = event.node, event.before, pod.shape.requests
    if node is None or event.happening not in _NODE_EVENTS:
        return False
    if wanted.cpu > node.cpu or wanted.memory > node.memory or wanted.storage > node.storage or not node.max_pods:
        return False
    if any(amount > node.others.get(name, 0) for name, amount in wanted.others.items()):
        return False
    return before is None or (
        node.cpu > before.cpu
        or node.memory > before.memory
        or node.storage > before.storage
        or node.max_pods > before.max_pods
        or any(node.others.get(name, 0) > before.others.get(name, 0) for name in wanted.others)
    )


def _disks(event: ClusterEvent, pod: PodInfo, snapshot: Snapshot) -> bool:
    if event.happening in (ClusterEventKind.STORAGE, ClusterEventKind.NODE_ADDED):
        return True
    gone = event.pod if event.happening is ClusterEventKind.POD_GONE else None
    if gone is None:
        return False
    disks = {disk for disk, _ in gone.shape.disks}
    shares = gone.key.namespace == pod.key.namespace and not set(gone.claims).isdisjoint(pod.claims)
    return shares or any(disk in disks for disk, _ in pod.shape.disks)


def _volumes(event: ClusterEvent, pod: PodInfo, snapshot: Snapshot) -> bool:
    if event.happening in (ClusterEventKind.STORAGE, ClusterEventKind.NODE_ADDED):
        return True
    node, before = event.node, event.before
    return node is not None and before is not None and node.labels != before.labels


def _spread(event: ClusterEvent, pod: PodInfo, snapshot: Snapshot) -> bool:
    shape = pod.shape
    if event.happening in _POD_EVENTS and event.pod is not None:
        other = event.pod.shape
        same = other.namespace == shape.namespace
        return same and (not shape.spread or any(each.selector.matches(other.labels) for each in shape.spread))
    if event.happening in (ClusterEventKind.SELECTORS, ClusterEventKind.NODE_GONE, ClusterEventKind.NODE_ADDED):
        return True
    node, before = event.node, event.before
    return node is not None and before is not None and (node.labels, node.taints) != (before.labels, before.taints)


def _pod_affinity(event: ClusterEvent, pod: PodInfo, snapshot: Snapshot) -> bool:
    matches, terms, other = snapshot.term_matches, pod.shape.terms, event.pod
    if event.happening is ClusterEventKind.POD_CHANGED:
        return True
    if other is not None:
        if event.happening is ClusterEventKind.POD_PLACED:
            return any(matches(each, other.shape) for each in terms.affinity)
        return any(matches(each, other.shape) for each in terms.anti_affinity) or any(
            matches(each, pod.shape) for each in other.shape.terms.anti_affinity
        )
    if event.happening in (ClusterEventKind.NODE_ADDED, ClusterEventKind.NODE_GONE):
        return True
    node, before = event.node, event.before
    return node is not None and before is not None and node.labels != before.labels


HINTS: dict[str, Hint] = {
    "NodeUnschedulable": _unschedulable,
    "TaintToleration": _taints,
    "NodeAffinity": _affinity,
    "NodePorts": _ports,
    "NodeResourcesFit": _resources,
    "VolumeRestrictions": _disks,
    "VolumeBinding": _volumes,
    "PodTopologySpread": _spread,
    "InterPodAffinity": _pod_affinity,
}


def may_help(event: ClusterEvent, pod: PodInfo, plugins: frozenset[str], snapshot: Snapshot) -> bool:
    """Whether an event could let a pod fit that these plugins refused; without plugins any event could."""
    return not plugins or any(HINTS[plugin](event, pod, snapshot) for plugin in plugins)
