"""NetworkPolicy: defaults and the shape of peers and ports."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from shoal.errors import FieldError, forbidden, invalid, not_supported, required
from shoal.kube.kinds.checks import (
    PROTOCOLS,
    Errors,
    check_enum,
    check_label_selector,
    check_port_number,
    check_port_or_name,
    check_syntax,
)
from shoal.kube.kinds.common import read, spec_of
from shoal.kube.names import is_cidr_legacy, parse_cidr
from shoal.kube.objects import Obj
from shoal.kube.rules import KindRules

_TYPES: Final = ("Egress", "Ingress")
_DIRECTIONS: Final = (("ingress", "from"), ("egress", "to"))


def _default(obj: Obj) -> None:
    spec = spec_of(obj)
    for direction, _ in _DIRECTIONS:
        for rule in spec.get(direction) or ():
            for port in rule.get("ports") or ():
                port.setdefault("protocol", "TCP")
    if not spec.get("policyTypes"):
        spec["policyTypes"] = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]


def _check_port(port: Obj, path: str, errors: Errors) -> None:
    protocol = port.get("protocol")
    if protocol is not None:
        check_enum(protocol, PROTOCOLS, f"{path}.protocol", errors)
    number, end = port.get("port"), port.get("endPort")
    if number is not None:
        check_port_or_name(number, f"{path}.port", errors)
    if end is None:
        return
    if number is None:
        errors.append(invalid(f"{path}.endPort", end, "may not be specified when `port` is not specified"))
    elif isinstance(number, str):
        errors.append(invalid(f"{path}.endPort", end, "may not be specified when `port` is non-numeric"))
    else:
        if end < number:
            errors.append(invalid(f"{path}.endPort", end, "must be greater than or equal to `port`"))
        check_port_number(end, f"{path}.endPort", errors)


def _check_block(block: Obj, known: Collection[str], path: str, errors: Errors) -> None:
    """``known`` are the networks of the old policy: they are accepted in any spelling."""
    cidr = block.get("cidr")
    if not cidr:
        errors.append(required(f"{path}.cidr"))
        return
    if cidr not in known:
        check_syntax(cidr, is_cidr_legacy, f"{path}.cidr", errors)
    network = parse_cidr(cidr)
    if network is None:
        return
    for position, text in enumerate(block.get("except") or ()):
        where = f"{path}.except[{position}]"
        if text not in known:
            check_syntax(text, is_cidr_legacy, where, errors)
        inner = parse_cidr(text)
        if inner is None:
            continue
        inside = inner.version == network.version and inner.network_address in network
        if not inside or network.prefixlen >= inner.prefixlen:
            errors.append(invalid(where, text, "must be a strict subset of `cidr`"))


def _check_peer(peer: Obj, known: Collection[str], path: str, errors: Errors) -> None:
    selectors = [name for name in ("podSelector", "namespaceSelector") if peer.get(name) is not None]
    for name in selectors:
        check_label_selector(peer[name], f"{path}.{name}", errors)
    block = peer.get("ipBlock")
    if block is not None:
        _check_block(block, known, f"{path}.ipBlock", errors)
        if selectors:
            errors.append(forbidden(path, "may not specify both ipBlock and another peer"))
    elif not selectors:
        errors.append(required(path, "must specify a peer"))


def _check_spec(spec: Obj, known: Collection[str], errors: Errors) -> None:
    check_label_selector(spec.get("podSelector"), "spec.podSelector", errors)
    for direction, peers in _DIRECTIONS:
        for position, rule in enumerate(spec.get(direction) or ()):
            path = f"spec.{direction}[{position}]"
            for index, port in enumerate(rule.get("ports") or ()):
                _check_port(port, f"{path}.ports[{index}]", errors)
            for index, peer in enumerate(rule.get(peers) or ()):
                _check_peer(peer, known, f"{path}.{peers}[{index}]", errors)
    types = spec.get("policyTypes") or []
    if len(types) > len(_TYPES):
        errors.append(invalid("spec.policyTypes", types, "may not specify more than two policyTypes"))
        return
    for position, kind in enumerate(types):
        if kind not in _TYPES:
            errors.append(not_supported(f"spec.policyTypes[{position}]", kind, _TYPES))


def _networks(spec: Obj) -> Iterator[str]:
    for direction, peers in _DIRECTIONS:
        for rule in spec.get(direction) or ():
            for peer in rule.get(peers) or ():
                block = peer.get("ipBlock") or {}
                yield block.get("cidr") or ""
                yield from block.get("except") or ()


def _validate(obj: Obj) -> list[FieldError]:
    errors: Errors = []
    _check_spec(read(obj, "spec"), (), errors)
    return errors


def _validate_update(new: Obj, old: Obj) -> list[FieldError]:
    errors: Errors = []
    _check_spec(read(new, "spec"), frozenset(_networks(read(old, "spec"))), errors)
    return errors


RULES: Final = KindRules(default=_default, validate_create=_validate, validate_update=_validate_update)
