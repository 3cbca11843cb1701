"""Mistakes in DestinationRules: hosts and subsets that match nothing, contradictions with each other or mutual TLS."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from shoal.kube.objects import Obj
from shoal.navigator.istio.hosts import full_name, overlap
from shoal.navigator.istio.mistakes.finding import ERROR, WARNING, MeshLookup, mistake, nearest
from shoal.navigator.istio.model import Mistake
from shoal.navigator.istio.mtls import peer_policies
from shoal.navigator.istio.resources import (
    labels_of,
    name_of,
    namespace_of,
    selects,
    spec_of,
    workload_of,
    workload_selector,
)

_PLAIN = ("DISABLE", "SIMPLE")  # no certificate of the mesh is shown


def find(lookup: MeshLookup) -> Iterator[Mistake]:
    yield from contradicting(lookup)
    for rule in lookup.all("destinationrules"):
        host = full_name(spec_of(rule).get("host", ""), namespace_of(rule), lookup.mesh.domain)
        if not any(overlap(host, known) for known in lookup.registry.names):
            yield mistake(
                "unknown-host",
                WARNING,
                rule,
                "spec.host",
                f"service {host} not found",
                nearest(host, lookup.registry.names) or "name a Service or a ServiceEntry that exists",
            )
            continue
        yield from empty_subsets(lookup, rule, host)
        yield from mtls_mismatch(lookup, rule, host)


def contradicting(lookup: MeshLookup) -> Iterator[Mistake]:
    """Of two rules for one host in one namespace, Istio uses only the subsets of the second."""
    by: dict[tuple[str, str], list[Obj]] = {}
    for rule in lookup.all("destinationrules"):
        host = full_name(spec_of(rule).get("host", ""), namespace_of(rule), lookup.mesh.domain)
        by.setdefault((namespace_of(rule), host), []).append(rule)
    for (_, host), rules in by.items():
        for one, other in combinations(rules, 2):
            if workload_selector(one) != workload_selector(other):
                continue
            twice = {it.get("name") for it in spec_of(one).get("subsets") or []} & {
                it.get("name") for it in spec_of(other).get("subsets") or []
            }
            both = "trafficPolicy" in spec_of(one) and "trafficPolicy" in spec_of(other)
            if twice or both:
                what = f"the subset {sorted(map(str, twice))[0]}" if twice else "a trafficPolicy"
                for mine, theirs in ((one, other), (other, one)):
                    yield mistake(
                        "rules-contradict",
                        ERROR,
                        mine,
                        "spec.subsets" if twice else "spec.trafficPolicy",
                        f"{namespace_of(theirs)}/{name_of(theirs)} has {what} for {host} too; only one is used",
                        "put all settings of one host into one DestinationRule",
                        [theirs],
                    )


def empty_subsets(lookup: MeshLookup, rule: Obj, host: str) -> Iterator[Mistake]:
    service = lookup.registry.kubernetes.get(host)
    if service is None or not spec_of(service).get("selector"):
        return
    pods = lookup.registry.selected_by(service)
    for number, subset in enumerate(spec_of(rule).get("subsets") or []):
        labels = subset.get("labels") or {}
        if not any(selects(labels, labels_of(pod)) for pod in pods):
            wanted = ", ".join(f"{name}={value}" for name, value in labels.items())
            yield mistake(
                "subset-selects-nothing",
                WARNING,
                rule,
                f"spec.subsets[{number}].labels",
                f"no pod of {host} has {wanted}, so requests to subset {subset.get('name')} fail",
                "correct the labels, or run pods that have them",
                [service],
            )


def mtls_mismatch(lookup: MeshLookup, rule: Obj, host: str) -> Iterator[Mistake]:
    """What clients send and what servers take, where both are set."""
    service = lookup.registry.kubernetes.get(host)
    mode = (((spec_of(rule).get("trafficPolicy") or {}).get("tls")) or {}).get("mode")
    if service is None or mode is None:
        return
    for pod in lookup.registry.selected_by(service):
        workload = workload_of(pod)
        taken, policy = peer_policies(lookup.mesh, workload).decided()
        meshed = workload.proxy in ("sidecar", "ztunnel")
        if mode in _PLAIN and taken == "STRICT" and meshed:
            message = f"clients send {mode} to {host}, whose pods accept mutual TLS only"
            fix = "use ISTIO_MUTUAL here, or PERMISSIVE in the PeerAuthentication"
        elif mode == "ISTIO_MUTUAL" and (taken == "DISABLE" or not meshed):
            why = "whose pods have mutual TLS disabled" if meshed else f"whose pod {workload.name} has no proxy"
            message, fix = (
                f"clients send mutual TLS to {host}, {why}",
                "use DISABLE here, or let the pods join the mesh",
            )
        else:
            continue
        yield mistake(
            "mtls-mismatch", ERROR, rule, "spec.trafficPolicy.tls.mode", message, fix, [policy] if policy else ()
        )
        return
