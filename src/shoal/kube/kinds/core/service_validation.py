"""Validates services and their changes."""

from __future__ import annotations

from collections.abc import Iterable

from shoal.errors import FieldError, duplicate, forbidden, invalid, required
from shoal.kube.kinds.checks import (
    PROTOCOLS,
    Errors,
    check_enum,
    check_labels,
    check_port_number,
    check_port_or_name,
    check_required_enum,
    check_syntax,
)
from shoal.kube.kinds.core.endpoints import check_special_ip
from shoal.kube.names import (
    is_cidr_legacy,
    is_dns1123_label,
    is_dns1123_subdomain,
    is_ip_legacy,
    is_qualified_name,
    parse_ip,
)
from shoal.kube.objects import Obj

_TYPES = frozenset({"ClusterIP", "NodePort", "LoadBalancer", "ExternalName"})
_AFFINITIES = frozenset({"ClientIP", "None"})
_TRAFFIC = frozenset({"Cluster", "Local"})
_DISTRIBUTIONS = ("PreferClose", "PreferSameZone", "PreferSameNode")
_FAMILIES = frozenset({"IPv4", "IPv6"})
_FAMILY_POLICIES = frozenset({"SingleStack", "PreferDualStack", "RequireDualStack"})
_IP_MODES = frozenset({"VIP", "Proxy"})
_CONFIGURED = frozenset({"IPv4"})
_MAX_AFFINITY_S = 86400
_SOURCE_RANGES = "service.beta.kubernetes.io/load-balancer-source-ranges"
_OLD_HINTS, _MODE = "service.kubernetes.io/topology-aware-hints", "service.kubernetes.io/topology-mode"
_ONLY_LOAD_BALANCER = "may only be used when `type` is 'LoadBalancer'"


def is_headless(service: Obj) -> bool:
    return ((service.get("spec") or {}).get("clusterIPs") or []) == ["None"]


def families_of(addresses: Iterable[str]) -> list[str]:
    """The families of addresses, up to the first invalid one."""
    found = []
    for address in addresses:
        parsed = parse_ip(address)
        if parsed is None:
            break
        found.append("IPv4" if parsed.version == 4 else "IPv6")
    return found


def validate_create(service: Obj) -> list[FieldError]:
    errors: Errors = []
    _check_service(service, None, errors)
    return errors


def validate_update(new: Obj, old: Obj) -> list[FieldError]:
    errors: Errors = []
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    if "ExternalName" not in (spec.get("type"), before.get("type")):
        _check_cluster_ip_change(new, old, errors)
        _check_family_change(new, old, errors)
    if spec.get("type") == before.get("type") == "LoadBalancer":
        if spec.get("loadBalancerClass") != before.get("loadBalancerClass"):
            errors.append(invalid("spec.loadBalancerClass", spec.get("loadBalancerClass"), "may not change once set"))
    if _has_health_check(spec) and _has_health_check(before):
        if spec.get("healthCheckNodePort") != before.get("healthCheckNodePort"):
            errors.append(forbidden("spec.healthCheckNodePort", "field is immutable"))
    _check_service(new, old, errors)
    return errors


def validate_status(new: Obj, old: Obj) -> list[FieldError]:
    errors: Errors = []
    path = "status.loadBalancer.ingress"
    entries = ((new.get("status") or {}).get("loadBalancer") or {}).get("ingress") or []
    before = ((old.get("status") or {}).get("loadBalancer") or {}).get("ingress") or []
    if entries and (new.get("spec") or {}).get("type") != "LoadBalancer":
        errors.append(forbidden(path, "may only be used when `spec.type` is 'LoadBalancer'"))
        return errors
    known = {entry.get("ip") for entry in before}
    for index, entry in enumerate(entries):
        _check_ingress(entry, known, f"{path}[{index}]", errors)
    return errors


def _check_ingress(entry: Obj, known: set[str | None], path: str, errors: Errors) -> None:
    address, mode, name = entry.get("ip"), entry.get("ipMode"), entry.get("hostname")
    if address and address not in known:
        check_syntax(address, is_ip_legacy, f"{path}.ip", errors)
    if mode is None:
        if address:
            errors.append(required(f"{path}.ipMode", "must be specified when `ip` is set"))
    elif not address:
        errors.append(forbidden(f"{path}.ipMode", "may not be specified when `ip` is not set"))
    else:
        check_enum(mode, _IP_MODES, f"{path}.ipMode", errors)
    if name:
        check_syntax(name, is_dns1123_subdomain, f"{path}.hostname", errors)
        if parse_ip(name) is not None:
            errors.append(invalid(f"{path}.hostname", name, "must be a DNS name, not an IP address"))


