"""Kinds about the cluster itself: priorities, runtimes, leases, events and flow control."""

from __future__ import annotations

from shoal.kube.kinds.cluster import event, lease, priority_class, priority_level, runtime_class
from shoal.kube.kinds.cluster import flow_schema as flow
from shoal.kube.rules import KindRules

_FLOW = "flowcontrol.apiserver.k8s.io"

RULES: dict[tuple[str, str, str], KindRules] = {
    ("coordination.k8s.io", "v1", "Lease"): lease.RULES,
    ("events.k8s.io", "v1", "Event"): event.RULES,
    (_FLOW, "v1", "FlowSchema"): flow.RULES,
    (_FLOW, "v1", "PriorityLevelConfiguration"): priority_level.RULES,
    ("node.k8s.io", "v1", "RuntimeClass"): runtime_class.RULES,
    ("scheduling.k8s.io", "v1", "PriorityClass"): priority_class.RULES,
}
