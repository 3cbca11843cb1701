"""apps/v1: Deployment, ReplicaSet, StatefulSet, DaemonSet and ControllerRevision."""

from __future__ import annotations

from shoal.kube.kinds.apps import daemonset, deployment, replicaset, revision, statefulset
from shoal.kube.rules import KindRules

RULES: dict[tuple[str, str, str], KindRules] = {
    ("apps", "v1", "ControllerRevision"): revision.RULES,
    ("apps", "v1", "DaemonSet"): daemonset.RULES,
    ("apps", "v1", "Deployment"): deployment.RULES,
    ("apps", "v1", "ReplicaSet"): replicaset.RULES,
    ("apps", "v1", "StatefulSet"): statefulset.RULES,
}
