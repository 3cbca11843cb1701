"""What a DaemonSet's plan is made of."""

from __future__ import annotations

from dataclasses import dataclass, field

from shoal.controllers.daemonset.eligibility import Fit
from shoal.kube.objects import Obj


@dataclass(frozen=True, slots=True)
class EventNote:
    """Something that users are told."""

    warning: bool
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonSetPlan:
    nodes: tuple[str, ...] = ()  # that get a pod
    deleted: tuple[Obj, ...] = ()  # pods
    failed_on: tuple[str, ...] = ()  # nodes whose failed pod is deleted now: the next one there has to wait longer
    remarks: tuple[EventNote, ...] = ()
    status: Obj = field(default_factory=dict)
    recheck_s: float | None = None


@dataclass(frozen=True, slots=True)
class NodeSlot:
    """A node as the set sees it. A pod can be meant for a node that is not there: then nothing fits."""

    name: str
    present: bool
    fit: Fit
    pods: tuple[Obj, ...]  # on it or meant for it, those first that are on it, then the oldest
