"""EndpointSlice: addresses behind a service.

``endpoint_slice_rules`` returns the rules. ``loopback_allowed`` accepts addresses such as 127.0.0.1, for clusters whose
pods run on the loopback interface. Other clusters refuse them, because a pod could reach its node with one.
"""

from __future__ import annotations

import ipaddress
from typing import Final

from shoal.errors import FieldError, duplicate, invalid, required, too_many
from shoal.kube.kinds.checks import (
    PROTOCOLS,
    Errors,
    check_required_enum,
    check_syntax,
)
from shoal.kube.kinds.common import check_frozen, deep_same
from shoal.kube.names import (
    is_dns1123_label,
    is_dns1123_subdomain,
    is_ip,
    is_ip_legacy,
    is_label_value,
    is_qualified_name,
    parse_ip,
)
from shoal.kube.objects import Obj
from shoal.kube.rules import KindRules

_ADDRESS_TYPES: Final = ("FQDN", "IPv4", "IPv6")
_MAX_ADDRESSES: Final = 100
_MAX_PORTS: Final = 20_000
_MAX_ENDPOINTS: Final = 1000
_MAX_HINTS: Final = 8
_MULTICAST: Final = {4: ipaddress.ip_network("224.0.0.0/24"), 6: ipaddress.ip_network("ff02::/16")}


def check_endpoint_ip(text: str, path: str, errors: Errors, *, loopback_allowed: bool = False) -> None:
    """Refuse addresses that endpoints cannot have, such as link-local ones; the text is a valid address."""
    address = parse_ip(text)
    if address is None:
        return
    if address.is_unspecified:
        errors.append(invalid(path, text, f"may not be unspecified ({text})"))
    if address.is_loopback and not loopback_allowed:
        errors.append(invalid(path, text, "may not be in the loopback range (127.0.0.0/8, ::1/128)"))
    if address.is_link_local:
        errors.append(invalid(path, text, "may not be in the link-local range (169.254.0.0/16, fe80::/10)"))
    if address in _MULTICAST[address.version]:
        text_ = "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"
        errors.append(invalid(path, text, text_))


def _check_fqdn(name: str, path: str, errors: Errors) -> None:
    if not name:
        errors.append(required(path))
        return
    name = name.removesuffix(".")
    faults = is_dns1123_subdomain(name)
    if faults:
        errors.append(invalid(path, name, ",".join(faults)))
        return
    labels = name.split(".")
    if len(labels) < 2:
        errors.append(invalid(path, name, "should be a domain with at least two segments separated by dots"))
        return
    for label in labels:
        faults = is_dns1123_label(label)
        if faults:
            errors.append(invalid(path, label, ",".join(faults)))


def _check_address(text: str, kind: str, path: str, position: int, loopback_allowed: bool, errors: Errors) -> None:
    where = f"{path}[{position}]"
    if kind == "FQDN":
        _check_fqdn(text, where, errors)
    elif kind in ("IPv4", "IPv6"):
        faults = is_ip_legacy(text) if kind == "IPv4" else is_ip(text)
        for fault in faults:
            errors.append(invalid(where, text, fault))
        address = parse_ip(text)
        if faults or address is None:
            return
        if f"IPv{address.version}" != kind:
            errors.append(invalid(path, text, f"must be an {kind} address"))
        check_endpoint_ip(text, where, errors, loopback_allowed=loopback_allowed)


def _check_hints(hints: Obj, path: str, errors: Errors) -> None:
    for field, syntax in (("forZones", is_label_value), ("forNodes", is_dns1123_subdomain)):
        entries = hints.get(field) or ()
        if len(entries) > _MAX_HINTS:
            errors.append(too_many(f"{path}.{field}", len(entries), _MAX_HINTS))
            return
        seen: set[str] = set()
        for position, entry in enumerate(entries):
            where, name = f"{path}.{field}[{position}].name", entry.get("name") or ""
            if name in seen:
                errors.append(duplicate(where, name))
            seen.add(name)
            check_syntax(name, syntax, where, errors)


