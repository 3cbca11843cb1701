"""Placement's inputs (clusters, the deployment to place) and its result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from shoal.control.domain.kinds.app import Toleration
from shoal.control.domain.kinds.places import Capacity, Taint
from shoal.sync.keys import Place


@dataclass(frozen=True, slots=True)
class PlacedLoad:
    """What is placed somewhere already, or would be."""

    deployments: int = 0
    cpu_millicores: int = 0
    memory_mib: int = 0

    def plus(self, other: PlacedLoad) -> PlacedLoad:
        return PlacedLoad(
            self.deployments + other.deployments,
            self.cpu_millicores + other.cpu_millicores,
            self.memory_mib + other.memory_mib,
        )


SILENT = {"lost": "its agent is lost", "unreachable": "its API server does not answer its agent"}


@dataclass(frozen=True, slots=True)
class ShardFacts:
    """``agent`` is joined, lost, unreachable (its cluster's API server is, for it) or absent (none has joined yet)."""

    name: str
    agent: str = "absent"
    deployments: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFacts:
    id: str
    name: str
    region: str
    platform: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    capacity: Capacity = Capacity()
    can_schedule: bool = True
    region_can_schedule: bool = True
    shards: tuple[ShardFacts, ...] = ()
    load: PlacedLoad = PlacedLoad()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementRequest:
    """What is to be placed. ``current`` is where it, or the revision before it, runs; ``home`` the cluster where the
    environment's gateway of the region is."""

    region: str
    labels: Mapping[str, str] = field(default_factory=dict)
    cel: str = ""
    tolerations: tuple[Toleration, ...] = ()
    app: Mapping[str, Any] = field(default_factory=dict)
    size: PlacedLoad = PlacedLoad(1)
    current: Place | None = None
    home: str = ""


@dataclass(frozen=True, slots=True)
class Placement:
    """``place`` is None when no cluster accepts it; ``reason`` says why in any case."""

    place: Place | None
    reason: dict[str, Any]
