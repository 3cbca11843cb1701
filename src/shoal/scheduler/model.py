"""Data of scheduling, all frozen: plugins, refusals, requests, decisions and explanations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

MAX_SCORE: Final = 100
HOSTNAME: Final = "kubernetes.io/hostname"

# In filter order: the first plugin that refuses gives the reason.
FILTERS: Final = (
    "NodeUnschedulable", "TaintToleration", "NodeAffinity", "NodePorts", "NodeResourcesFit",
    "VolumeRestrictions", "VolumeBinding", "PodTopologySpread", "InterPodAffinity",
)  # fmt: skip
SCORES: Final = (
    "TaintToleration", "NodeAffinity", "PodTopologySpread", "InterPodAffinity", "NodeResourcesFit",
    "NodeResourcesBalancedAllocation", "ImageLocality",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class NodeRefusal:
    """Why a pod does not fit on a node. ``resolvable``: removing other pods might help."""

    plugin: str
    reasons: tuple[str, ...]
    resolvable: bool = False


UNSCHEDULABLE: Final = NodeRefusal("NodeUnschedulable", ("node(s) were unschedulable",))
TAINTED: Final = NodeRefusal("TaintToleration", ("node(s) had untolerated taint(s)",))
NO_AFFINITY: Final = NodeRefusal("NodeAffinity", ("node(s) didn't match Pod's node affinity/selector",))
NOT_NAMED: Final = NodeRefusal("NodeAffinity", ("node(s) didn't satisfy plugin(s) [NodeAffinity]",))
NO_PORTS: Final = NodeRefusal("NodePorts", ("node(s) didn't have free ports for the requested pod ports",), True)
DISK_CONFLICT: Final = NodeRefusal("VolumeRestrictions", ("node(s) had no available disk",), True)
_IN_USE = "PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
CLAIM_IN_USE: Final = NodeRefusal("VolumeRestrictions", (f"node(s) unavailable due to {_IN_USE}",), True)
_SPREAD = "node(s) didn't match pod topology spread constraints"
SPREAD: Final = NodeRefusal("PodTopologySpread", (_SPREAD,), True)
SPREAD_LABEL: Final = NodeRefusal("PodTopologySpread", (f"{_SPREAD} (missing required label)",))
POD_AFFINITY: Final = NodeRefusal("InterPodAffinity", ("node(s) didn't match pod affinity rules",))
POD_ANTI_AFFINITY: Final = NodeRefusal("InterPodAffinity", ("node(s) didn't match pod anti-affinity rules",), True)
OTHERS_ANTI_AFFINITY: Final = NodeRefusal(
    "InterPodAffinity", ("node(s) didn't satisfy existing pods anti-affinity rules",), True
)


@dataclass(frozen=True, slots=True)
class Requests:
    """Amounts of resources: cpu in thousandths, everything else in units."""

    cpu: int = 0
    memory: int = 0
    storage: int = 0  # ephemeral
    others: Mapping[str, int] = field(default_factory=dict)
    # with assumed needs of containers without requests, for scoring
    scored_cpu: int = 0
    scored_memory: int = 0

    @property
    def nothing(self) -> bool:
        return not (self.cpu or self.memory or self.storage or any(self.others.values()))


@dataclass(frozen=True, slots=True)
class SchedulingDecision:
    """A past decision about a pod and its reasons, shown by ``explain``."""

    node: str  # "" if there was none
    at: float  # wall time
    feasible: int = 0  # nodes that fit
    looked_at: int = 0  # nodes that were evaluated
    nodes: int = 0
    ties: int = 1  # nodes with the best score, the chosen one included
    scores: Mapping[str, int] = field(default_factory=dict)  # plugin -> weighted score of the chosen node
    message: str = ""
    nominated: str = ""  # the node on which preemption makes room


@dataclass(frozen=True, slots=True)
class NodeExplanation:
    """One node evaluated for a pod: its refusal, or its weighted scores by plugin and their sum."""

    node: str
    refusal: NodeRefusal | None = None
    scores: Mapping[str, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        return sum(self.scores.values())


@dataclass(frozen=True, slots=True)
class Explanation:
    """All nodes evaluated for a pod now, the best first, and the last decision about the pod."""

    pod: str
    nodes: tuple[NodeExplanation, ...]
    message: str = ""  # the message of the event if no node fits
    waiting: str = ""  # the pod's state in the queue: gated, backing off, unschedulable
    last: SchedulingDecision | None = None
