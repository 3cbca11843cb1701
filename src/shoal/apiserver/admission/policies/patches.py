"""Applies the results of mutation expressions to an object: as an apply configuration or as a JSON patch."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

from shoal.errors import BadRequest, InternalError, Invalid, TooLarge
from shoal.kube import decode
from shoal.kube.cel.values import Built, Duration, Optional, Timestamp
from shoal.kube.jsonutil import deep_copy
from shoal.kube.objects import Obj
from shoal.kube.ownership import apply as ownership
from shoal.kube.ownership.elements import field_type, is_leaf
from shoal.kube.ownership.merge import merge
from shoal.kube.patch import json_patch
from shoal.kube.schema.model import Form, Type

_TEXTS = frozenset({"op", "path", "from"})


class PatchFailed(Exception):
    """The value of a mutation expression cannot be applied; the text says why."""


def applied(obj: Obj, value: Any, type_: Type) -> Obj:
    """A copy of ``obj`` with a built ``Object`` merged into it like server-side apply, without field owners."""
    if not isinstance(value, Built):
        raise PatchFailed("unsupported return type from ApplyConfiguration expression")
    _check_names(value)
    config = plain(value)
    config["apiVersion"], config["kind"] = obj.get("apiVersion"), obj.get("kind")
    try:
        ownership.prepare(config, type_)
    except BadRequest as error:
        _, _, detail = error.message.rpartition("): ")
        text = f"error applying patch: failed to convert patch object to typed object: {detail}"
        raise PatchFailed(text) from None
    atomic = list(_atomics(config, type_, ""))
    if atomic:
        text = f"may not mutate atomic arrays, maps or structs: {', '.join(atomic)}"
        raise PatchFailed(f"error applying patch: invalid ApplyConfiguration: {text}")
    made: Obj = deep_copy(obj)
    merge(made, config, type_)
    return made


def patched(obj: Obj, value: Any) -> Obj:
    """A copy of ``obj`` with a list of ``JSONPatch`` values carried out; ``obj`` itself if a test in it fails."""
    operations = [_operation(each) for each in value] if isinstance(value, list) else []
    try:
        made: Any = json_patch.apply(obj, operations)
    except Invalid as error:
        detail = str(error.causes[0]["message"]) if error.causes else error.message
        if detail.endswith(": test failed"):
            return obj
        raise PatchFailed(f"JSON Patch: {detail}") from None
    except (BadRequest, TooLarge) as error:
        raise PatchFailed(f"JSON Patch: {error.message}") from None
    if not isinstance(made, dict):
        raise PatchFailed("JSON Patch: the patched document is not an object")
    made = deep_copy(made)
    for name in ("apiVersion", "kind"):
        if made.get(name) != obj.get(name):
            raise InternalError(f"Internal error occurred: the patch changes {name}")
    return made  # type: ignore[no-any-return]


def check_known(obj: Obj, type_: Type) -> None:
    """Canonicalise; raise an error for unknown fields that a patch adds."""
    try:
        unknown = decode.normalize(obj, type_)
    except BadRequest as error:
        raise InternalError(f"Internal error occurred: {error.message}") from None
    if unknown:
        raise InternalError(f"Internal error occurred: strict decoding error: {', '.join(unknown)}")


def _operation(value: Any) -> Obj:
    if not isinstance(value, Built):
        raise PatchFailed("type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch")
    operation: Obj = {}
    for name, member in value.items():
        if name in _TEXTS:
            if not isinstance(member, str):
                raise PatchFailed(f"unexpected type for JSONPatchType '{name}' field")
            if member or name != "from":
                operation[name] = member
        else:
            if isinstance(member, Built):
                _check_names(member)
            operation[name] = plain(member)
    operation.setdefault("op", "")
    operation.setdefault("path", "")
    return operation


def _check_names(value: Built) -> None:
    faults = list(_misnamed(value, value.cel_name))
    if faults:
        raise PatchFailed("type mismatch: " + "\n".join(faults))


def _misnamed(value: Any, expected: str) -> Iterator[str]:
    """Objects whose type is not named by their place in the root object."""
    if isinstance(value, Built):
        if value.cel_name != expected:
            yield (
                f'unexpected type name "{value.cel_name}", expected "{expected}", which matches field name path from '
                "root Object type"
            )
        for name, member in value.items():
            yield from _misnamed(member, f"{expected}.{name}")
    elif isinstance(value, list):
        for member in value:
            yield from _misnamed(member, expected)
    elif isinstance(value, dict):
        for member in value.values():
            yield from _misnamed(member, expected)


def plain(value: Any) -> Any:
    """A value of the expression language as JSON that shares nothing with it."""
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise PatchFailed("a map with keys that are not strings could not marshal to JSON")
        return {key: plain(member) for key, member in value.items()}
    if isinstance(value, list):
        return [plain(member) for member in value]
    if value is None or isinstance(value, bool | str | float):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Timestamp | Duration):
        return str(value)
    if isinstance(value, Optional) and value.some:
        return plain(value.value)
    raise PatchFailed("the expression evaluated to a type that could not marshal to JSON")


def _atomics(value: Any, type_: Type, path: str) -> Iterator[str]:
    """Paths of the configuration that reach into atomic fields."""
    if isinstance(value, dict) and type_.form in (Form.STRUCT, Form.MAP):
        if is_leaf(type_):
            yield path
        if type_.form is Form.STRUCT:
            for name, member in value.items():
                if name in type_.fields:
                    yield from _atomics(member, field_type(type_, name), f"{path}.{name}")
    elif isinstance(value, list) and type_.form in (Form.LIST, Form.ANY):
        if type_.form is Form.ANY or is_leaf(type_):
            yield path
        if type_.form is Form.LIST:
            for place, member in enumerate(value):
                yield from _atomics(member, type_.element, f"{path}[{place}]")
