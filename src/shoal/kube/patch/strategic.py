"""Kubernetes' strategic merge patch: a merge patch that knows which lists merge by key.

Objects merge, null removes. A list merges if its field has a merge strategy: objects by their merge key, scalars as a
set; any other list is replaced. Directives change that: ``$patch`` (delete, replace, merge) in an object or list item,
``$deleteFromPrimitiveList/<field>``, ``$setElementOrder/<field>`` and ``$retainKeys``. They never become part of the
result.

``apply`` changes the document and the patch, which the caller has just decoded.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from shoal.errors import BadRequest
from shoal.kube.patch.merge_patch import drop_nulls
from shoal.kube.patch.order import arrange, identity, kind_of
from shoal.kube.schema.model import ANY, Field, Form, Type

PATCH = "$patch"
DELETE_FROM_LIST = "$deleteFromPrimitiveList"
SET_ORDER = "$setElementOrder"
RETAIN_KEYS = "$retainKeys"

_BAD_RETAIN_KEYS = "invalid patch format of retainKeys"
_BAD_ORDER = "invalid patch format of setElementOrder list"
_BAD_DELETION = "invalid patch format of primitive list"


def apply(doc: dict[str, Any], patch: Any, type_: Type) -> dict[str, Any]:
    """``doc`` with the patch applied. Changes ``doc`` and ``patch``; the result may be ``doc`` or a new object."""
    if patch.__class__ is not dict:
        raise BadRequest("error decoding patch: a strategic merge patch must be a JSON object")
    return _merge_object(doc, patch, type_)


def _merge_object(target: dict[str, Any], patch: dict[str, Any], type_: Type) -> dict[str, Any]:
    if PATCH in patch:
        return _directed_object(patch)
    if any(key[:1] == "$" for key in patch):
        _retain_keys(target, patch)
        _set_orders(target, patch, type_)
    for key, value in patch.items():
        deleting = key.startswith(DELETE_FROM_LIST)
        if deleting:
            key = _directed_field(key, _BAD_DELETION)
        if value is None:
            target.pop(key, None)
            continue
        current: Any = target.get(key)
        if current.__class__ is not value.__class__ or value.__class__ not in _CONTAINERS:
            if not deleting:
                _put(target, key, value)
        elif value.__class__ is list:
            target[key] = _merge_list(current, value, _field(type_, key), deleting=deleting)
        else:
            field = _field(type_, key)
            if "replace" in field.patch_strategies:
                _put(target, key, value)
            else:
                target[key] = _merge_object(current, value, field.type)
    return target


_CONTAINERS: tuple[Any, ...] = (dict, list)


def _directed_object(patch: dict[str, Any]) -> dict[str, Any]:
    directive = patch.pop(PATCH)
    if directive == "replace":
        drop_nulls(patch)
        cleaned, _ = _without_directives(patch)
        return dict(cleaned)
    if directive == "delete":
        return {}
    raise BadRequest(f"unknown patch type: {directive} in map: {patch}")


def _put(target: dict[str, Any], key: str, value: Any) -> None:
    """Add a value that has no counterpart to merge with."""
    if value.__class__ in _CONTAINERS:
        drop_nulls(value)
        value, keep = _without_directives(value)
        if not keep:
            target.pop(key, None)
            return
    target[key] = value


def _without_directives(value: Any) -> tuple[Any, bool]:
    """The value without directives, and whether it is kept: an object with ``$patch`` is not."""
    if value.__class__ is dict:
        if PATCH in value:
            return None, False
        cleaned = {}
        for key, item in value.items():
            if not _is_directive(key):
                item, keep = _without_directives(item)
                if keep:
                    cleaned[key] = item
        return cleaned, True
    if value.__class__ is list:
        kept = (_without_directives(item) for item in value)
        return [item for item, keep in kept if keep], True
    return value, True


def _is_directive(key: str) -> bool:
    return key[:1] == "$" and (key == RETAIN_KEYS or key.startswith((DELETE_FROM_LIST + "/", SET_ORDER + "/")))


def _field(type_: Type, name: str) -> Field:
    """Type and patch strategy of a field; free-form content merges like a merge patch."""
    if type_.form is Form.MAP:
        return Field(name, type_.element)
    return type_.fields.get(name) or Field(name, ANY)


def _directed_field(key: str, problem: str) -> str:
    """The field a directive such as ``$setElementOrder/containers`` is about."""
    prefix, _, name = key.partition("/")
    if not name or prefix not in (DELETE_FROM_LIST, SET_ORDER):
        raise BadRequest(problem)
    return name


def _retain_keys(target: dict[str, Any], patch: dict[str, Any]) -> None:
    if RETAIN_KEYS not in patch:
        return
    listed = patch.pop(RETAIN_KEYS)
    if listed.__class__ is not list:
        raise BadRequest(_BAD_RETAIN_KEYS)
    retained = {name for name in listed if name.__class__ is str}
    for key, value in patch.items():
        if value is not None and key not in retained and not key.startswith((DELETE_FROM_LIST, SET_ORDER)):
            raise BadRequest(_BAD_RETAIN_KEYS)
    for key in [key for key in target if key not in retained]:
        del target[key]


def _set_orders(target: dict[str, Any], patch: dict[str, Any], type_: Type) -> None:
    """Merge the lists whose order the patch sets, and remove them from the patch."""
    for key in [key for key in patch if key.startswith(SET_ORDER)]:
        order = patch.pop(key)
        if order.__class__ is not list:
            raise BadRequest(_BAD_ORDER)
        name = _directed_field(key, _BAD_ORDER)
        present, patched = target.get(name), patch.get(name)
        if present is None and patched is None:
            continue
        for items in (present, patched):
            if items is not None and items.__class__ is not list:
                raise BadRequest(_BAD_ORDER)
        field = _field(type_, name)
        _check_order(patched or [], order, field.patch_merge_key)
        live = list(present or ())
        patch.pop(name, None)
        if patched is None:
            merged = live
        elif present is None:
            drop_nulls(patched)
            merged, _ = _without_directives(patched)
        else:
            merged = _merge_list(present, patched, field, deleting=False)
            if field.patch_merge_key:
                live = _with_places_filled(live, merged, field.patch_merge_key)
        target[name] = arrange(merged, order, live, field.patch_merge_key)


def _with_places_filled(live: list[Any], merged: list[Any], merge_key: str) -> list[Any]:
    """The order of the live list, in which new items take the positions of deleted ones, then follow at the end."""
    kept = {identity(item, merge_key) for item in merged}
    remaining = [item for item in live if identity(item, merge_key) in kept]
    if len(remaining) == len(live):
        return live
    before = {identity(item, merge_key) for item in live}
    new = [item for item in merged if identity(item, merge_key) not in before]
    return (remaining + new)[: len(live)]


def _check_order(patched: list[Any], order: list[Any], merge_key: str) -> None:
    """The list in the patch must have the order that the patch sets, apart from deletions."""
    if not order or not patched:
        return
    wanted = iter(order)
    for item in patched:
        if item.__class__ is dict and PATCH in item:
            continue
        name = identity(item, merge_key)
        if not any(identity(candidate, merge_key) == name for candidate in wanted):
            raise BadRequest(f"The order in patch list:\n{patched}\n doesn't match {SET_ORDER} list:\n{order}\n")


def _merge_list(current: list[Any], patch: list[Any], field: Field, *, deleting: bool) -> list[Any]:
    if deleting:
        return [item for item in current if item not in patch]
    if "merge" not in field.patch_strategies:
        drop_nulls(patch)
        cleaned: list[Any] = _without_directives(patch)[0]
        return cleaned
    if not current and not patch:
        return current
    if kind_of(current, patch) is dict:
        return _merge_objects(current, patch, field)
    merged = list(dict.fromkeys([*current, *patch]))
    return arrange(merged, patch, current, "")


def _merge_objects(current: list[Any], patch: list[Any], field: Field) -> list[Any]:
    merge_key = field.patch_merge_key
    if not merge_key:
        raise BadRequest(f"cannot merge lists without merge key for {field.name}")
    current, patch = _directed_items(current, patch, merge_key)
    live = list(current)
    element = field.type.element
    positions: dict[Hashable, int] = {}
    merged: list[Any] = []
    for item in current:
        positions.setdefault(identity(item, merge_key), len(merged))
        merged.append(item)
    for item in patch:
        name = identity(item, merge_key)
        position = positions.get(name)
        if position is None:
            positions[name] = len(merged)
            drop_nulls(item)
            merged.append(_without_directives(item)[0])
        else:
            merged[position] = _merge_object(merged[position], item, element)
    return arrange(merged, patch, live, merge_key)


def _directed_items(current: list[Any], patch: list[Any], merge_key: str) -> tuple[list[Any], list[Any]]:
    """Execute the ``$patch`` of list items; return the rest of the list and of the patch."""
    directed = [item for item in patch if PATCH in item]
    if not directed:
        return current, patch
    plain = [item for item in patch if PATCH not in item]
    replaced = False
    for item in directed:
        directive = item[PATCH]
        if directive == "delete":
            name = identity(item, merge_key)
            current = [one for one in current if identity(one, merge_key) != name]
        elif directive == "replace":
            replaced = True
        elif directive == "merge":
            raise BadRequest("merging lists cannot yet be specified in the patch")
        else:
            raise BadRequest(f"unknown patch type: {directive} in map: {item}")
    if replaced:
        drop_nulls(plain)
        return _without_directives(plain)[0], []
    return current, plain
