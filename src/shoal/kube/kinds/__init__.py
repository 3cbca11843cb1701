"""The rules of every built-in kind, looked up by group, version and kind.

Each API group has a module that exports ``RULES``: here, or in ``shoal.kube.crd`` for custom resource definitions. A
module is imported when the first of its kinds is requested, so that start-up does not load the rules of all groups.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Final

from shoal.kube.rules import GENERIC, KindRules

__all__ = ["GENERIC", "KindRules", "rules_for"]

# API group -> module and name of its rules
_RULES: Final = {
    "": "shoal.kube.kinds.core:RULES",
    "admissionregistration.k8s.io": "shoal.kube.kinds.extension:RULES",
    "apiextensions.k8s.io": "shoal.kube.crd.kind:RULES",
    "apiregistration.k8s.io": "shoal.kube.kinds.extension:RULES",
    "apps": "shoal.kube.kinds.apps:RULES",
    "authentication.k8s.io": "shoal.kube.kinds.access:RULES",
    "authorization.k8s.io": "shoal.kube.kinds.access:RULES",
    "autoscaling": "shoal.kube.kinds.autoscaling:RULES",
    "batch": "shoal.kube.kinds.batch:RULES",
    "certificates.k8s.io": "shoal.kube.kinds.access:RULES",
    "coordination.k8s.io": "shoal.kube.kinds.cluster:RULES",
    "discovery.k8s.io": "shoal.kube.kinds.networking:RULES",
    "events.k8s.io": "shoal.kube.kinds.cluster:RULES",
    "flowcontrol.apiserver.k8s.io": "shoal.kube.kinds.cluster:RULES",
    "networking.k8s.io": "shoal.kube.kinds.networking:RULES",
    "node.k8s.io": "shoal.kube.kinds.cluster:RULES",
    "policy": "shoal.kube.kinds.policy:RULES",
    "rbac.authorization.k8s.io": "shoal.kube.kinds.rbac:RULES",
    "resource.k8s.io": "shoal.kube.kinds.devices:RULES",
    "scheduling.k8s.io": "shoal.kube.kinds.cluster:RULES",
    "storage.k8s.io": "shoal.kube.kinds.storage:RULES",
    "storagemigration.k8s.io": "shoal.kube.kinds.storage_migration:RULES",
}


@cache
def rules_for(group: str, version: str, kind: str) -> KindRules:
    """The rules of a kind; ``GENERIC`` for kinds without rules of their own."""
    place = _RULES.get(group)
    if place is None:
        return GENERIC
    module, _, name = place.partition(":")
    rules: dict[tuple[str, str, str], KindRules] = getattr(import_module(module), name)
    return rules.get((group, version, kind), GENERIC)
