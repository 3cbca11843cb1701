"""ServiceCIDR and IPAddress: ranges of service addresses, and allocated addresses."""

from __future__ import annotations

from typing import Final

from shoal.errors import FieldError, invalid, required
from shoal.kube.kinds.checks import IMMUTABLE, Errors, check_required_name, check_syntax
from shoal.kube.kinds.common import check_frozen, read
from shoal.kube.names import is_cidr, is_dns1123_subdomain, is_ip, is_path_segment_name, parse_cidr
from shoal.kube.objects import Obj
from shoal.kube.rules import KindRules

_CIDRS: Final = "spec.cidrs"


def _check_cidrs(spec: Obj, errors: Errors) -> None:
    cidrs = spec.get("cidrs") or []
    if not cidrs:
        errors.append(required(_CIDRS, "at least one CIDR required"))
        return
    if len(cidrs) > 2:
        errors.append(invalid(_CIDRS, spec, "may only hold up to 2 values"))
        return
    for position, cidr in enumerate(cidrs):
        check_syntax(cidr, is_cidr, f"{_CIDRS}[{position}]", errors)
    networks = [network for cidr in cidrs if (network := parse_cidr(cidr)) is not None]
    if len(networks) == 2 and networks[0].version == networks[1].version:
        text = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64"
        errors.append(invalid(_CIDRS, cidrs, text))


def _validate_service_cidr(obj: Obj) -> list[FieldError]:
    errors: Errors = []
    _check_cidrs(read(obj, "spec"), errors)
    return errors


def _validate_service_cidr_update(new: Obj, old: Obj) -> list[FieldError]:
    """Nothing may change, except that a second family is added."""
    errors: Errors = []
    after, before = read(new, "spec").get("cidrs") or [], read(old, "spec").get("cidrs") or []
    added = len(before) == 1 and len(after) == 2
    if len(after) != len(before) and not added:
        errors.append(invalid(_CIDRS, after, IMMUTABLE))
        return errors
    for position, (mine, theirs) in enumerate(zip(after, before, strict=False)):
        if mine != theirs:
            errors.append(invalid(f"{_CIDRS}[{position}]", mine, IMMUTABLE))
    if added:
        _check_cidrs(read(new, "spec"), errors)
    return errors


def _address_name(name: str) -> list[str]:
    """The name of an IPAddress is the address in canonical form."""
    return list(is_ip(name))


def _validate_address(obj: Obj) -> list[FieldError]:
    errors: Errors = []
    parent = read(obj, "spec").get("parentRef")
    path = "spec.parentRef"
    if parent is None:
        errors.append(required(path))
        return errors
    if parent.get("group"):
        check_syntax(parent["group"], is_dns1123_subdomain, f"{path}.group", errors)
    check_required_name(parent.get("resource"), is_path_segment_name, f"{path}.resource", errors)
    check_required_name(parent.get("name"), is_path_segment_name, f"{path}.name", errors)
    if parent.get("namespace"):
        check_syntax(parent["namespace"], is_path_segment_name, f"{path}.namespace", errors)
    return errors


def _validate_address_update(new: Obj, old: Obj) -> list[FieldError]:
    errors = _validate_address(new)
    after, before = read(new, "spec").get("parentRef"), read(old, "spec").get("parentRef")
    check_frozen(after, before, "spec.parentRef", errors)
    return errors


SERVICE_CIDR: Final = KindRules(validate_create=_validate_service_cidr, validate_update=_validate_service_cidr_update)
IP_ADDRESS: Final = KindRules(
    validate_create=_validate_address,
    validate_update=_validate_address_update,
    name_errors=_address_name,
)
