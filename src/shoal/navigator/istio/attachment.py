"""To which workloads a policy attaches: by its namespace, its selector or its targets."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from shoal.kube.objects import Obj
from shoal.navigator.istio.model import Mesh
from shoal.navigator.istio.resources import (
    Workload,
    labels_of,
    name_of,
    namespace_of,
    selects,
    target_refs,
    workload_selector,
)

CLASSIC = "networking.istio.io"
GATEWAY_API = "gateway.networking.k8s.io"
WAYPOINT_CLASS = "istio-waypoint"
_USE_WAYPOINT = "istio.io/use-waypoint"
_USE_WAYPOINT_NAMESPACE = "istio.io/use-waypoint-namespace"


@dataclass(frozen=True)
class PolicyTargets:
    """What a policy may target through this workload: Gateways it serves (``ns/name``), and for a waypoint the services
    and service entries that use it."""

    gateways: Collection[str] = ()
    services: Collection[str] = ()
    entries: Collection[str] = field(default_factory=frozenset)


def policy_targets(mesh: Mesh, workload: Workload) -> PolicyTargets:
    gateways = frozenset(
        f"{namespace_of(it)}/{name_of(it)}" for it in served_gateways(mesh, workload)
    )  # fmt: skip
    if not workload.waypoint:
        return PolicyTargets(gateways)
    namespaces = {name_of(it): labels_of(it) for it in mesh.namespaces}
    users = [
        frozenset(f"{namespace_of(it)}/{name_of(it)}" for it in objects if _uses(it, namespaces, workload))
        for objects in (mesh.services, mesh.objects.get("serviceentries", ()))
    ]
    return PolicyTargets(gateways, users[0], users[1])


def _uses(obj: Obj, namespaces: Mapping[str, Mapping[str, str]], waypoint: Workload) -> bool:
    own, home = labels_of(obj), namespaces.get(namespace_of(obj), {})
    chosen = own if _USE_WAYPOINT in own else home
    where = chosen.get(_USE_WAYPOINT_NAMESPACE) or namespace_of(obj)
    return chosen.get(_USE_WAYPOINT) == waypoint.gateway_api_name and where == waypoint.namespace


def served_gateways(mesh: Mesh, workload: Workload) -> list[Obj]:
    """The Gateways whose listeners this workload opens. Only a router opens any, also for an empty selector."""
    if workload.proxy != "router":
        return []
    return [it for it in mesh.objects.get("gateways", ()) if selects(workload_selector(it), workload.labels)]


def attached(policy: Obj, workload: Workload, targets: PolicyTargets, root_namespace: str) -> str:
    """Why a policy with ``selector`` or ``targetRefs`` acts on a workload; empty when it does not."""
    home = namespace_of(policy)
    refs = target_refs(policy)
    for ref in refs:
        if _is(ref, CLASSIC, "Gateway") and _within(ref, home) and f"{home}/{ref.get('name')}" in targets.gateways:
            return f"targets the Gateway {ref.get('name')}, which this workload serves"
    if refs and not workload.gateway_api_name:
        return ""
    if refs:
        return _targeted(refs, home, workload, targets, root_namespace)
    if workload.waypoint:
        return ""  # only what targets it acts on a waypoint
    return selected(policy, workload, root_namespace)


def selected(policy: Obj, workload: Workload, root_namespace: str) -> str:
    """Why the policy's namespace and selector mean the workload; empty when they do not."""
    home = namespace_of(policy)
    if home not in (workload.namespace, root_namespace):
        return ""
    selector = workload_selector(policy)
    if not selects(selector, workload.labels):
        return ""
    if selector:
        return "its selector matches the pod's labels"
    return "for the whole mesh" if home == root_namespace else f"for all of namespace {home}"


def _targeted(refs: Collection[Obj], home: str, workload: Workload, targets: PolicyTargets, root_namespace: str) -> str:
    for ref in refs:
        name = ref.get("name", "")
        if workload.waypoint:
            if _is(ref, "", "Service") and f"{home}/{name}" in targets.services:
                return f"targets the Service {name}, which uses this waypoint"
            if _is(ref, CLASSIC, "ServiceEntry") and f"{home}/{name}" in targets.entries:
                return f"targets the ServiceEntry {name}, which uses this waypoint"
            if _is(ref, GATEWAY_API, "GatewayClass") and home == root_namespace and name == WAYPOINT_CLASS:
                return "targets all waypoints"
        if home != workload.namespace or not _within(ref, home):
            continue
        if _is(ref, GATEWAY_API, "Gateway") and name == workload.gateway_api_name:
            return f"targets the Gateway {name}, of which this is an instance"
    return ""


def _is(ref: Obj, group: str, kind: str) -> bool:
    return ref.get("kind") == kind and (ref.get("group") or "").replace("core", "") == group


def _within(ref: Obj, namespace: str) -> bool:
    return ref.get("namespace") in (None, "", namespace)


def missing_targets(policy: Obj, mesh: Mesh) -> list[tuple[str, Obj]]:
    """Targets, with their field paths, of kinds that edges report and that do not exist."""
    home = namespace_of(policy)
    known = {
        (CLASSIC, "Gateway"): mesh.objects.get("gateways", ()),
        (CLASSIC, "ServiceEntry"): mesh.objects.get("serviceentries", ()),
        ("", "Service"): mesh.services,
    }
    found = []
    for number, ref in enumerate(target_refs(policy)):
        objects = known.get(((ref.get("group") or "").replace("core", ""), ref.get("kind", "")))
        if objects is None:
            continue
        if not any(name_of(it) == ref.get("name") and namespace_of(it) == home for it in objects):
            found.append((f"spec.targetRefs[{number}]" if "targetRefs" in policy["spec"] else "spec.targetRef", ref))
    return found
