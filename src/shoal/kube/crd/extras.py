"""Checks beyond values: unique items in lists of type set and map, and metadata of embedded resources."""

from __future__ import annotations

from typing import Any

from shoal.errors import FieldError, duplicate, invalid, required
from shoal.kube import labels, names
from shoal.kube.crd.model import SchemaNode, object_meta
from shoal.kube.schema.model import Form, Type

_ABSENT = object()


def list_errors(value: Any, node: SchemaNode, path: str) -> list[FieldError]:
    """Errors for duplicate items in lists of type set or map."""
    errors: list[FieldError] = []
    if node.deep_lists:
        _visit_lists(value, node, path, errors)
    return errors


def _visit_lists(value: Any, node: SchemaNode, path: str, errors: list[FieldError]) -> None:
    if type(value) is list:
        if node.list_type == "set":
            errors += (duplicate(f"{path}[{i}]", value[i]) for i in _repeated(value))
        elif node.list_type == "map":
            errors += _map_errors(value, node.keys, path)
        if node.items is not None and node.items.deep_lists:
            for index, item in enumerate(value):
                _visit_lists(item, node.items, f"{path}[{index}]", errors)
    elif type(value) is dict:
        for name, item in value.items():
            child = node.properties.get(name)
            if child is not None and child.deep_lists:
                _visit_lists(item, child, f"{path}.{name}" if path else name, errors)
            if node.additional is not None and node.additional.deep_lists:
                _visit_lists(item, node.additional, f"{path}[{name}]", errors)


def _repeated(items: list[Any]) -> list[int]:
    """The position of the second occurrence of each repeated item."""
    if len(items) < 2:
        return []
    seen: dict[Any, int] = {}
    found = []
    for index, item in enumerate(items):
        key = _frozen(item)
        count = seen.get(key, 0)
        seen[key] = count + 1
        if count == 1:
            found.append(index)
    return found


def _frozen(value: Any) -> tuple[Any, ...]:
    """A hashable form of a value; 1, 1.0 and true stay distinct."""
    if type(value) is dict:
        return (dict, frozenset((name, _frozen(item)) for name, item in value.items()))
    if type(value) is list:
        return (list, *map(_frozen, value))
    return (type(value), value)


def _map_errors(items: list[Any], keys: tuple[str, ...], path: str) -> list[FieldError]:
    for index, item in enumerate(items):
        if item is not None and type(item) is not dict:
            return [invalid(f"{path}[{index}]", item, "must be an object for an array of list-type map")]
    if len(items) < 2:
        return []
    chosen = [{key: item[key] for key in keys if key in item} if item else {} for item in items]
    return [duplicate(f"{path}[{index}]", chosen[index]) for index in _repeated(chosen)]


def resource_errors(value: Any, node: SchemaNode, path: str, *, inside: bool = False) -> list[FieldError]:
    """The errors in type and metadata of embedded resources. The server checks the object itself."""
    errors: list[FieldError] = []
    if node.deep_resources:
        _visit_resources(value, node, path, errors, check=inside)
    return errors


def _visit_resources(value: Any, node: SchemaNode, path: str, errors: list[FieldError], *, check: bool) -> None:
    if type(value) is dict:
        if node.embedded and check:
            _check_resource(value, path, errors)
        for name, item in value.items():
            child = node.properties.get(name)
            if child is not None:
                _visit_resources(item, child, f"{path}.{name}" if path else name, errors, check=True)
            elif node.additional is not None:
                _visit_resources(item, node.additional, f"{path}[{name}]", errors, check=True)
    elif type(value) is list and node.items is not None:
        for index, item in enumerate(value):
            _visit_resources(item, node.items, f"{path}[{index}]", errors, check=True)


def _check_resource(value: dict[str, Any], path: str, errors: list[FieldError]) -> None:
    prefix = f"{path}." if path else ""
    for name in ("apiVersion", "kind"):
        if name not in value:
            errors.append(required(prefix + name))
            continue
        text = value[name]
        if type(text) is not str:
            errors.append(invalid(prefix + name, text, "must be a string"))
        elif not text:
            errors.append(invalid(prefix + name, text, "must not be empty"))
        elif name == "apiVersion" and text.count("/") > 1:
            errors.append(invalid(prefix + name, text, f"unexpected GroupVersion string: {text}"))
        elif name == "kind" and (faults := names.is_dns1035_label(text.lower())):
            detail = "may have mixed case, but should otherwise match: " + ",".join(faults)
            errors.append(invalid(prefix + name, text, detail))
    if "metadata" in value:
        _check_metadata(value["metadata"], prefix + "metadata", errors)


def _check_metadata(meta: Any, path: str, errors: list[FieldError]) -> None:
    fault = metadata_fault(meta)
    if fault:
        errors.append(invalid(path, meta, fault))
        return
    if meta.get("name"):
        errors += (invalid(f"{path}.name", meta["name"], each) for each in names.is_path_segment_name(meta["name"]))
    if meta.get("generateName"):
        prefix = meta["generateName"]
        errors += (invalid(f"{path}.generateName", prefix, each) for each in names.is_path_segment_prefix(prefix))
    if meta.get("namespace"):
        space = meta["namespace"]
        errors += (invalid(f"{path}.namespace", space, each) for each in names.is_dns1123_label(space))
    errors += labels.validate_labels(meta.get("labels"), f"{path}.labels")
    for key in meta.get("annotations") or ():
        errors += (invalid(f"{path}.annotations", key, each) for each in names.is_annotation_key(key))
    for index, name in enumerate(meta.get("finalizers") or ()):
        errors += (invalid(f"{path}.finalizers[{index}]", name, each) for each in names.is_finalizer_name(name))


_GO_NAMES = {Form.STRING: "string", Form.INTEGER: "int64", Form.BOOLEAN: "bool", Form.TIME: "string"}


def metadata_fault(meta: Any) -> str:
    """Why a value cannot be read as ObjectMeta, in the decoder's words; empty if it can."""
    if type(meta) is not dict:
        return f"json: cannot unmarshal {_go_kind(meta)} into Go value of type v1.ObjectMeta"
    for name, field in object_meta().fields.items():
        value = meta.get(name, _ABSENT)
        if value is not _ABSENT and value is not None and not _fits(value, field.type):
            wanted = _GO_NAMES.get(field.type.form, "map[string]string" if field.type.form is Form.MAP else "[]string")
            return f"json: cannot unmarshal {_go_kind(value)} into Go struct field ObjectMeta.{name} of type {wanted}"
    return ""


def _fits(value: Any, shape: Type) -> bool:
    form = shape.form
    if form is Form.MAP:
        return type(value) is dict and all(item is None or _fits(item, shape.element) for item in value.values())
    if form is Form.LIST:
        return type(value) is list and all(item is None or _fits(item, shape.element) for item in value)
    if form is Form.STRUCT:
        return type(value) is dict
    if form in (Form.STRING, Form.TIME, Form.MICRO_TIME):
        return type(value) is str
    if form is Form.INTEGER:
        return type(value) is int
    return form is not Form.BOOLEAN or type(value) is bool


def _go_kind(value: Any) -> str:
    kinds = {str: "string", bool: "bool", int: "number", float: "number", list: "array", dict: "object"}
    return kinds.get(type(value), "null")
