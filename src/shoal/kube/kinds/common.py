"""Helpers of kinds outside core/v1; ``checks`` has those for all kinds."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from shoal.errors import BadRequest, Cause, FieldError, invalid, required
from shoal.kube.kinds.checks import IMMUTABLE, NEGATIVE, Errors, check_syntax, percent_of
from shoal.kube.labels import from_object
from shoal.kube.names import is_dns1123_label, is_dns1123_subdomain, is_http_path
from shoal.kube.objects import Obj

MAX_INT32: Final = 2**31 - 1


class WithoutValue(FieldError):
    """An invalid value that is not shown, because it is large or would repeat the whole object."""

    __slots__ = ()

    @property
    def body(self) -> str:
        return f"Invalid value: {self.detail}"


def invalid_hidden(path: str, detail: str) -> FieldError:
    """``Invalid value: <detail>`` without the value."""
    return WithoutValue(Cause.INVALID, path, detail)


def spec_of(obj: Obj) -> Obj:
    """The spec; created if absent."""
    return child(obj, "spec")


def child(parent: Obj, name: str) -> Obj:
    """A field that is an object; created if absent."""
    value = parent.get(name)
    if value is None:
        value = parent[name] = {}
    return value


def read(obj: Obj, name: str) -> Obj:
    """A field that is an object; an empty one if absent. Do not change it."""
    return obj.get(name) or {}


def fill(obj: Obj, name: str, value: Any) -> None:
    """Set the default of a field that is absent or empty."""
    if not obj.get(name):
        obj[name] = value


def deep_same(new: Any, old: Any) -> bool:
    """Deep equality in which absent, empty and false fields are equal.

    Typed clients omit false and empty fields and others write them, for the same object.
    """
    if new == old:
        return True
    if isinstance(new, dict) and isinstance(old, dict):
        return all(deep_same(new.get(key), old.get(key)) for key in new.keys() | old.keys())
    if isinstance(new, list) and isinstance(old, list):
        return len(new) == len(old) and all(map(deep_same, new, old))
    return _is_empty(new) and _is_empty(old)


def _is_empty(value: Any) -> bool:
    return not value and (value is None or value is False or isinstance(value, str | list | dict))


def check_frozen(new: Any, old: Any, path: str, errors: Errors) -> None:
    """Refuse a change of an immutable field that is an object or list."""
    if not deep_same(new, old):
        errors.append(invalid(path, new, IMMUTABLE))


def check_frozen_fields(new: Obj, old: Obj, fields: Iterable[str], path: str, errors: Errors) -> None:
    for name in fields:
        check_frozen(new.get(name), old.get(name), f"{path}.{name}" if path else name, errors)


def check_nonnegative_fields(obj: Mapping[str, Any], fields: Collection[str], path: str, errors: Errors) -> None:
    """None of these fields may be negative."""
    for name in fields:
        value = obj.get(name)
        if value is not None and value < 0:
            errors.append(invalid(f"{path}.{name}", value, NEGATIVE))


def selector_matches(selector: Obj | None, labels: Mapping[str, str]) -> bool | None:
    """Whether a LabelSelector matches these labels (an absent one matches nothing); None if it is invalid."""
    try:
        return from_object(selector).matches(labels)
    except BadRequest:
        return None


def check_domain_prefixed_path(value: str, path: str, errors: Errors) -> None:
    """``acme.io/foo``: a DNS name, a slash and a path."""
    if not value:
        errors.append(required(path))
        return
    host, _, rest = value.partition("/")
    if not host or not rest:
        errors.append(invalid(path, value, 'must be a domain-prefixed path (such as "acme.io/foo")'))
        return
    check_syntax(host, is_dns1123_subdomain, path, errors)
    check_syntax(rest, is_http_path, path, errors)


def amount(value: int | str | None) -> int:
    """The number in an int-or-percent; 0 if it is invalid, which another check reports."""
    if isinstance(value, str):
        return percent_of(value) or 0
    return value or 0


def condition_is(conditions: list[Obj] | None, kind: str, status: str = "True") -> bool:
    return any(c.get("type") == kind and c.get("status") == status for c in conditions or ())


def name_warning(obj: Obj) -> list[str]:
    """For kinds whose name becomes part of pod names."""
    texts = is_dns1123_label(obj["metadata"].get("name") or "a")
    if not texts:
        return []
    return [
        "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; "
        f"a DNS label is recommended: [{' '.join(texts)}]"
    ]
