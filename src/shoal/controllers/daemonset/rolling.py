"""One step of a DaemonSet's rolling update. Pure.

Without surge an old pod is deleted and its node gets a new one in the following step; with surge a node gets a new pod
beside the old one, which is deleted when the new one is available.
"""

from __future__ import annotations

from collections.abc import Sequence

from shoal.controllers.daemonset.model import NodeSlot
from shoal.controllers.pods.amounts import scaled
from shoal.controllers.pods.status import is_available, is_terminating
from shoal.controllers.revisions.plan import REVISION_LABEL
from shoal.kube.objects import Obj

Step = tuple[list[str], list[Obj]]  # nodes that get a pod, pods to delete


def _rolling(owner: Obj) -> Obj:
    strategy = owner["spec"].get("updateStrategy") or {}
    return (strategy.get("rollingUpdate") or {}) if strategy.get("type") == "RollingUpdate" else {}


def allows_surge(owner: Obj) -> bool:
    return scaled(_rolling(owner).get("maxSurge"), 1, round_up=True) > 0


def limits_of(owner: Obj, desired: int) -> tuple[int, int]:
    """The maximum surge and the maximum of unavailable pods."""
    surge = scaled(_rolling(owner).get("maxSurge"), desired, round_up=True)
    unavailable = scaled(_rolling(owner).get("maxUnavailable"), desired, round_up=True)
    if desired and not surge and not unavailable:
        unavailable = 1
    return surge, unavailable


def plan_rolling(owner: Obj, slots: Sequence[NodeSlot], mark: str, now: float) -> Step:
    concerned = [slot for slot in slots if slot.fit.runs or slot.pods]
    surge, unavailable = limits_of(owner, sum(slot.fit.runs for slot in slots))
    step = _Rolling(owner, mark, now)
    if surge == 0:
        return [], step.replaced(concerned, unavailable)
    return step.surged(concerned, surge)


class _Rolling:
    def __init__(self, owner: Obj, mark: str, now: float) -> None:
        self._mark, self._now = mark, now
        self._min_ready_s = owner["spec"].get("minReadySeconds") or 0

    def _available(self, pod: Obj | None) -> bool:
        return pod is not None and is_available(pod, self._min_ready_s, self._now)

    def _pair(self, slot: NodeSlot) -> tuple[Obj | None, Obj | None, bool]:
        """The new and the old pod of a node, and whether there are only these."""
        pods = [pod for pod in slot.pods if not is_terminating(pod)]
        new = [pod for pod in pods if (pod["metadata"].get("labels") or {}).get(REVISION_LABEL) == self._mark]
        old = [pod for pod in pods if (pod["metadata"].get("labels") or {}).get(REVISION_LABEL) != self._mark]
        return new[0] if new else None, old[0] if old else None, len(new) <= 1 and len(old) <= 1

    def replaced(self, slots: Sequence[NodeSlot], most: int) -> list[Obj]:
        """Old pods to delete: those that are not available, and others within the limit of unavailable pods."""
        unavailable, broken, candidates = 0, [], []
        for slot in slots:
            new, old, alone = self._pair(slot)
            if not alone or (new is None) == (old is None):
                unavailable += 1
            elif new is not None:
                unavailable += not self._available(new)
            elif old is not None and self._available(old):
                candidates.append(old)
            elif old is not None:
                broken.append(old)
                unavailable += 1
        return broken + candidates[: max(0, most - unavailable)]

    def surged(self, slots: Sequence[NodeSlot], most: int) -> Step:
        """Nodes to get a new pod beside the old one, and old pods that have been replaced or may not stay."""
        surplus = available = 0
        urgent: list[str] = []
        candidates: list[str] = []
        replaced: list[Obj] = []
        unwanted: list[Obj] = []
        for slot in slots:
            new, old, alone = self._pair(slot)
            if not alone:
                surplus += 1
                continue
            available += self._available(old if old is not None else new)
            if old is None:
                continue
            if new is not None:
                if self._available(new):
                    replaced.append(old)
                else:
                    surplus += 1
            elif not slot.fit.runs:
                (unwanted if self._available(old) else replaced).append(old)
            else:
                (candidates if self._available(old) else urgent).append(slot.name)
        spare = available - sum(slot.fit.runs for slot in slots)
        return urgent + candidates[: max(0, most - surplus)], replaced + unwanted[: max(0, spare)]
