"""Why a Deployment has fewer pods than it should, as the controllers of the cluster say it in its conditions; pure."""

from __future__ import annotations

from shoal.kube.objects import Obj

_MESSAGE_LENGTH = 1000


def replica_failure(deployment: Obj) -> tuple[str, str]:
    """Reason and message where pods cannot be created: a quota, an admission rule such as PodSecurity, a limit. The
    Deployment has the condition of its ReplicaSet. Empty where they can."""
    return _condition(deployment, "ReplicaFailure", "True")


def overdue(deployment: Obj) -> tuple[str, str]:
    """Reason and message when its newest pods have not become ready within its deadline; empty while they may."""
    return _condition(deployment, "Progressing", "False")


def _condition(deployment: Obj, kind: str, status: str) -> tuple[str, str]:
    for each in (deployment.get("status") or {}).get("conditions") or ():
        if each.get("type") == kind and each.get("status") == status:
            return str(each.get("reason") or kind), str(each.get("message") or "")[:_MESSAGE_LENGTH]
    return "", ""
