"""Ranks surplus pods for deletion: the least useful first, as in Kubernetes.

Each pod has a sort key, so that the order is total and reproducible.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from math import log2
from typing import Final

from shoal.controllers.pods.status import created_at, is_active, is_ready, phase_of, ready_at, restarts_of
from shoal.kube.objects import Obj

DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"

_PHASES: Final = {"Pending": 0, "Unknown": 1, "Running": 2}
_COST_LIMIT: Final = 2**31

Rank = tuple[bool, int, bool, int, int, int, int, int, int, str]


def deletion_cost(pod: Obj) -> int:
    """The value of the annotation; 0 if it is missing or invalid."""
    text = (pod["metadata"].get("annotations") or {}).get(DELETION_COST)
    if not text:
        return 0
    digits = text[1:] if text[0] == "-" else text
    if not (digits.isascii() and digits.isdigit()) or (len(digits) > 1 and digits[0] == "0"):
        return 0
    cost = int(text)
    return cost if -_COST_LIMIT <= cost < _COST_LIMIT else 0


def _age_bucket(since: float | None, now: float) -> int:
    """The age in powers of two: pods of similar age rank equal."""
    if since is None or now <= since:
        return -1
    return int(log2((now - since) * 1e9))


def rank_of(pod: Obj, siblings: int, now: float) -> Rank:
    """The sort key; the smallest is deleted first. ``siblings`` is the number of the workload's pods on the node."""
    ready = is_ready(pod)
    regular, sidecars = restarts_of(pod)
    return (
        bool(pod["spec"].get("nodeName")),
        _PHASES.get(phase_of(pod), 0),
        ready,
        deletion_cost(pod),
        -siblings,
        _age_bucket(ready_at(pod), now) if ready else -1,
        -regular,
        -sidecars,
        _age_bucket(created_at(pod), now),
        pod["metadata"].get("uid") or "",
    )


def to_delete(pods: Sequence[Obj], related: Iterable[Obj], count: int, now: float) -> tuple[Obj, ...]:
    """The ``count`` pods to delete. ``related`` are all pods of the same workload, including these."""
    if count >= len(pods):
        return tuple(pods)
    on_node = Counter(pod["spec"].get("nodeName") or "" for pod in related if is_active(pod))
    ranked = sorted(pods, key=lambda pod: rank_of(pod, on_node[pod["spec"].get("nodeName") or ""], now))
    return tuple(ranked[:count])
