"""DefaultTolerationSeconds: pods stay for five minutes on a node that is not ready or cannot be reached."""

from __future__ import annotations

from typing import Final

from shoal.apiserver.admission.model import CREATE, UPDATE, Admission, Where
from shoal.kube.objects import Obj

_TAINTS: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_SECONDS: Final = 300


class DefaultTolerationSeconds:
    def handles(self, where: Where) -> bool:
        return where in (("pods", CREATE, ""), ("pods", UPDATE, ""))

    def mutate(self, admission: Admission) -> None:
        pod = admission.object
        assert pod is not None
        spec = pod["spec"]
        tolerations = spec.get("tolerations") or []
        missing = [taint for taint in _TAINTS if not any(_covers(t, taint) for t in tolerations)]
        if missing:
            spec["tolerations"] = tolerations + [_toleration(taint) for taint in missing]


def _covers(toleration: Obj, taint: str) -> bool:
    return toleration.get("key", "") in ("", taint) and toleration.get("effect", "") in ("", "NoExecute")


def _toleration(taint: str) -> Obj:
    return {"key": taint, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _SECONDS}
