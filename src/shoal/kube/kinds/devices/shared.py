"""Checks that claims, classes and slices of devices share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from shoal.errors import duplicate, invalid, required, too_long, too_many
from shoal.kube.kinds.checks import Errors, check_syntax, size_bytes
from shoal.kube.kinds.extension.matching import check_expression
from shoal.kube.kinds.storage import check_driver_name
from shoal.kube.names import is_c_identifier, is_dns1123_subdomain
from shoal.kube.objects import Obj

MAX_LIST: Final = 32  # the limit of requests, constraints, configurations, selectors and results
_MAX_EXPRESSION: Final = 10 * 1024
_MAX_DOMAIN: Final = 63
_MAX_IDENTIFIER: Final = 32
_MAX_POOL_NAME: Final = 253


def check_set(items: list[Any], limit: int, key: Callable[[Any], Any], path: str, errors: Errors) -> None:
    """A list without duplicates and of limited length."""
    if len(items) > limit:
        errors.append(too_many(path, len(items), limit))
    seen = set()
    for position, item in enumerate(items):
        name = key(item)
        if name in seen:
            errors.append(duplicate(f"{path}[{position}]", name))
        seen.add(name)


def name_of(item: Obj) -> str:
    return item.get("name") or ""


def itself(item: str) -> str:
    return item


def check_selectors(selectors: list[Obj], path: str, errors: Errors) -> None:
    if len(selectors) > MAX_LIST:
        errors.append(too_many(path, len(selectors), MAX_LIST))
    for position, selector in enumerate(selectors):
        where = f"{path}[{position}].cel"
        cel = selector.get("cel")
        if cel is None:
            errors.append(required(where))
            continue
        expression = cel.get("expression") or ""
        if size_bytes(expression) > _MAX_EXPRESSION:
            errors.append(too_long(f"{where}.expression", _MAX_EXPRESSION))
        else:
            check_expression(expression, f"{where}.expression", errors, ("device",), ("bool",))


def check_full_name(name: str, path: str, errors: Errors) -> None:
    """``example.com/identifier``."""
    if not name:
        errors.append(required(path))
        return
    domain, slash, identifier = name.partition("/")
    if not slash:
        errors.append(invalid(path, name, "must include a domain"))
        return
    check_domain_and_id(domain, identifier, path, errors)


def check_attribute_name(name: str, path: str, errors: Errors) -> None:
    """An identifier, optionally with a domain."""
    if not name:
        errors.append(required(path))
        return
    domain, slash, identifier = name.rpartition("/")
    if slash:
        check_domain_and_id(domain, identifier, path, errors)
    else:
        check_identifier(identifier, path, errors)


def check_domain_and_id(domain: str, identifier: str, path: str, errors: Errors) -> None:
    if not domain:
        errors.append(required(path, "the domain must not be empty"))
    else:
        if len(domain) > _MAX_DOMAIN:
            errors.append(too_long(path, _MAX_DOMAIN))
        check_syntax(domain, is_dns1123_subdomain, path, errors)
    if not identifier:
        errors.append(required(path, "the name must not be empty"))
    else:
        check_identifier(identifier, path, errors)


def check_identifier(identifier: str, path: str, errors: Errors) -> None:
    if len(identifier) > _MAX_IDENTIFIER:
        errors.append(too_long(path, _MAX_IDENTIFIER))
    check_syntax(identifier, is_c_identifier, path, errors)


def check_configuration(config: Obj, path: str, errors: Errors) -> None:
    opaque = config.get("opaque")
    if opaque is None:
        errors.append(required(f"{path}.opaque"))
        return
    check_driver_name(opaque.get("driver") or "", f"{path}.opaque.driver", errors)
    parameters = opaque.get("parameters")
    where = f"{path}.opaque.parameters"
    if parameters is None:
        errors.append(required(where))
    elif not isinstance(parameters, dict):
        errors.append(invalid(where, parameters, "must be a valid JSON object"))


def check_pool_name(name: str, path: str, errors: Errors) -> None:
    if not name:
        errors.append(required(path))
        return
    if len(name) > _MAX_POOL_NAME:
        errors.append(too_long(path, _MAX_POOL_NAME))
    for part in name.split("/"):
        check_syntax(part, is_dns1123_subdomain, path, errors)
