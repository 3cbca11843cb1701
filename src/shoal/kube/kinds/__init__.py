"""The rules of every built-in kind, looked up by group, version and kind.

Each API group has a module here that exports ``RULES``. A module is imported when the first of its kinds is asked
for, so that a server with ten kinds does not pay at start-up for eighty.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Final

from shoal.kube.rules import GENERIC, KindRules

__all__ = ["GENERIC", "KindRules", "rules_for"]

_MODULES: Final = {
    "": "core",
    "admissionregistration.k8s.io": "extension",
    "apiextensions.k8s.io": "extension",
    "apiregistration.k8s.io": "extension",
    "apps": "apps",
    "authentication.k8s.io": "access",
    "authorization.k8s.io": "access",
    "autoscaling": "autoscaling",
    "batch": "batch",
    "certificates.k8s.io": "access",
    "coordination.k8s.io": "cluster",
    "discovery.k8s.io": "networking",
    "events.k8s.io": "cluster",
    "flowcontrol.apiserver.k8s.io": "cluster",
    "networking.k8s.io": "networking",
    "node.k8s.io": "cluster",
    "policy": "policy",
    "rbac.authorization.k8s.io": "rbac",
    "resource.k8s.io": "devices",
    "scheduling.k8s.io": "cluster",
    "storage.k8s.io": "storage",
}


@cache
def rules_for(group: str, version: str, kind: str) -> KindRules:
    """The rules of a kind; ``GENERIC`` for kinds without rules of their own."""
    module = _MODULES.get(group)
    if module is None:
        return GENERIC
    rules: dict[tuple[str, str, str], KindRules] = import_module(f"shoal.kube.kinds.{module}").RULES
    return rules.get((group, version, kind), GENERIC)