def _check_endpoint(endpoint: Obj, kind: str, path: str, loopback_allowed: bool, errors: Errors) -> None:
    addresses = endpoint.get("addresses") or ()
    if not addresses:
        errors.append(required(f"{path}.addresses", "must contain at least 1 address"))
    elif len(addresses) > _MAX_ADDRESSES:
        errors.append(too_many(f"{path}.addresses", len(addresses), _MAX_ADDRESSES))
    for position, address in enumerate(addresses):
        _check_address(address, kind, f"{path}.addresses", position, loopback_allowed, errors)
    node = endpoint.get("nodeName")
    if node is not None:
        check_syntax(node, is_dns1123_subdomain, f"{path}.nodeName", errors)
    host = endpoint.get("hostname")
    if host is not None:
        check_syntax(host, is_dns1123_label, f"{path}.hostname", errors)
    hints = endpoint.get("hints")
    if hints:
        _check_hints(hints, f"{path}.hints", errors)


def _endpoint_errors(obj: Obj, loopback_allowed: bool) -> list[FieldError]:
    endpoints = obj.get("endpoints") or ()
    if len(endpoints) > _MAX_ENDPOINTS:
        return [too_many("endpoints", len(endpoints), _MAX_ENDPOINTS)]
    errors: Errors = []
    kind = obj.get("addressType") or ""
    for position, endpoint in enumerate(endpoints):
        _check_endpoint(endpoint, kind, f"endpoints[{position}]", loopback_allowed, errors)
    return errors


def _check_ports(ports: list[Obj], errors: Errors) -> None:
    if len(ports) > _MAX_PORTS:
        errors.append(too_many("ports", len(ports), _MAX_PORTS))
        return
    seen: set[str] = set()
    for position, port in enumerate(ports):
        path, name = f"ports[{position}]", port.get("name") or ""
        if name:
            check_syntax(name, is_dns1123_label, f"{path}.name", errors)
        if name in seen:
            errors.append(duplicate(f"{path}.name", name))
        seen.add(name)
        check_required_enum(port.get("protocol"), PROTOCOLS, f"{path}.protocol", errors)
        protocol = port.get("appProtocol")
        if protocol is not None:
            check_syntax(protocol, is_qualified_name, f"{path}.appProtocol", errors)


def _head_errors(obj: Obj) -> list[FieldError]:
    errors: Errors = []
    check_required_enum(obj.get("addressType"), _ADDRESS_TYPES, "addressType", errors)
    _check_ports(obj.get("ports") or [], errors)
    return errors


def _default(obj: Obj) -> None:
    for port in obj.get("ports") or ():
        port.setdefault("name", "")
        port.setdefault("protocol", "TCP")
    for endpoint in obj.get("endpoints") or ():
        endpoint.setdefault("conditions", {})


def _prepare_create(obj: Obj) -> None:
    """Remove the topology fields of old versions."""
    for endpoint in obj.get("endpoints") or ():
        endpoint.pop("deprecatedTopology", None)


def _prepare_update(new: Obj, old: Obj) -> None:
    _prepare_create(new)


def _warnings(obj: Obj) -> list[str]:
    if obj.get("addressType") == "FQDN":
        return ["spec.addressType: FQDN endpoints are deprecated"]
    return []


def endpoint_slice_rules(*, loopback_allowed: bool = False) -> KindRules:
    def validate(obj: Obj) -> list[FieldError]:
        return _head_errors(obj) + _endpoint_errors(obj, loopback_allowed)

    def validate_update(new: Obj, old: Obj) -> list[FieldError]:
        errors = _head_errors(new)
        faults = _endpoint_errors(new, loopback_allowed)
        if faults and not deep_same(new.get("endpoints"), old.get("endpoints")):
            errors += faults
        check_frozen(new.get("addressType"), old.get("addressType"), "addressType", errors)
        return errors

    return KindRules(
        default=_default,
        prepare_create=_prepare_create,
        prepare_update=_prepare_update,
        validate_create=validate,
        validate_update=validate_update,
        warnings=_warnings,
    )


RULES: Final = endpoint_slice_rules()