def _check_service(service: Obj, old: Obj | None, errors: Errors) -> None:
    spec = service.get("spec") or {}
    kind, headless = spec.get("type", ""), is_headless(service)
    ports = spec.get("ports") or []
    _check_annotations(service, errors)
    if not ports and not headless and kind != "ExternalName":
        errors.append(required("spec.ports"))
    if headless and kind in ("LoadBalancer", "NodePort"):
        errors.append(invalid("spec.clusterIPs[0]", "None", f"may not be set to 'None' for {kind} services"))
    if kind == "ExternalName":
        _check_external_name(spec, errors)
    _check_ports(ports, errors)
    check_labels(spec.get("selector"), "spec.selector", errors)
    _check_affinity(spec, errors)
    if kind != "ExternalName":
        _check_cluster_ips(service, old, errors)
    _check_external_ips(spec, old, errors)
    check_required_enum(kind, _TYPES, "spec.type", errors)
    _check_port_numbers(kind, ports, errors)
    _check_source_ranges(service, old, errors)
    _check_load_balancer(spec, errors)
    _check_traffic(spec, errors)


def _check_annotations(service: Obj, errors: Errors) -> None:
    annotations = (service.get("metadata") or {}).get("annotations")
    if not annotations:
        return
    hints, mode = annotations.get(_OLD_HINTS), annotations.get(_MODE)
    if hints is not None and mode is not None and hints != mode:
        detail = f"must match annotations[{_OLD_HINTS}] when both are specified"
        errors.append(invalid(f"metadata.annotations[{_MODE}]", mode, detail))


def _check_external_name(spec: Obj, errors: Errors) -> None:
    for field in ("clusterIPs", "ipFamilies", "ipFamilyPolicy"):
        if spec.get(field):
            errors.append(forbidden(f"spec.{field}", "may not be set for ExternalName services"))
    name = spec.get("externalName", "").removesuffix(".")
    if not name:
        errors.append(required("spec.externalName"))
    else:
        check_syntax(name, is_dns1123_subdomain, "spec.externalName", errors)


def _check_ports(ports: list[Obj], errors: Errors) -> None:
    names: set[str] = set()
    for index, port in enumerate(ports):
        path, name = f"spec.ports[{index}]", port.get("name", "")
        if name:
            check_syntax(name, is_dns1123_label, f"{path}.name", errors)
            if name in names:
                errors.append(duplicate(f"{path}.name", name))
            names.add(name)
        elif len(ports) > 1:
            errors.append(required(f"{path}.name"))
        check_port_number(port.get("port", 0), f"{path}.port", errors)
        check_required_enum(port.get("protocol"), PROTOCOLS, f"{path}.protocol", errors)
        check_port_or_name(port.get("targetPort", 0), f"{path}.targetPort", errors)
        if port.get("appProtocol") is not None:
            check_syntax(port["appProtocol"], is_qualified_name, f"{path}.appProtocol", errors)


def _check_affinity(spec: Obj, errors: Errors) -> None:
    affinity, config = spec.get("sessionAffinity"), spec.get("sessionAffinityConfig")
    check_required_enum(affinity, _AFFINITIES, "spec.sessionAffinity", errors)
    path = "spec.sessionAffinityConfig"
    if affinity == "None" and config is not None:
        errors.append(forbidden(path, "must not be set when session affinity is None"))
    elif affinity == "ClientIP":
        detail = "when session affinity type is ClientIP"
        client = config.get("clientIP") if config is not None else None
        timeout = client.get("timeoutSeconds") if client is not None else None
        if config is None:
            errors.append(required(path, detail))
        elif client is None:
            errors.append(required(f"{path}.clientIP", detail))
        elif timeout is None:
            errors.append(required(f"{path}.clientIP.timeoutSeconds", detail))
        elif not 0 < timeout <= _MAX_AFFINITY_S:
            text = f"must be greater than 0 and less than {_MAX_AFFINITY_S}"
            errors.append(invalid(f"{path}.clientIP.timeoutSeconds", timeout, text))


def _check_cluster_ips(service: Obj, old: Obj | None, errors: Errors) -> None:
    spec, path = service.get("spec") or {}, "spec.clusterIPs"
    address, addresses = spec.get("clusterIP", ""), spec.get("clusterIPs") or []
    if address and not addresses:
        errors.append(required(path))
    elif address and addresses[0] != address:
        errors.append(invalid(path, addresses, "first value must match `clusterIP`"))
    elif addresses and not address:
        errors.append(invalid(path, addresses, "must be empty when `clusterIP` is not specified"))
    families, policy = spec.get("ipFamilies") or [], spec.get("ipFamilyPolicy")
    seen: set[str] = set()
    for index, family in enumerate(families):
        check_enum(family, _FAMILIES, f"spec.ipFamilies[{index}]", errors)
        if family in seen:
            errors.append(duplicate(f"spec.ipFamilies[{index}]", family))
        seen.add(family)
    if policy is not None:
        check_enum(policy, _FAMILY_POLICIES, "spec.ipFamilyPolicy", errors)
    if not _check_addresses(addresses, ((old or {}).get("spec") or {}).get("clusterIPs") or [], errors):
        return
    if len(addresses) > 1 and len(set(families_of(addresses))) != len(addresses):
        errors.append(invalid(path, addresses, "may specify no more than one IP for each IP family"))
    if not is_headless(service):
        for index, (wanted, found) in enumerate(zip(families, families_of(addresses), strict=False)):
            if wanted != found and wanted in _FAMILIES:
                detail = f"expected an {wanted} value as indicated by `ipFamilies[{index}]`"
                errors.append(invalid(f"{path}[{index}]", addresses[index], detail))
    _check_configured(service, errors)


