"""Services: defaults, preparation of updates, and rules.

The server allocates addresses and ports: between prepare and validate it calls ``needs_cluster_ip``,
``needs_node_ports`` and similar functions, and writes the allocated values into the spec.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from shoal.kube.kinds.checks import label_name
from shoal.kube.kinds.core.service_validation import (
    families_of,
    is_headless,
    validate_create,
    validate_status,
    validate_update,
)
from shoal.kube.objects import Obj
from shoal.kube.rules import KindRules

DEFAULT_AFFINITY_S: Final = 10800
_IP_FAMILY: Final = "IPv4"


def _spec(service: Obj) -> Obj:
    spec: Obj = service.get("spec") or {}
    return spec


# --- what the server allocates


def has_cluster_ip(service: Obj) -> bool:
    """Whether services of this type have a cluster IP, which can be ``None``."""
    return _spec(service).get("type") != "ExternalName"


def needs_cluster_ip(service: Obj) -> bool:
    """Whether the service needs an allocated address."""
    spec = _spec(service)
    return spec.get("type") != "ExternalName" and not spec.get("clusterIP") and not spec.get("clusterIPs")


def needs_node_ports(service: Obj) -> bool:
    """Whether every port of the service needs a node port."""
    spec = _spec(service)
    if spec.get("type") == "LoadBalancer":
        return spec.get("allocateLoadBalancerNodePorts") is not False
    return spec.get("type") == "NodePort"


def requested_node_ports(service: Obj) -> list[tuple[str, int]]:
    """Protocol and number of the node ports in the spec."""
    ports = _spec(service).get("ports") or ()
    return [(port.get("protocol", "TCP"), port["nodePort"]) for port in ports if port.get("nodePort")]


def needs_health_check_port(service: Obj) -> bool:
    """Whether the service has a node port for health checks, which is allocated unless the spec has one."""
    spec = _spec(service)
    return spec.get("type") == "LoadBalancer" and spec.get("externalTrafficPolicy") == "Local"


# --- defaults


def is_externally_accessible(service: Obj) -> bool:
    spec = _spec(service)
    kind = spec.get("type")
    return kind in ("LoadBalancer", "NodePort") or (kind == "ClusterIP" and bool(spec.get("externalIPs")))


def default_service(service: Obj) -> None:
    spec = service.setdefault("spec", {})
    if not spec.get("sessionAffinity"):
        spec["sessionAffinity"] = "None"
    if spec["sessionAffinity"] == "None":
        spec.pop("sessionAffinityConfig", None)
    elif spec["sessionAffinity"] == "ClientIP":
        config = (spec.get("sessionAffinityConfig") or {}).get("clientIP") or {}
        if config.get("timeoutSeconds") is None:
            spec["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": DEFAULT_AFFINITY_S}}
    kind = spec.get("type") or "ClusterIP"
    spec["type"] = kind
    for port in spec.get("ports") or ():
        if not port.get("protocol"):
            port["protocol"] = "TCP"
        if not port.get("targetPort") and port.get("port"):
            port["targetPort"] = port["port"]
    if is_externally_accessible(service) and not spec.get("externalTrafficPolicy"):
        spec["externalTrafficPolicy"] = "Cluster"
    if spec.get("internalTrafficPolicy") is None and kind in ("NodePort", "LoadBalancer", "ClusterIP"):
        spec["internalTrafficPolicy"] = "Cluster"
    if kind == "LoadBalancer":
        if spec.get("allocateLoadBalancerNodePorts") is None:
            spec["allocateLoadBalancerNodePorts"] = True
        for ingress in ((service.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ():
            if ingress.get("ip") and ingress.get("ipMode") is None:
                ingress["ipMode"] = "VIP"


# --- prepare


def prepare_create(service: Obj) -> None:
    service["status"] = {"loadBalancer": {}}
    spec = service.setdefault("spec", {})
    if spec.get("clusterIP") and not spec.get("clusterIPs"):
        spec["clusterIPs"] = [spec["clusterIP"]]
    _init_ip_families(spec, None)


def prepare_update(new: Obj, old: Obj) -> None:
    if "status" in old:
        new["status"] = old["status"]
    spec, before = new.setdefault("spec", {}), _spec(old)
    _keep_allocated(new, old)
    _normalize_cluster_ips(spec, before)
    _init_ip_families(spec, before)
    _drop_what_the_type_lacks(new, old)


def _keep_allocated(new: Obj, old: Obj) -> None:
    """Keep allocated addresses and ports that an update omits."""
    spec, before = new["spec"], _spec(old)
    if has_cluster_ip(old) and has_cluster_ip(new):
        for field in ("clusterIP", "clusterIPs"):
            if not spec.get(field) and before.get(field):
                spec[field] = before[field]
    if needs_node_ports(old) and needs_node_ports(new):
        was = {port.get("name", ""): port.get("nodePort", 0) for port in before.get("ports") or ()}
        taken = {number for _, number in requested_node_ports(new)} & set(was.values())
        for port in spec.get("ports") or ():
            number = was.get(port.get("name", ""), 0)
            if not port.get("nodePort") and number and number not in taken:
                port["nodePort"] = number
    if needs_health_check_port(old) and needs_health_check_port(new):
        if not spec.get("healthCheckNodePort") and before.get("healthCheckNodePort"):
            spec["healthCheckNodePort"] = before["healthCheckNodePort"]


def _normalize_cluster_ips(spec: Obj, before: Obj) -> None:
    """``clusterIP`` is the first of ``clusterIPs``: if a client changes only one of them, change the other too."""
    address, was = spec.get("clusterIP") or "", before.get("clusterIP") or ""
    addresses, were = spec.get("clusterIPs") or [], before.get("clusterIPs") or []
    if were and not addresses and address == was:
        spec["clusterIPs"] = were
    elif address != was and addresses == were:
        if not address:
            spec.pop("clusterIPs", None)
        else:
            spec["clusterIPs"] = [address]


def _init_ip_families(spec: Obj, before: Obj | None) -> None:
    """Set the families, for a cluster with one family of addresses; validation refuses what such a cluster cannot
    do."""
    if spec.get("type") == "ExternalName":
        return
    bare = spec.get("clusterIP") == "None" and not spec.get("selector")
    if not spec.get("ipFamilyPolicy"):
        kept = before.get("ipFamilyPolicy") if before else None
        spec["ipFamilyPolicy"] = kept or ("RequireDualStack" if bare else "SingleStack")
    if before is not None and spec["ipFamilyPolicy"] == "SingleStack":
        for field in ("clusterIPs", "ipFamilies"):
            if len(spec.get(field) or ()) > 1 and spec[field] == before.get(field):
                spec[field] = spec[field][:1]
    families = list(spec.get("ipFamilies") or ())
    named = families_of(spec.get("clusterIPs") or ())
    if len(set(named)) == len(named):  # two addresses of one family are reported as an error of the addresses
        families += named[len(families) :]
    if not families:
        families = [_IP_FAMILY]
    if bare and len(families) < 2 and spec["ipFamilyPolicy"] != "SingleStack":
        families.append("IPv6" if families[0] == "IPv4" else "IPv4")
    spec["ipFamilies"] = families


def _drop_what_the_type_lacks(new: Obj, old: Obj) -> None:
    """On a change of type, remove fields that only the old type has, unless the update changes them too."""
    spec, before = new["spec"], _spec(old)

    def drop_if_kept(*fields: str) -> None:
        if all(spec.get(field) == before.get(field) for field in fields):
            for field in fields:
                spec.pop(field, None)

    if has_cluster_ip(old) and not has_cluster_ip(new):
        drop_if_kept("clusterIP", "clusterIPs")
        drop_if_kept("ipFamilies")
        drop_if_kept("ipFamilyPolicy")
    kind, was = spec.get("type"), before.get("type")
    uses_ports = ("NodePort", "LoadBalancer")
    if was in uses_ports and kind not in uses_ports:
        if {number for _, number in requested_node_ports(new)} <= {number for _, number in requested_node_ports(old)}:
            for port in spec.get("ports") or ():
                port.pop("nodePort", None)
    if needs_health_check_port(old) and not needs_health_check_port(new):
        drop_if_kept("healthCheckNodePort")
    if was == "LoadBalancer" and kind != "LoadBalancer":
        drop_if_kept("allocateLoadBalancerNodePorts")
        drop_if_kept("loadBalancerClass")
    if is_externally_accessible(old) and not is_externally_accessible(new):
        drop_if_kept("externalTrafficPolicy")
    if kind != "LoadBalancer":
        new["status"] = {**(new.get("status") or {}), "loadBalancer": {}}


# --- warnings and rules


def service_warnings(service: Obj) -> list[str]:
    spec, found = _spec(service), []
    annotations = (service.get("metadata") or {}).get("annotations") or {}
    old_hints, mode = "service.kubernetes.io/topology-aware-hints", "service.kubernetes.io/topology-mode"
    if old_hints in annotations:
        found.append(f"annotation {old_hints} is deprecated, please use {mode} instead")
    kind, external = spec.get("type"), spec.get("externalIPs")
    headless = kind == "ClusterIP" and is_headless(service)
    if headless:
        if spec.get("loadBalancerIP"):
            found.append("spec.loadBalancerIP is ignored for headless services")
        if external:
            found.append("spec.externalIPs is ignored for headless services")
        if spec.get("sessionAffinity") != "None":
            found.append("spec.SessionAffinity is ignored for headless services")
    elif external and kind != "ExternalName":
        found.append("spec.externalIPs is deprecated and may no longer be implemented in some clusters")
    if kind == "ExternalName" and external:
        found.append('spec.externalIPs is ignored when spec.type is "ExternalName"')
    if kind != "ExternalName" and spec.get("externalName"):
        found.append('spec.externalName is ignored when spec.type is not "ExternalName"')
    if spec.get("trafficDistribution") == "PreferClose":
        found.append('spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone"')
    return found


def _spec_text(field: str) -> Callable[[Obj], str]:
    return lambda service: _spec(service).get(field) or ""


SERVICE = KindRules(
    default=default_service,
    prepare_create=prepare_create,
    prepare_update=prepare_update,
    validate_create=validate_create,
    validate_update=validate_update,
    validate_status=validate_status,
    name_errors=label_name,
    warnings=service_warnings,
    selectable={"spec.clusterIP": _spec_text("clusterIP"), "spec.type": _spec_text("type")},
)
