"""Summaries of what leads traffic to services: Ingresses, HTTPRoutes, SentinelRoutes; and of SentinelPolicies."""

from __future__ import annotations

from collections.abc import Iterable

from shoal.kube.objects import Obj
from shoal.navigator.summary_base import Summary, once, shared_labels, texts

_POLICY_TYPES = ("keyAuth", "jwt", "rateLimit", "firewall", "requestSize", "cors")


class RouteSummary(Summary, frozen=True, kw_only=True, gc=False):
    """An Ingress, an HTTPRoute or a SentinelRoute."""

    hosts: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    backends: tuple[str, ...] = ()  # "shop/web"
    gateways: tuple[str, ...] = ()  # "shop/public", or the class of an Ingress
    tls: bool = False


class PolicySummary(Summary, frozen=True, kw_only=True, gc=False):
    """A SentinelPolicy."""

    type: str = ""  # keyAuth, jwt, rateLimit, firewall, requestSize, cors
    order: int = 0
    enabled: bool = True
    routes: tuple[str, ...] = ()  # none: all of its environment


def ingress(obj: Obj) -> Summary:
    metadata, spec = obj["metadata"], obj.get("spec") or {}
    rules = spec.get("rules") or ()
    paths = [each for rule in rules for each in (rule.get("http") or {}).get("paths") or ()]
    backends = [each.get("backend") or {} for each in paths] + [spec.get("defaultBackend") or {}]
    named = (each["service"]["name"] for each in backends if each.get("service"))
    return RouteSummary(
        labels=shared_labels(metadata.get("labels")),
        created_at=metadata.get("creationTimestamp") or "",
        hosts=once(rule.get("host") or "*" for rule in rules),
        paths=once(each.get("path") or "/" for each in paths),
        backends=once(f"{metadata.get('namespace', '')}/{name}" for name in named),
        gateways=once([spec["ingressClassName"]] if spec.get("ingressClassName") else ()),
        tls=bool(spec.get("tls")),
    )


def http_route(obj: Obj) -> Summary:
    metadata, spec = obj["metadata"], obj.get("spec") or {}
    home, rules = metadata.get("namespace") or "", spec.get("rules") or ()
    anything: tuple[Obj, ...] = ({},)
    matches = [match for rule in rules for match in rule.get("matches") or anything]

    def named(references: Iterable[Obj]) -> tuple[str, ...]:
        return once(f"{each.get('namespace') or home}/{each['name']}" for each in references)

    return RouteSummary(
        labels=shared_labels(metadata.get("labels")),
        created_at=metadata.get("creationTimestamp") or "",
        hosts=once(spec.get("hostnames") or ("*",)),
        paths=once((match.get("path") or {}).get("value") or "/" for match in matches),
        backends=named(each for rule in rules for each in rule.get("backendRefs") or ()),
        gateways=named(spec.get("parentRefs") or ()),
    )


def sentinel_route(obj: Obj) -> Summary:
    metadata, spec = obj["metadata"], obj.get("spec") or {}
    return RouteSummary(
        labels=shared_labels(metadata.get("labels")),
        created_at=metadata.get("creationTimestamp") or "",
        hosts=once([spec["host"]]),
        paths=once([spec.get("path") or "/"]),
        backends=once(f"{each['namespace']}/{each['service']}" for each in spec.get("backends") or ()),
        tls=bool(spec.get("tls")),
    )


def sentinel_policy(obj: Obj) -> Summary:
    metadata, spec = obj["metadata"], obj.get("spec") or {}
    enabled = spec.get("enabled")
    return PolicySummary(
        labels=shared_labels(metadata.get("labels")),
        created_at=metadata.get("creationTimestamp") or "",
        type=next((name for name in _POLICY_TYPES if spec.get(name) is not None), ""),
        order=int(spec.get("order", 100)),
        enabled=True if enabled is None else bool(enabled),
        routes=texts(spec.get("routes")),
    )