def _check_addresses(addresses: list[str], before: list[str], errors: Errors) -> bool:
    found = len(errors)
    for index, address in enumerate(addresses):
        if index == 0 and address == "None":
            if len(addresses) > 1:
                errors.append(invalid("spec.clusterIPs", addresses, "'None' must be the first and only value"))
        elif address not in before:
            check_syntax(address, is_ip_legacy, f"spec.clusterIPs[{index}]", errors)
    good = len(errors) == found
    if len(addresses) > 2:
        errors.append(invalid("spec.clusterIPs", addresses, "may only hold up to 2 values"))
    return good


def _check_configured(service: Obj, errors: Errors) -> None:
    """Settings that a cluster with one family of addresses does not support."""
    spec = service.get("spec") or {}
    policy, families = spec.get("ipFamilyPolicy"), spec.get("ipFamilies") or []
    if policy == "SingleStack":
        detail = "must be 'RequireDualStack' or 'PreferDualStack' when multiple "
        if len(spec.get("clusterIPs") or ()) == 2:
            errors.append(invalid("spec.ipFamilyPolicy", policy, f"{detail}cluster IPs are specified"))
        if len(families) == 2:
            errors.append(invalid("spec.ipFamilyPolicy", policy, f"{detail}IP families are specified"))
    if spec.get("clusterIP") == "None" and not spec.get("selector"):
        return
    if policy == "RequireDualStack":
        detail = "this cluster is not configured for dual-stack services"
        errors.append(invalid("spec.ipFamilyPolicy", policy, detail))
    for index, family in enumerate(families):
        if family in _FAMILIES and family not in _CONFIGURED:
            errors.append(invalid(f"spec.ipFamilies[{index}]", family, "not configured on this cluster"))


def _check_external_ips(spec: Obj, old: Obj | None, errors: Errors) -> None:
    before = ((old or {}).get("spec") or {}).get("externalIPs") or []
    for index, address in enumerate(spec.get("externalIPs") or ()):
        path = f"spec.externalIPs[{index}]"
        faults = () if address in before else is_ip_legacy(address)
        errors += [invalid(path, address, text) for text in faults]
        if not faults:
            check_special_ip(address, path, errors)


def _check_port_numbers(kind: str, ports: list[Obj], errors: Errors) -> None:
    node_ports: set[tuple[str, int]] = set()
    numbers: set[tuple[str, int]] = set()
    for index, port in enumerate(ports):
        path, protocol = f"spec.ports[{index}]", port.get("protocol", "")
        node_port = port.get("nodePort", 0)
        if node_port and kind == "ClusterIP":
            errors.append(forbidden(f"{path}.nodePort", "may not be used when `type` is 'ClusterIP'"))
        if node_port and (protocol, node_port) in node_ports:
            errors.append(duplicate(f"{path}.nodePort", node_port))
        node_ports.add((protocol, node_port))
        key = (protocol, port.get("port", 0))
        if key in numbers:
            errors.append(duplicate(path, {"port": key[1], "protocol": protocol}))
        numbers.add(key)


def _check_source_ranges(service: Obj, old: Obj | None, errors: Errors) -> None:
    spec, before = service.get("spec") or {}, ((old or {}).get("spec") or {})
    annotations = (service.get("metadata") or {}).get("annotations") or {}
    ranges = spec.get("loadBalancerSourceRanges")
    if ranges:
        if spec.get("type") != "LoadBalancer":
            errors.append(forbidden("spec.LoadBalancerSourceRanges", _ONLY_LOAD_BALANCER))
        known = {value.strip() for value in before.get("loadBalancerSourceRanges") or ()}
        for index, value in enumerate(ranges):
            if value.strip() not in known:
                path = f"spec.LoadBalancerSourceRanges[{index}]"
                check_syntax(value.strip(), is_cidr_legacy, path, errors)
    elif _SOURCE_RANGES in annotations:
        path, value = f"metadata.annotations[{_SOURCE_RANGES}]", annotations[_SOURCE_RANGES].strip()
        if spec.get("type") != "LoadBalancer":
            errors.append(forbidden(path, _ONLY_LOAD_BALANCER))
        for part in value.split(",") if value else ():
            check_syntax(part.strip(), is_cidr_legacy, path, errors)


