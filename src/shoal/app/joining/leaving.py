"""Removes what joining has applied to a cluster. Found by label, so that it does not matter how the cluster joined."""

from __future__ import annotations

from collections.abc import Callable

from shoal.app.joining.manifests import NAMESPACE
from shoal.app.joining.service import MANAGER, CannotJoin, gone
from shoal.base.clock import Clock
from shoal.client import Client, Propagation, ResourceType, Scope, builtin
from shoal.crds.sentinel import definitions as sentinel_definitions
from shoal.crds.shard import definitions as shard_definitions
from shoal.errors import NotFound
from shoal.krane.labels import NAMESPACE_SENTINEL
from shoal.krane.sentinels import install

_RBAC = "rbac.authorization.k8s.io"
_KINDS = (
    builtin("deployments", "apps"),
    builtin("poddisruptionbudgets", "policy"),
    builtin("networkpolicies", "networking.k8s.io"),
    builtin("secrets"),
    builtin("serviceaccounts"),
    builtin("rolebindings", _RBAC),
    builtin("roles", _RBAC),
    builtin("clusterrolebindings", _RBAC),
    builtin("clusterroles", _RBAC),
)
_NAMESPACES = builtin("namespaces")
_DEFINITIONS = builtin("customresourcedefinitions", "apiextensions.k8s.io")
_OF_GATEWAYS = (install.ROLE,)  # they keep serving without an agent, unless everything is purged
_GONE_S = 120.0


async def remove_agents(client: Client, *, purge: bool, clock: Clock, say: Callable[[str], None]) -> None:
    """Remove agents, accounts, rights and their namespace; with ``purge`` also gateways, definitions and everything
    that these hold."""
    scope = Scope(label_selector=f"app.kubernetes.io/managed-by={MANAGER}")
    for kind in _KINDS:
        for each in (await client.of(kind).list(scope)).items:
            about = each["metadata"]
            if purge or about["name"] not in _OF_GATEWAYS:
                await _delete(client, kind, about["name"], about.get("namespace", ""))
    namespaces = [NAMESPACE]
    if purge:
        namespaces.append(NAMESPACE_SENTINEL)
        for definition in (*sentinel_definitions(), *shard_definitions()):
            await _delete(client, _DEFINITIONS, definition["metadata"]["name"])
        for kind in (builtin("clusterrolebindings", _RBAC), builtin("clusterroles", _RBAC)):
            await _delete(client, kind, install.ROLE)
    for name in namespaces:
        await _delete(client, _NAMESPACES, name)
    say(f"agents, rights and namespace {NAMESPACE} removed" + ("; gateways and definitions too" if purge else ""))
    for name in namespaces:
        if not await gone(client, name, clock=clock, timeout_s=_GONE_S):
            raise CannotJoin(
                f"namespace {name} is still being deleted: kubectl get namespace {name} -o yaml names what holds it"
            )


async def _delete(client: Client, kind: ResourceType, name: str, namespace: str = "") -> None:
    try:
        await client.of(kind).delete(name, namespace, propagation=Propagation.BACKGROUND)
    except NotFound:
        pass
