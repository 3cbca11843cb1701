"""TaintNodesByCondition: a new node takes no pods until the node lifecycle controller has seen that it is ready."""

from __future__ import annotations

from typing import Final

from shoal.apiserver.admission.model import CREATE, Admission, Where

_KEY, _EFFECT = "node.kubernetes.io/not-ready", "NoSchedule"
_NODES: Final = "nodes"


class TaintNodesByCondition:
    def handles(self, where: Where) -> bool:
        return where == (_NODES, CREATE, "")

    def mutate(self, admission: Admission) -> None:
        node = admission.object
        assert node is not None
        spec = node.setdefault("spec", {})
        taints = spec.get("taints") or []
        if not any((taint.get("key"), taint.get("effect")) == (_KEY, _EFFECT) for taint in taints):
            spec["taints"] = [*taints, {"key": _KEY, "effect": _EFFECT}]
