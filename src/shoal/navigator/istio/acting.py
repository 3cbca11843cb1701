"""Finds the resources that act on a workload, and why, by Istio's own rules.

Policies act on a sidecar as a server; routes and rules of the called services act on it as a client. Gateways and the
resources bound to them act on a router. Only mutual TLS and authorization act on a pod with ztunnel. Nothing acts on a
pod without a proxy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from shoal.kube.objects import Obj
from shoal.navigator.istio.attachment import PolicyTargets, attached, policy_targets, selected, served_gateways
from shoal.navigator.istio.hosts import full_name, visible
from shoal.navigator.istio.model import Acting, Mesh
from shoal.navigator.istio.mtls import peer_policies
from shoal.navigator.istio.outbound import DestinationRules, Imports, imports_of, sidecar_for
from shoal.navigator.istio.resources import (
    MESH,
    ServiceRegistry,
    Workload,
    gateway_name,
    gateways_of,
    name_of,
    namespace_of,
    selects,
    spec_of,
    workload_selector,
)

_SHOWN = 3  # hosts named in a reason


def find_acting(mesh: Mesh, workload: Workload) -> list[Acting]:
    if workload.proxy == "none":
        return []
    targets = policy_targets(mesh, workload)
    found = [*_peers(mesh, workload), *_policies(mesh, workload, targets, "authorizationpolicies")]
    if workload.proxy != "ztunnel":
        imports = imports_of(mesh, workload)
        for kind in ("requestauthentications", "wasmplugins", "envoyfilters"):
            found += _policies(mesh, workload, targets, kind)
        found += _sidecars(mesh, workload)
        found += _gateways(mesh, workload)
        found += _routes(mesh, workload, imports)
        found += _rules(mesh, workload, imports)
        found += _entries(mesh, workload, imports)
    return sorted(found, key=lambda it: (it.kind, it.namespace, it.name))


def _acting(obj: Obj, reason: str) -> Acting:
    return Acting(kind=obj["kind"], namespace=namespace_of(obj), name=name_of(obj), reason=reason)


def _hosts(hosts: Sequence[str]) -> str:
    shown = ", ".join(hosts[:_SHOWN])
    return shown if len(hosts) <= _SHOWN else f"{shown} and {len(hosts) - _SHOWN} more"


def _peers(mesh: Mesh, workload: Workload) -> Iterator[Acting]:
    if workload.proxy == "router":
        return  # a Gateway says itself which TLS its listeners speak
    policies = peer_policies(mesh, workload)
    mode, decides = policies.decided()
    for policy in policies.acting:
        why = selected(policy, workload, mesh.root_namespace)
        if policy is decides:
            yield _acting(policy, f"{why}; decides mutual TLS: {mode}")
        elif decides is not None and policies.acting.index(policy) > policies.acting.index(decides):
            yield _acting(policy, f"{why}; overridden by {namespace_of(decides)}/{name_of(decides)}")
        else:
            yield _acting(policy, why)


def _policies(mesh: Mesh, workload: Workload, targets: PolicyTargets, kind: str) -> Iterator[Acting]:
    for policy in mesh.objects.get(kind, ()):
        reason = attached(policy, workload, targets, mesh.root_namespace)
        if reason:
            yield _acting(policy, reason)


def _sidecars(mesh: Mesh, workload: Workload) -> Iterator[Acting]:
    chosen = sidecar_for(mesh, workload)
    if chosen is not None:
        yield _acting(chosen, selected(chosen, workload, mesh.root_namespace))


def _gateways(mesh: Mesh, workload: Workload) -> Iterator[Acting]:
    for gateway in served_gateways(mesh, workload):
        chosen = "its selector matches the pod's labels" if workload_selector(gateway) else "its selector is empty"
        yield _acting(gateway, f"{chosen}, and the pod is a gateway")


def _routes(mesh: Mesh, workload: Workload, imports: Imports) -> Iterator[Acting]:
    served = {f"{namespace_of(it)}/{name_of(it)}" for it in served_gateways(mesh, workload)}
    for route in mesh.objects.get("virtualservices", ()):
        home, spec = namespace_of(route), spec_of(route)
        if not visible(spec.get("exportTo"), home, workload.namespace):
            continue
        hosts = [full_name(host, home, mesh.domain) for host in spec.get("hosts") or []]
        bound = gateways_of(route)
        if workload.proxy == "router":
            through = [gateway for gateway in bound if gateway != MESH and gateway_name(gateway, home) in served]
            if through:
                yield _acting(
                    route, f"routes {_hosts(hosts)} at the Gateway {', '.join(through)}, which this pod serves"
                )
        elif MESH in bound and imports.allow(home, hosts):
            yield _acting(route, f"routes what the workload sends to {_hosts(hosts)}")


def _rules(mesh: Mesh, workload: Workload, imports: Imports) -> Iterator[Acting]:
    words = {
        "client": "a rule of the workload's own namespace",
        "service": "a rule of the called service's namespace",
        "root": "a rule of the root namespace",
    }
    for chosen in DestinationRules(mesh, ServiceRegistry(mesh)).chosen(workload, imports):
        yield _acting(chosen.rule, f"decides how the workload calls {_hosts(chosen.hosts)}: {words[chosen.by]}")


def _entries(mesh: Mesh, workload: Workload, imports: Imports) -> Iterator[Acting]:
    for entry in mesh.objects.get("serviceentries", ()):
        home, spec = namespace_of(entry), spec_of(entry)
        hosts = [full_name(host, home, mesh.domain) for host in spec.get("hosts") or []]
        selector = workload_selector(entry)
        if selector and home == workload.namespace and selects(selector, workload.labels):
            yield _acting(entry, f"the pod is an endpoint of {_hosts(hosts)}")
        elif visible(spec.get("exportTo"), home, workload.namespace) and imports.allow(home, hosts):
            yield _acting(entry, f"lets the workload call {_hosts(hosts)}")
