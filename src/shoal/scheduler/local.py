"""Filters and scores of a shape on one node that need no other node.

``NodeLocalPlugins`` is created once per table; its ``refuse_*`` and ``score`` run for every changed node and are
optimized for that.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from shoal.scheduler import nodematch
from shoal.scheduler.config import Profile
from shoal.scheduler.model import (
    DISK_CONFLICT,
    MAX_SCORE,
    NO_AFFINITY,
    NO_PORTS,
    TAINTED,
    UNSCHEDULABLE,
    NodeRefusal,
)
from shoal.scheduler.nodes import NodeInfo, ports_conflict
from shoal.scheduler.shapes import PodShape

_MB: Final = 1024 * 1024
_LEAST_IMAGE: Final = 23 * _MB
_MOST_IMAGE: Final = 1000 * _MB  # per image of the pod


@lru_cache(maxsize=1024)
def insufficient(reasons: tuple[str, ...], resolvable: bool) -> NodeRefusal:
    """One object per combination, so that refusals can be counted by identity."""
    return NodeRefusal("NodeResourcesFit", reasons, resolvable)


class NodeLocalPlugins:
    """The node-local filters and scores for one shape under one profile."""

    __slots__ = (
        "_affinity", "_balance_weight", "_disks", "_fit", "_fit_weight", "_image_weight", "_match", "_ports", "_shape",
        "_taints", "_tolerates_unschedulable",
    )  # fmt: skip

    def __init__(self, shape: PodShape, profile: Profile) -> None:
        self._shape = shape
        self._taints = profile.filters("TaintToleration")
        self._match = shape.node_match if profile.filters("NodeAffinity") else None
        self._ports = shape.ports if profile.filters("NodePorts") else ()
        self._disks = shape.disks if profile.filters("VolumeRestrictions") else ()
        self._fit = profile.filters("NodeResourcesFit")
        self._tolerates_unschedulable = not profile.filters("NodeUnschedulable") or nodematch.tolerates(
            shape.tolerations, nodematch.UNSCHEDULABLE_TAINT
        )
        self._fit_weight = profile.weight("NodeResourcesFit")
        self._image_weight = profile.weight("ImageLocality") if shape.images else 0
        balanced = shape.requests.cpu or shape.requests.memory
        self._balance_weight = profile.weight("NodeResourcesBalancedAllocation") if balanced else 0
        self._affinity = shape.preferred_nodes

    def refuse_node(self, node: NodeInfo) -> NodeRefusal | None:
        """The refusal that depends only on the node itself, or None."""
        if node.unschedulable and not self._tolerates_unschedulable:
            return UNSCHEDULABLE
        if node.taints and self._taints and nodematch.untolerated(node.taints, self._shape.tolerations):
            return TAINTED
        if self._match is not None and not self._match(node.labels, node.name):
            return NO_AFFINITY
        return None

    def refuse_pods(self, node: NodeInfo) -> NodeRefusal | None:
        """The refusal that depends on the pods on the node, or None."""
        if self._ports and node.ports and ports_conflict(self._ports, node.ports):
            return NO_PORTS
        if self._fit:
            wanted = self._shape.requests
            if (
                len(node.pods) >= node.max_pods
                or wanted.cpu > node.cpu - node.used_cpu
                or wanted.memory > node.memory - node.used_memory
                or wanted.storage > node.storage - node.used_storage
                or wanted.others
            ):
                refusal = self._insufficient(node)
                if refusal is not None:
                    return refusal
        for disk, read_only in self._disks:
            uses = node.disks.get(disk)
            if uses is not None and not (read_only and all(uses)):
                return DISK_CONFLICT
        return None

    def _insufficient(self, node: NodeInfo) -> NodeRefusal | None:
        wanted = self._shape.requests
        reasons, resolvable = [], True
        if len(node.pods) >= node.max_pods:
            reasons.append("Too many pods")
        for name, want, has, used in (
            ("cpu", wanted.cpu, node.cpu, node.used_cpu),
            ("memory", wanted.memory, node.memory, node.used_memory),
            ("ephemeral-storage", wanted.storage, node.storage, node.used_storage),
            *(
                (name, want, node.others.get(name, 0), node.used_others.get(name, 0))
                for name, want in wanted.others.items()
            ),
        ):
            if want > 0 and want > has - used:
                reasons.append(f"Insufficient {name}")
                resolvable = resolvable and want <= has
        return insufficient(tuple(reasons), resolvable) if reasons else None

    # scores

    def taints_disliked(self, node: NodeInfo) -> int:
        return nodematch.disliked(node.taints, self._shape.tolerations) if node.taints else 0

    def affinity_weight(self, node: NodeInfo) -> int:
        """The sum of preferred node affinity that the node satisfies."""
        if not self._affinity:
            return 0
        return sum(weight for weight, match in self._affinity if match(node.labels, node.name))

    def score(self, node: NodeInfo) -> int:
        """The weighted sum of least-allocated and balanced scores. Image scores are separate: they change with other
        nodes."""
        wanted = self._shape.requests
        cpu, memory = node.cpu, node.memory
        if not (cpu and memory):
            return sum(self.scores(node).values())
        total = 0
        if self._fit_weight:
            used_cpu = node.used_scored_cpu + wanted.scored_cpu
            used_memory = node.used_scored_memory + wanted.scored_memory
            total += (
                (
                    ((cpu - used_cpu) * MAX_SCORE // cpu if used_cpu <= cpu else 0)
                    + ((memory - used_memory) * MAX_SCORE // memory if used_memory <= memory else 0)
                )
                // 2
                * self._fit_weight
            )
        if self._balance_weight:
            cpu_before, memory_before = node.used_cpu / cpu, node.used_memory / memory
            cpu_after, memory_after = (node.used_cpu + wanted.cpu) / cpu, (node.used_memory + wanted.memory) / memory
            after = _balance(cpu_after, memory_after)
            total += (50 + (50 + after - _balance(cpu_before, memory_before)) // 2) * self._balance_weight
        return total

    def scores(self, node: NodeInfo) -> dict[str, int]:
        """The same scores per plugin, for explanations and for nodes that lack a resource."""
        wanted, found = self._shape.requests, {}
        if self._fit_weight:
            parts = [
                max(0, has - used) * MAX_SCORE // has
                for has, used in (
                    (node.cpu, node.used_scored_cpu + wanted.scored_cpu),
                    (node.memory, node.used_scored_memory + wanted.scored_memory),
                )
                if has
            ]
            found["NodeResourcesFit"] = (sum(parts) // len(parts) if parts else 0) * self._fit_weight
        if self._balance_weight:
            before, after = (
                [
                    (used + want * extra) / has
                    for has, used, want in (
                        (node.cpu, node.used_cpu, wanted.cpu),
                        (node.memory, node.used_memory, wanted.memory),
                    )
                    if has
                ]
                for extra in (0, 1)
            )
            with_pod, without = _balance_of(after), _balance_of(before)
            found["NodeResourcesBalancedAllocation"] = (50 + (50 + with_pod - without) // 2) * self._balance_weight
        return found

    def image_score(self, node: NodeInfo, spread: Mapping[str, int], nodes: int) -> int:
        """The weighted image score; ``spread`` is the number of nodes that have each image."""
        if not self._image_weight:
            return 0
        images = self._shape.images
        present = sum(int(node.images[name] * (spread[name] / nodes)) for name in images if name in node.images)
        most = _MOST_IMAGE * len(images)
        clamped = min(max(present, _LEAST_IMAGE), most)
        return MAX_SCORE * (clamped - _LEAST_IMAGE) // (most - _LEAST_IMAGE) * self._image_weight


def _balance(cpu: float, memory: float) -> int:
    if cpu > 1.0:
        cpu = 1.0
    if memory > 1.0:
        memory = 1.0
    return int((1.0 - abs((cpu - memory) / 2)) * MAX_SCORE)


def _balance_of(fractions: list[float]) -> int:
    return _balance(*fractions) if len(fractions) == 2 else MAX_SCORE
