"""Endpoints: addresses and ports behind a service.

``endpoints_rules`` returns the rules; ``loopback_allowed`` is for clusters whose pods run on the loopback interface.
"""

from __future__ import annotations

import ipaddress

from shoal.errors import FieldError, invalid, required
from shoal.kube.kinds.checks import PROTOCOLS, Errors, check_ip, check_port_number, check_required_enum, check_syntax
from shoal.kube.names import is_dns1123_label, is_dns1123_subdomain, is_qualified_name, parse_ip
from shoal.kube.objects import Obj
from shoal.kube.rules import KindRules

_LINK_LOCAL_MULTICAST = (ipaddress.ip_network("224.0.0.0/24"), ipaddress.ip_network("ff02::/16"))


def check_special_ip(address: str, path: str, errors: Errors, *, loopback_allowed: bool = False) -> None:
    """Refuse addresses that cannot be reached from elsewhere, such as link-local ones."""
    parsed = parse_ip(address)
    if parsed is None:
        errors.append(invalid(path, address, "must be a valid IP address"))
        return
    if parsed.is_unspecified:
        errors.append(invalid(path, address, f"may not be unspecified ({address})"))
    if parsed.is_loopback and not loopback_allowed:
        errors.append(invalid(path, address, "may not be in the loopback range (127.0.0.0/8, ::1/128)"))
    if parsed.is_link_local:
        detail = "may not be in the link-local range (169.254.0.0/16, fe80::/10)"
        errors.append(invalid(path, address, detail))
    if any(parsed.version == network.version and parsed in network for network in _LINK_LOCAL_MULTICAST):
        detail = "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"
        errors.append(invalid(path, address, detail))


def _default(endpoints: Obj) -> None:
    for subset in endpoints.get("subsets") or ():
        for port in subset.get("ports") or ():
            if not port.get("protocol"):
                port["protocol"] = "TCP"


def _errors(endpoints: Obj, loopback_allowed: bool) -> list[FieldError]:
    errors: Errors = []
    for index, subset in enumerate(endpoints.get("subsets") or ()):
        path = f"subsets[{index}]"
        if not subset.get("addresses") and not subset.get("notReadyAddresses"):
            errors.append(required(path, "must specify `addresses` or `notReadyAddresses`"))
        for field in ("addresses", "notReadyAddresses"):
            for position, address in enumerate(subset.get(field) or ()):
                _check_address(address, f"{path}.{field}[{position}]", loopback_allowed, errors)
        ports = subset.get("ports") or ()
        for position, port in enumerate(ports):
            _check_port(port, len(ports) > 1, f"{path}.ports[{position}]", errors)
    return errors


def _check_address(address: Obj, path: str, loopback_allowed: bool, errors: Errors) -> None:
    check_ip(address.get("ip", ""), f"{path}.ip", errors)
    if address.get("hostname"):
        check_syntax(address["hostname"], is_dns1123_label, f"{path}.hostname", errors)
    if address.get("nodeName") is not None:
        check_syntax(address["nodeName"], is_dns1123_subdomain, f"{path}.nodeName", errors)
    check_special_ip(address.get("ip", ""), f"{path}.ip", errors, loopback_allowed=loopback_allowed)


def _check_port(port: Obj, needs_name: bool, path: str, errors: Errors) -> None:
    name = port.get("name")
    if name:
        check_syntax(name, is_dns1123_label, f"{path}.name", errors)
    elif needs_name:
        errors.append(required(f"{path}.name"))
    check_port_number(port.get("port", 0), f"{path}.port", errors)
    check_required_enum(port.get("protocol"), PROTOCOLS, f"{path}.protocol", errors)
    if port.get("appProtocol") is not None:
        check_syntax(port["appProtocol"], is_qualified_name, f"{path}.appProtocol", errors)


def _warnings(endpoints: Obj) -> list[str]:
    return ["v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"]


def endpoints_rules(*, loopback_allowed: bool = False) -> KindRules:
    def validate_create(endpoints: Obj) -> list[FieldError]:
        return _errors(endpoints, loopback_allowed)

    def validate_update(new: Obj, old: Obj) -> list[FieldError]:
        # A stored value stays valid until it is changed.
        return [] if new.get("subsets") == old.get("subsets") else _errors(new, loopback_allowed)

    return KindRules(
        default=_default, validate_create=validate_create, validate_update=validate_update, warnings=_warnings
    )


ENDPOINTS = endpoints_rules()
