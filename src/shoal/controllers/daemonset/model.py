"""Data of a DaemonSet's plan."""

from __future__ import annotations

from dataclasses import dataclass, field

from shoal.controllers.daemonset.eligibility import Fit
from shoal.kube.objects import Obj


@dataclass(frozen=True, slots=True)
class EventNote:
    """An event to record."""

    warning: bool
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonSetPlan:
    nodes: tuple[str, ...] = ()  # nodes that get a pod
    deleted: tuple[Obj, ...] = ()  # pods
    failed_on: tuple[str, ...] = ()  # nodes whose failed pod is deleted now, which increases their backoff
    remarks: tuple[EventNote, ...] = ()
    status: Obj = field(default_factory=dict)
    recheck_s: float | None = None


@dataclass(frozen=True, slots=True)
class NodeSlot:
    """A node with the set's pods. A pod can be pinned to a node that does not exist; then nothing fits."""

    name: str
    present: bool
    fit: Fit
    pods: tuple[Obj, ...]  # on it or pinned to it; those on it first, then the oldest
