"""Checks that many kinds share: object metadata, names, enums, ports, quantities, selectors, immutability.

A check appends its findings to ``errors`` and returns nothing; the path is that of the checked field. Texts and paths
are those of Kubernetes, because clients and tests read them. For valid values a check only compares: paths of nested
fields are built only for an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

from shoal.errors import (
    Cause,
    FieldError,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
    too_long,
)
from shoal.kube import quantity as quantities
from shoal.kube.labels import validate_label_selector
from shoal.kube.names import (
    is_annotation_key,
    is_cidr_legacy,
    is_dns1123_label,
    is_dns1123_subdomain,
    is_ip_legacy,
    is_label_value,
    is_path_segment_name,
    is_percent,
    is_port_name,
    is_qualified_name,
)
from shoal.kube.objects import Obj
from shoal.kube.quantity import Quantity

Errors = list[FieldError]
Syntax = Callable[[str], Iterable[str]]  # text -> what is wrong with it

IMMUTABLE: Final = "field is immutable"
NEGATIVE: Final = "must be greater than or equal to 0"
NOT_POSITIVE: Final = "must be greater than zero"
NOT_INTEGER: Final = "must be an integer"
ANNOTATIONS_LIMIT_BYTES: Final = 256 * 1024
NAME_LIMIT_BYTES: Final = 2048  # a database indexes name, namespace and resource together: at most 2500 bytes
PROTOCOLS: Final = frozenset({"TCP", "UDP", "SCTP"})
CONDITION_STATUSES: Final = frozenset({"True", "False", "Unknown"})

_STANDARD_FINALIZERS = frozenset({"kubernetes", "orphan", "foregroundDeletion"})
_NO_LABELS: Mapping[str, str] = {}


# --- names of objects, for KindRules.name_errors


def label_name(name: str) -> list[str]:
    """For kinds whose name is part of a host name: a DNS-1123 label."""
    return list(is_dns1123_label(name))


def path_segment_name(name: str) -> list[str]:
    """For kinds whose name only has to be a path segment of a URL: no ``/`` and no ``%``.

    Kubernetes has no limit on the length of these names. Here they are stored in an index, which has one.
    """
    faults = list(is_path_segment_name(name))
    if len(name if name.isascii() else name.encode()) > NAME_LIMIT_BYTES:
        faults.append(f"must be no more than {NAME_LIMIT_BYTES} bytes")
    return faults


# --- metadata


def validate_metadata(
    obj: Obj,
    *,
    namespaced: bool,
    name_errors: Callable[[str], list[str]] | None = None,
    path: str = "metadata",
    qualified_finalizers: bool = True,
) -> Errors:
    """The errors in the metadata of an object to be created; its name is already generated.

    ``qualified_finalizers`` is off for custom resources, which may have finalizers without a prefix.
    """
    errors: Errors = []
    metadata = obj.get("metadata") or {}
    name, generate_name = metadata.get("name"), metadata.get("generateName")
    syntax: Syntax = name_errors or is_dns1123_subdomain
    if generate_name:
        check_syntax(_before_suffix(generate_name), syntax, f"{path}.generateName", errors, shown=generate_name)
    if not name:
        errors.append(required(f"{path}.name", "name or generateName is required"))
    else:
        for text in syntax(name):
            errors.append(invalid(f"{path}.name", name, text))
        if "\0" in name:  # some kinds allow nearly every name, but no database can store this
            errors.append(invalid(f"{path}.name", name, "may not contain a zero byte"))
    _check_namespace(metadata.get("namespace"), namespaced, path, errors)
    if metadata.get("generation", 0) < 0:
        errors.append(invalid(f"{path}.generation", metadata["generation"], NEGATIVE))
    _check_shared_metadata(metadata, path, errors)
    finalizers = metadata.get("finalizers")
    if finalizers:
        check_finalizers(finalizers, f"{path}.finalizers", errors)
        if qualified_finalizers:
            _check_qualified_finalizers(finalizers, f"{path}.finalizers", errors)
    return errors


def validate_metadata_update(
    new: Obj, old: Obj, path: str = "metadata", *, qualified_finalizers: bool = True
) -> Errors:
    """The errors in the metadata of an object that replaces ``old``; both are complete."""
    errors: Errors = []
    metadata, before = new.get("metadata") or {}, old.get("metadata") or {}
    finalizers = metadata.get("finalizers")
    if before.get("deletionTimestamp") and finalizers:
        added = sorted(set(finalizers).difference(before.get("finalizers") or ()))
        if added:
            listed = ", ".join(f'"{name}"' for name in added)
            detail = "no new finalizers can be added if the object is being deleted, found new finalizers "
            errors.append(forbidden(f"{path}.finalizers", f"{detail}[]string{{{listed}}}"))
    generation = metadata.get("generation", 0)
    if generation < 0:
        errors.append(invalid(f"{path}.generation", generation, NEGATIVE))
    if generation < before.get("generation", 0):
        errors.append(invalid(f"{path}.generation", generation, "must not be decremented"))
    for field in _FROZEN_METADATA:
        if metadata.get(field) != before.get(field):
            errors.append(invalid(f"{path}.{field}", metadata.get(field), IMMUTABLE))
    _check_shared_metadata(metadata, path, errors)
    if finalizers and qualified_finalizers:
        _check_qualified_finalizers(finalizers, f"{path}.finalizers", errors)
    return errors


_FROZEN_METADATA = (
    "name",
    "namespace",
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
)


def validate_template_metadata(metadata: Obj | None, path: str, errors: Errors) -> None:
    """Labels and annotations of the pod template at ``path``; Kubernetes reports them without ``metadata`` in the
    path."""
    if metadata:
        check_labels(metadata.get("labels"), f"{path}.labels", errors)
        check_annotations(metadata.get("annotations"), f"{path}.annotations", errors)


def _before_suffix(generate_name: str) -> str:
    """The part of a generateName to check: it may end in a dash, because a suffix follows."""
    if len(generate_name) > 1 and generate_name.endswith("-"):
        return generate_name[:-2] + "a"
    return generate_name


@lru_cache(maxsize=4096)
def _namespace_faults(namespace: str) -> tuple[str, ...]:
    return is_dns1123_label(namespace)


def _check_namespace(namespace: str | None, namespaced: bool, path: str, errors: Errors) -> None:
    if not namespaced:
        if namespace:
            errors.append(forbidden(f"{path}.namespace", "not allowed on this type"))
    elif not namespace:
        errors.append(required(f"{path}.namespace"))
    else:
        for text in _namespace_faults(namespace):
            errors.append(invalid(f"{path}.namespace", namespace, text))


def _check_shared_metadata(metadata: Obj, path: str, errors: Errors) -> None:
    labels = metadata.get("labels")
    if labels:
        check_labels(labels, f"{path}.labels", errors)
    annotations = metadata.get("annotations")
    if annotations:
        check_annotations(annotations, f"{path}.annotations", errors)
    owners = metadata.get("ownerReferences")
    if owners:
        check_owner_references(owners, f"{path}.ownerReferences", errors)


def check_labels(labels: Mapping[str, str] | None, path: str, errors: Errors) -> None:
    for key, value in (labels or _NO_LABELS).items():
        for text in is_qualified_name(key):
            errors.append(invalid(path, key, text))
        for text in is_label_value(value):
            errors.append(invalid(path, value, text))


def check_annotations(annotations: Mapping[str, str] | None, path: str, errors: Errors) -> None:
    total = 0
    for key, value in (annotations or _NO_LABELS).items():
        for text in is_annotation_key(key):
            errors.append(invalid(path, key, text))
        total += size_bytes(key) + size_bytes(value)
    if total > ANNOTATIONS_LIMIT_BYTES:
        errors.append(too_long(path, ANNOTATIONS_LIMIT_BYTES))


def check_owner_references(references: list[Obj], path: str, errors: Errors) -> None:
    controller = ""
    for index, reference in enumerate(references):
        api_version, kind = reference.get("apiVersion", ""), reference.get("kind", "")
        where = f"{path}[{index}]"
        if not api_version:
            errors.append(required(f"{where}.apiVersion", "must not be empty"))
        elif api_version.count("/") > 1 or not api_version.rpartition("/")[2]:
            errors.append(invalid(f"{where}.apiVersion", api_version, "must be <group>/<version> or <version>"))
        for field in ("kind", "name", "uid"):
            if not reference.get(field):
                errors.append(required(f"{where}.{field}", "must not be empty"))
        if api_version == "v1" and kind == "Event":
            errors.append(invalid(where, reference, "/v1, Kind=Event is disallowed from being an owner"))
        if reference.get("controller"):
            named = f"{kind}/{reference.get('name', '')}"
            if controller:
                detail = (
                    "Only one reference can have Controller set to true. "
                    f'Found "true" in references for {controller} and {named}'
                )
                errors.append(invalid(path, references, detail))
            else:
                controller = named


def check_finalizers(finalizers: list[str], path: str, errors: Errors) -> None:
    for finalizer in finalizers:
        for text in is_qualified_name(finalizer):
            errors.append(invalid(path, finalizer, text))
    if "orphan" in finalizers and "foregroundDeletion" in finalizers:
        errors.append(invalid(path, finalizers, "finalizer orphan and foregroundDeletion cannot be both set"))


def check_qualified_finalizer(finalizer: str, path: str, errors: Errors) -> None:
    """Built-in kinds accept standard finalizers and finalizers with a prefix."""
    if "/" not in finalizer and finalizer not in _STANDARD_FINALIZERS:
        detail = "name is neither a standard finalizer name nor is it fully qualified"
        errors.append(invalid(path, finalizer, detail))


def _check_qualified_finalizers(finalizers: list[str], path: str, errors: Errors) -> None:
    for index, finalizer in enumerate(finalizers):
        check_qualified_finalizer(finalizer, f"{path}[{index}]", errors)


# --- texts and numbers


def size_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def check_syntax(value: str, syntax: Syntax, path: str, errors: Errors, *, shown: Any = None) -> None:
    """One error per text; ``shown`` is the value to print when it is not the one checked."""
    for text in syntax(value):
        errors.append(invalid(path, value if shown is None else shown, text))


def check_required_name(value: str | None, syntax: Syntax, path: str, errors: Errors, detail: str = "") -> None:
    """A required name."""
    if not value:
        errors.append(required(path, detail))
    else:
        check_syntax(value, syntax, path, errors)


def check_enum(value: Any, choices: Collection[str], path: str, errors: Errors) -> None:
    if value not in choices:
        errors.append(not_supported(path, value, choices))


def check_required_enum(value: Any, choices: Collection[str], path: str, errors: Errors, detail: str = "") -> None:
    """``Required value`` if it is empty, ``Unsupported value`` if it is unknown."""
    if not value:
        errors.append(required(path, detail))
    elif value not in choices:
        errors.append(not_supported(path, value, choices))


def check_nonnegative(value: int | None, path: str, errors: Errors) -> None:
    if value is not None and value < 0:
        errors.append(invalid(path, value, NEGATIVE))


def check_positive(value: int | None, path: str, errors: Errors) -> None:
    if value is not None and value <= 0:
        errors.append(invalid(path, value, NOT_POSITIVE))


def check_range(value: int, low: int, high: int, path: str, errors: Errors) -> None:
    if not low <= value <= high:
        errors.append(invalid(path, value, f"must be between {low} and {high}, inclusive"))


def check_port_number(value: int, path: str, errors: Errors) -> None:
    if not 1 <= value <= 65535:
        errors.append(invalid(path, value, "must be between 1 and 65535, inclusive"))


def check_port_or_name(value: int | str, path: str, errors: Errors) -> None:
    """A port of a pod, by number or by name."""
    if isinstance(value, str):
        check_syntax(value, is_port_name, path, errors)
    else:
        check_port_number(value, path, errors)


def check_int_or_percent(value: int | str, path: str, errors: Errors) -> None:
    """A number or percentage (``25%``) that is not negative."""
    if isinstance(value, str):
        check_syntax(value, is_percent, path, errors)
    else:
        check_nonnegative(value, path, errors)


def percent_of(value: int | str | None) -> int | None:
    """The number before ``%``; None if the value is not a percentage."""
    return int(value[:-1]) if isinstance(value, str) and not is_percent(value) else None


def check_not_above_100_percent(value: int | str, path: str, errors: Errors) -> None:
    percent = percent_of(value)
    if percent is not None and percent > 100:
        errors.append(invalid(path, value, "must not be greater than 100%"))


def check_ip(value: str, path: str, errors: Errors) -> None:
    """An address in any unambiguous spelling, for fields that are older than strict checking."""
    check_syntax(value, is_ip_legacy, path, errors)


def check_cidr(value: str, path: str, errors: Errors) -> None:
    check_syntax(value, is_cidr_legacy, path, errors)


def check_label_selector(selector: Obj | None, path: str, errors: Errors) -> None:
    if selector:
        errors += validate_label_selector(selector, path)


# --- quantities

# Quantities in objects are canonical, so there are few different texts.
parse_quantity = lru_cache(maxsize=16384)(quantities.parse)


def quantity_of(value: Any) -> Quantity:
    """The quantity of a field; zero if the text is invalid, which the schema has already refused."""
    try:
        return parse_quantity(value if isinstance(value, str) else str(value))
    except ValueError:
        return quantities.ZERO


def check_nonnegative_quantity(value: Any, path: str, errors: Errors) -> None:
    amount = quantity_of(value)
    if amount.mantissa < 0:
        errors.append(invalid(path, str(amount), NEGATIVE))


def check_positive_quantity(value: Any, path: str, errors: Errors) -> None:
    amount = quantity_of(value)
    if amount.mantissa <= 0:
        errors.append(invalid(path, str(amount), NOT_POSITIVE))


# --- changes


def same(new: Any, old: Any) -> bool:
    """Whether two values are the same; absent, empty text, empty list and empty map are equal."""
    return bool(new == old or (not new and not old and new is not False and old is not False))


# --- conditions and lists

_CONDITION_REASON = "[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?"
_is_condition_reason = re.compile(_CONDITION_REASON).fullmatch
_CONDITION_REASON_FAULT = (
    "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric "
    "characters or '_,:', and must end with an alphanumeric character or '_' (e.g. 'my_name',  or 'MY_NAME',  or "
    f"'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for validation is '{_CONDITION_REASON}')"
)


def check_conditions(conditions: list[Obj] | None, path: str, errors: Errors) -> None:
    """Conditions of the common shape (type, status, reason, message, lastTransitionTime)."""
    seen: set[str] = set()
    for index, condition in enumerate(conditions or ()):
        where = f"{path}[{index}]"
        named = condition.get("type", "")
        if named in seen:
            errors.append(duplicate(where, named))
        seen.add(named)
        check_required_name(named, is_qualified_name, f"{where}.type", errors, "is required")
        check_required_enum(condition.get("status"), CONDITION_STATUSES, f"{where}.status", errors)
        if condition.get("observedGeneration", 0) < 0:
            detail = "must be greater than or equal to zero"
            errors.append(invalid(f"{where}.observedGeneration", condition["observedGeneration"], detail))
        if not condition.get("lastTransitionTime"):
            errors.append(required(f"{where}.lastTransitionTime"))
        _check_condition_texts(condition, where, errors)


def _check_condition_texts(condition: Obj, path: str, errors: Errors) -> None:
    reason = condition.get("reason", "")
    if not reason:
        errors.append(required(f"{path}.reason"))
    else:
        if not _is_condition_reason(reason):
            errors.append(invalid(f"{path}.reason", reason, _CONDITION_REASON_FAULT))
        if size_bytes(reason) > 1024:
            errors.append(too_long(f"{path}.reason", 1024))
    if size_bytes(condition.get("message", "")) > 32 * 1024:
        errors.append(too_long(f"{path}.message", 32 * 1024))


def not_found_among(path: str, value: Any, detail: str) -> FieldError:
    """``Not found`` with an explanation."""
    return FieldError(Cause.NOT_FOUND, path, detail, value)