def _check_load_balancer(spec: Obj, errors: Errors) -> None:
    balanced = spec.get("type") == "LoadBalancer"
    if spec.get("allocateLoadBalancerNodePorts") is not None and not balanced:
        errors.append(forbidden("spec.allocateLoadBalancerNodePorts", _ONLY_LOAD_BALANCER))
    if balanced and spec.get("allocateLoadBalancerNodePorts") is None:
        errors.append(required("allocateLoadBalancerNodePorts"))
    name = spec.get("loadBalancerClass")
    if name is not None and not balanced:
        errors.append(forbidden("spec.loadBalancerClass", _ONLY_LOAD_BALANCER))
    elif name is not None:
        check_syntax(name, is_qualified_name, "spec.loadBalancerClass", errors)


def _has_health_check(spec: Obj) -> bool:
    return spec.get("type") == "LoadBalancer" and spec.get("externalTrafficPolicy") == "Local"


def _check_traffic(spec: Obj, errors: Errors) -> None:
    kind, external = spec.get("type"), spec.get("externalTrafficPolicy")
    reachable = kind in ("LoadBalancer", "NodePort") or (kind == "ClusterIP" and spec.get("externalIPs"))
    if reachable:
        check_required_enum(external, _TRAFFIC, "spec.externalTrafficPolicy", errors)
    elif external:
        detail = "may only be set for externally-accessible services"
        errors.append(invalid("spec.externalTrafficPolicy", external, detail))
    port = spec.get("healthCheckNodePort", 0)
    if not _has_health_check(spec):
        if port:
            detail = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"
            errors.append(invalid("spec.healthCheckNodePort", port, detail))
    elif not port:
        errors.append(required("spec.healthCheckNodePort"))
    else:
        check_port_number(port, "spec.healthCheckNodePort", errors)
    internal = spec.get("internalTrafficPolicy")
    if internal is not None:
        check_enum(internal, _TRAFFIC, "spec.internalTrafficPolicy", errors)
    elif kind in ("NodePort", "LoadBalancer", "ClusterIP"):
        errors.append(required("spec.internalTrafficPolicy"))
    if spec.get("trafficDistribution") is not None:
        check_enum(spec["trafficDistribution"], _DISTRIBUTIONS, "spec.trafficDistribution", errors)


def _check_cluster_ip_change(new: Obj, old: Obj, errors: Errors) -> None:
    """The first address never changes; a second may be added and, with a changed policy, removed."""
    if is_headless(new) and is_headless(old):
        return
    spec = new.get("spec") or {}
    addresses, before = spec.get("clusterIPs") or [], (old.get("spec") or {}).get("clusterIPs") or []
    path = "spec.clusterIPs"
    if len(addresses) == len(before):
        for index, (address, was) in enumerate(zip(addresses, before, strict=True)):
            if address != was:
                errors.append(invalid(f"{path}[{index}]", addresses, "may not change once set"))
        return
    if not addresses:
        errors.append(invalid(f"{path}[0]", addresses, "primary clusterIP can not be unset"))
    elif before and addresses[0] != before[0]:
        errors.append(invalid(f"{path}[0]", addresses, "may not change once set"))
    if len(addresses) == 1 and len(before) > 1 and spec.get("ipFamilyPolicy") != "SingleStack":
        detail = "must be set to 'SingleStack' when releasing the secondary clusterIP"
        errors.append(invalid("spec.ipFamilyPolicy", spec.get("ipFamilyPolicy"), detail))


def _check_family_change(new: Obj, old: Obj, errors: Errors) -> None:
    if is_headless(new) or is_headless(old):
        return
    spec = new.get("spec") or {}
    families, before = spec.get("ipFamilies") or [], (old.get("spec") or {}).get("ipFamilies") or []
    path = "spec.ipFamilies[0]"
    if len(families) == len(before):
        for family, was in zip(families, before, strict=True):
            if family != was:
                errors.append(invalid(path, families, "may not change once set"))
        return
    if len(families) < len(before) and not spec.get("clusterIPs"):
        errors.append(invalid(path, families, "primary ipFamily can not be unset"))
    if families and before and families[0] != before[0]:
        errors.append(invalid(path, spec.get("clusterIPs") or [], "may not change once set"))
    if len(families) == 1 and len(before) > 1 and spec.get("ipFamilyPolicy") != "SingleStack":
        detail = "must be set to 'SingleStack' when releasing the secondary ipFamily"
        errors.append(invalid("spec.ipFamilyPolicy", spec.get("ipFamilyPolicy"), detail))
