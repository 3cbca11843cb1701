"""Mistakes in selectors: Gateways without pods, policies that match nothing, two policies where one takes effect."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from shoal.kube.objects import Obj
from shoal.navigator.istio.attachment import missing_targets
from shoal.navigator.istio.hosts import overlap
from shoal.navigator.istio.mistakes.finding import ERROR, WARNING, MeshLookup, mistake
from shoal.navigator.istio.model import Mistake
from shoal.navigator.istio.resources import (
    created,
    name_of,
    namespace_of,
    selects,
    spec_of,
    target_refs,
    workload_selector,
)

POLICIES = (
    "authorizationpolicies",
    "requestauthentications",
    "peerauthentications",
    "wasmplugins",
    "envoyfilters",
    "sidecars",
)
_ONE_PER_NAMESPACE = {"peerauthentications": "PeerAuthentication", "sidecars": "Sidecar"}
_EXPORTED = ("virtualservices", "destinationrules", "serviceentries")


def find(lookup: MeshLookup) -> Iterator[Mistake]:
    for gateway in lookup.all("gateways"):
        yield from gateway_without_pods(lookup, gateway)
    yield from gateways_in_conflict(lookup)
    for kind in POLICIES:
        for policy in lookup.all(kind):
            yield from selecting_nothing(lookup, policy)
            yield from targeting_nothing(lookup, policy)
    yield from overridden(lookup)
    for kind in _EXPORTED:
        for obj in lookup.all(kind):
            yield from unknown_namespaces(lookup, obj)


def gateway_without_pods(lookup: MeshLookup, gateway: Obj) -> Iterator[Mistake]:
    selector = workload_selector(gateway)
    routers = [it for it in lookup.workloads if it.proxy == "router"]
    if any(selects(selector, it.labels) for it in routers):
        return
    wanted = ", ".join(f"{name}={value}" for name, value in selector.items()) or "anything"
    yield mistake(
        "selector-matches-nothing",
        ERROR,
        gateway,
        "spec.selector",
        f"no gateway pod has {wanted}, so nothing listens for this Gateway",
        "use the labels of a gateway's pods, such as istio: ingressgateway",
    )


def gateways_in_conflict(lookup: MeshLookup) -> Iterator[Mistake]:
    for one, other in combinations(lookup.all("gateways"), 2):
        if workload_selector(one) != workload_selector(other):
            continue
        for port, host in _listeners(one):
            if any(port == second and overlap(host, also) for second, also in _listeners(other)):
                yield mistake(
                    "gateways-overlap",
                    WARNING,
                    one,
                    "spec.servers",
                    f"{namespace_of(other)}/{name_of(other)} serves {host} on port {port} of the same pods too",
                    "give each host to one Gateway",
                    [other],
                )
                break


def _listeners(gateway: Obj) -> list[tuple[int, str]]:
    return [
        ((server.get("port") or {}).get("number", 0), host.rpartition("/")[2])
        for server in spec_of(gateway).get("servers") or []
        for host in server.get("hosts") or []
    ]


def selecting_nothing(lookup: MeshLookup, policy: Obj) -> Iterator[Mistake]:
    selector = workload_selector(policy)
    if not selector:
        return
    home = namespace_of(policy)
    everywhere = home == lookup.mesh.root_namespace and policy["kind"] != "Sidecar"
    if any((everywhere or it.namespace == home) and selects(selector, it.labels) for it in lookup.workloads):
        return
    wanted = ", ".join(f"{name}={value}" for name, value in selector.items())
    path = "spec.workloadSelector" if "workloadSelector" in spec_of(policy) else "spec.selector"
    yield mistake(
        "selector-matches-nothing",
        WARNING,
        policy,
        path,
        f"no pod {'' if everywhere else f'of namespace {home} '}has {wanted}",
        "correct the labels, or leave the selector out to mean all pods",
    )


def targeting_nothing(lookup: MeshLookup, policy: Obj) -> Iterator[Mistake]:
    for path, ref in missing_targets(policy, lookup.mesh):
        yield mistake(
            "unknown-target",
            ERROR,
            policy,
            path,
            f"there is no {ref.get('kind')} {ref.get('name')} in namespace {namespace_of(policy)}",
            "target something of the policy's own namespace that exists",
        )
    if target_refs(policy) and workload_selector(policy):
        yield mistake(
            "selector-and-targets",
            ERROR,
            policy,
            "spec.targetRefs",
            "the policy has both a selector and targets; only the targets are used",
            "leave one of them out",
        )


def overridden(lookup: MeshLookup) -> Iterator[Mistake]:
    """Where only the oldest resource of a namespace takes effect, the others are mistakes."""
    for kind, word in _ONE_PER_NAMESPACE.items():
        first: dict[str, Obj] = {}
        for obj in sorted(lookup.all(kind), key=created):
            if workload_selector(obj):
                continue
            heard = first.setdefault(namespace_of(obj), obj)
            if heard is not obj:
                yield mistake(
                    "not-heard",
                    ERROR,
                    obj,
                    "metadata.name",
                    f"namespace {namespace_of(obj)} has the {word} {name_of(heard)} without a selector already",
                    f"delete one of them, or give this {word} a selector",
                    [heard],
                )


def unknown_namespaces(lookup: MeshLookup, obj: Obj) -> Iterator[Mistake]:
    for number, name in enumerate(spec_of(obj).get("exportTo") or []):
        if lookup.namespaces and name not in ("*", ".", "~") and name not in lookup.namespaces:
            yield mistake(
                "unknown-namespace",
                WARNING,
                obj,
                f"spec.exportTo[{number}]",
                f"there is no namespace {name}",
                "name a namespace that exists, or use . for this one and * for all",
            )
