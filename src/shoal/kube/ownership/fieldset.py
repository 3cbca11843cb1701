"""Sets of fields in the form of FieldsV1, so that reading and writing managedFields needs no conversion.

A set is a dict from path elements to nodes; a node is again a dict. ``f:name`` is a field, ``k:{"name":"x"}`` an item
of an associative list, ``v:"x"`` an item of a set, ``i:0`` an index. A node that is empty, or that has the key ``.``,
is a member of the set; the other keys of a node are the elements below it. The empty dict at the root is the empty set:
the whole object is never owned.

Sets are immutable: no function changes its arguments, and results share parts with them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

FieldSet = dict[str, Any]

SELF = "."


def from_json(value: Any) -> FieldSet:
    """Check and normalize a FieldsV1 value of a client; raises ``ValueError`` if it is invalid.

    Unknown kinds of path elements are dropped, and so are nodes without meaning.
    """
    if value.__class__ is not dict:
        raise ValueError("fieldsV1 must be a JSON object")
    if _is_tidy(value):
        return dict(value)
    return {key: node for key, node in _tidy(value).items() if key != SELF}


def _is_tidy(node: Any) -> bool:
    for key, child in node.items():
        if child.__class__ is not dict or key[:2] != "f:" or (child and not _is_tidy(child)):
            return False
    return True


def _tidy(node: Any) -> FieldSet:
    if node.__class__ is not dict:
        raise ValueError("fieldsV1 must consist of JSON objects")
    tidied: FieldSet = {}
    for key, child in node.items():
        if key == SELF:
            tidied[SELF] = {}
            continue
        element = _canonical_element(key)
        if element:
            tidied[element] = _tidy(child)
    if len(tidied) == 1 and SELF in tidied:
        return {}
    return tidied


def _canonical_element(text: str) -> str:
    """The element in canonical form; empty if its kind is unknown."""
    if len(text) < 2 or text[1] != ":":
        raise ValueError(f"{text!r} is not a path element")
    kind = text[0]
    if kind == "f":
        return text
    if kind == "i":
        return f"i:{int(text[2:])}"
    if kind not in "kv":
        return ""
    try:
        value = orjson.loads(text[2:])
    except orjson.JSONDecodeError as error:
        raise ValueError(f"{text!r} is not a path element: {error}") from None
    if kind == "v":
        return value_element(value)
    if value.__class__ is not dict:
        raise ValueError(f"{text!r} is not a path element")
    return key_element(value)


def key_element(keys: dict[str, Any]) -> str:
    """The element of a list item that is identified by fields."""
    return "k:" + _json_text(keys)


def value_element(value: Any) -> str:
    """The element of an item of a set."""
    return "v:" + _json_text(value)


def _json_text(value: Any) -> str:
    """JSON as in Kubernetes' path elements: sorted, compact, with HTML characters escaped."""
    text = orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
    if "&" in text or "<" in text or ">" in text:
        text = text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
    return text


def union(left: FieldSet, right: FieldSet) -> FieldSet:
    """The union of two sets."""
    if not right or left is right:
        return left
    if not left:
        return right
    return _union(left, right)


def _union(left: FieldSet, right: FieldSet) -> FieldSet:
    merged = dict(left)
    for key, right_node in right.items():
        left_node = merged.get(key)
        if left_node is None:
            merged[key] = right_node
        elif left_node != right_node:
            if not left_node:
                merged[key] = _as_member(right_node)
            elif not right_node:
                merged[key] = _as_member(left_node)
            else:
                merged[key] = _union(left_node, right_node)
    return merged


def _as_member(node: FieldSet) -> FieldSet:
    return node if SELF in node else {SELF: {}, **node}


def difference(left: FieldSet, right: FieldSet) -> FieldSet:
    """The members of ``left`` that are not in ``right``; ``left`` itself if they have none in common."""
    if not left or not right:
        return left
    changed: FieldSet = {}
    for key, right_node in right.items():
        left_node = left.get(key)
        if left_node is not None and key != SELF:
            rest = _node_difference(left_node, right_node)
            if rest is not left_node:
                changed[key] = rest
    if not changed:
        return left
    result = {}
    for key, node in left.items():
        if key in changed:
            node = changed[key]
            if node is None:
                continue
        result[key] = node
    return result


def _node_difference(left: FieldSet, right: FieldSet) -> FieldSet | None:
    """The rest of a node; ``None`` if nothing is left, the node itself if nothing is removed."""
    right_is_member = not right or SELF in right
    if not left:
        return None if right_is_member else left
    rest = difference(left, right)
    if SELF in rest:
        if not right_is_member:
            return _collapsed(rest)
        rest = {key: node for key, node in rest.items() if key != SELF}
    return rest or None


def _collapsed(node: FieldSet) -> FieldSet:
    """A member that lost everything below it is written as the empty node."""
    return {} if len(node) == 1 else node


def recursive_difference(left: FieldSet, right: FieldSet) -> FieldSet:
    """The members of ``left`` that are neither in ``right`` nor below a member of it."""
    if not left or not right:
        return left
    result: FieldSet = {}
    for key, node in left.items():
        other = right.get(key)
        if other is None or key == SELF:
            result[key] = node
        elif other and SELF not in other and node:
            rest = recursive_difference(node, other)
            if rest:
                result[key] = _collapsed(rest) if SELF in rest else rest
        elif other and SELF not in other:
            result[key] = node
    return result


def intersection(left: FieldSet, right: FieldSet) -> FieldSet:
    """The intersection of two sets."""
    common: FieldSet = {}
    if left and right:
        for key, left_node in left.items():
            right_node = right.get(key)
            if right_node is not None and key != SELF:
                node = _node_intersection(left_node, right_node)
                if node is not None:
                    common[key] = node
    return common


def _node_intersection(left: FieldSet, right: FieldSet) -> FieldSet | None:
    member = (not left or SELF in left) and (not right or SELF in right)
    below = intersection(left, right)
    if member:
        return _as_member(below) if below else {}
    return below or None


def iterate(fields: FieldSet) -> Iterator[str]:
    """The members as Kubernetes prints them, parents first: ``.spec.containers[name="x"].image``."""
    yield from _iterate(fields, "")


def _iterate(node: FieldSet, prefix: str) -> Iterator[str]:
    ordered = sorted((key for key in node if key != SELF), key=_order)
    for key in ordered:
        child = node[key]
        if not child or SELF in child:
            yield prefix + element_text(key)
    for key in ordered:
        if node[key]:
            yield from _iterate(node[key], prefix + element_text(key))


_KIND_ORDER = {"f": 0, "k": 1, "v": 2, "i": 3}


def _order(element: str) -> tuple[int, Any]:
    return _KIND_ORDER.get(element[0], 4), element


def element_text(element: str) -> str:
    """One path element as messages print it."""
    kind, text = element[0], element[2:]
    if kind == "f":
        return f".{text}"
    if kind == "k":
        keys = orjson.loads(text)
        return "[" + ",".join(f"{name}={_scalar_text(value)}" for name, value in keys.items()) + "]"
    if kind == "v":
        return f"[={_scalar_text(orjson.loads(text))}]"
    return f"[{text}]"


def _scalar_text(value: Any) -> str:
    return orjson.dumps(value).decode()
