"""Messages about unschedulable pods, in Kubernetes' words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from shoal.scheduler.model import NodeRefusal

NO_NODES = "no nodes available to schedule pods"
NOT_HELPFUL = "Preemption is not helpful for scheduling"
NO_VICTIMS = "No preemption victims found for incoming pod"
_LIMIT = 1024  # bytes of an event's message


def unfit(nodes: int, refusals: Mapping[NodeRefusal, int], before: str = "", after: str = "") -> str:
    """``0/5 nodes are available: 3 Insufficient cpu, 2 node(s) had untolerated taint(s).`` and the message of
    preemption. ``before`` is a reason of the pod as a whole, for which no node was evaluated."""
    reasons: Counter[str] = Counter()
    for refusal, count in refusals.items():
        for reason in refusal.reasons:
            reasons[reason] += count
    return histogram(nodes, reasons, before, after)


def histogram(nodes: int, reasons: Mapping[str, int], before: str = "", after: str = "") -> str:
    text = f"0/{nodes} nodes are available:"
    if before:
        text += f" {before}."
    elif reasons:
        text += f" {', '.join(sorted(f'{count} {reason}' for reason, count in reasons.items()))}."
    return f"{text} {after}" if after else text


def gated(gates: list[str]) -> str:
    return f"waiting for scheduling gates: [{' '.join(gates)}]"


def shortened(message: str) -> str:
    if len(message) <= _LIMIT:
        return message
    return f"{message[: _LIMIT - 4]} ..."
