"""Normalizes a decoded JSON object to its type: prunes unknown fields, drops nulls, checks types, writes canonical
scalars.

For built-in types, zeros and empty lists are removed where Go's JSON omits them: Go clients lose them in their structs,
and an object that they write back unchanged must not count as changed.

``normalize`` changes the object in place and returns the unknown fields, worded as in strict decoding. Every type is
compiled once into a small function; a field of the right JSON type costs one dictionary lookup. Paths are only computed
for errors: a mismatch collects its path while the exception propagates, and an unknown field starts a second, slower
pass (``prune``).
"""

from __future__ import annotations

import binascii
import json
from collections.abc import Callable
from typing import Any

from shoal.errors import BadRequest
from shoal.kube import quantity, times
from shoal.kube.protobuf import messages
from shoal.kube.schema.model import Form, Type

MAX_UNKNOWN = 100  # fields named in one message
_MAX_PLANS = 20_000

# A walker returns the canonical value, which may be the value itself. A class in place of a walker means that a value
# of exactly that class needs no work.
_Walker = Callable[[Any], Any]
_Step = _Walker | type

_plans: dict[tuple[Type, bool], _Step] = {}  # by type, and whether zeros are kept


class _Mismatch(Exception):
    """A value of the wrong type; collects the fields that lead to it, innermost first."""

    def __init__(self, problem: str, go_type: str = "") -> None:
        super().__init__(problem)
        self.problem = problem  # the JSON type found, or the whole message if ``go_type`` is empty
        self.go_type = go_type
        self.struct = ""
        self.fields: list[str] = []


class _UnknownField(Exception):
    """An unknown field was found; the object has to be pruned first."""


def normalize(obj: dict[str, Any], type_: Type, *, path: str = "", keep_zeros: bool = False) -> list[str]:
    """Normalize ``obj`` to ``type_`` in place and return the dropped unknown fields. ``keep_zeros`` is for applied
    configurations: a manager that applies an empty list owns it, although the object will not show it.

    Raises ``BadRequest`` if a value has the wrong type; the message is the decoder's, and the caller adds context.
    """
    step = _plans.get((type_, keep_zeros)) or _step(type_, keep_zeros)
    if step.__class__ is type:
        return []
    try:
        step(obj)
    except _UnknownField:
        unknown = prune(obj, type_, path=path)
        try:
            step(obj)
        except _Mismatch as mismatch:
            raise BadRequest(_message(mismatch, path)) from None
        return unknown
    except _Mismatch as mismatch:
        raise BadRequest(_message(mismatch, path)) from None
    return []


def prune(obj: dict[str, Any], type_: Type, *, path: str = "") -> list[str]:
    """Drop the fields that ``type_`` does not have, without checking values; return the dropped ones."""
    found: dict[str, None] = {}
    _prune(obj, type_, path, found)
    return list(found)[:MAX_UNKNOWN]


def _prune(value: Any, type_: Type, path: str, found: dict[str, None]) -> None:
    form = type_.form
    if form is Form.STRUCT:
        if value.__class__ is not dict:
            return
        fields = type_.fields
        prefix = f"{path}." if path else ""
        for key in list(value):
            field = fields.get(key)
            if field is not None:
                _prune(value[key], field.type, prefix + key, found)
            elif not type_.preserve_unknown:
                del value[key]
                found[f"unknown field {json.dumps(prefix + key, ensure_ascii=False)}"] = None
    elif form is Form.LIST:
        if value.__class__ is list and type_.element.form in _CONTAINERS:
            for index, item in enumerate(value):
                _prune(item, type_.element, f"{path}[{index}]", found)
    elif form is Form.MAP and value.__class__ is dict and type_.element.form in _CONTAINERS:
        for key, item in value.items():
            _prune(item, type_.element, f"{path}.{key}", found)


_CONTAINERS = frozenset({Form.STRUCT, Form.LIST, Form.MAP})


def _message(mismatch: _Mismatch, path: str) -> str:
    if not mismatch.go_type:
        return mismatch.problem
    names = [path] if path else []
    names += reversed(mismatch.fields)
    if not names:
        return f"json: cannot unmarshal {mismatch.problem} into Go value of type {mismatch.go_type}"
    where = f"{mismatch.struct}.{'.'.join(names)}"
    return f"json: cannot unmarshal {mismatch.problem} into Go struct field {where} of type {mismatch.go_type}"


def _json_type(value: Any) -> str:
    """The decoder's name of a JSON value's type."""
    kind = value.__class__
    if kind is bool:
        return "bool"
    if kind is int or kind is float:
        return "number"
    return {str: "string", list: "array", dict: "object"}.get(kind, "null")


def _short(name: str) -> str:
    return name.rsplit(".", 1)[-1]


def _go_type(type_: Type) -> str:
    """The Go type named in a message."""
    if type_.form is Form.STRUCT:
        return ".".join(type_.name.split(".")[-2:]) or "struct {}"
    if type_.form is Form.LIST:
        return f"[]{_go_type(type_.element)}"
    if type_.form is Form.MAP:
        return f"map[string]{_go_type(type_.element)}"
    if type_.form is Form.INTEGER:
        return f"int{type_.bits}"
    return _GO_NAMES[type_.form]


_GO_NAMES = {
    Form.STRING: "string",
    Form.NUMBER: "float64",
    Form.BOOLEAN: "bool",
    Form.BYTES: "[]uint8",
    Form.TIME: "v1.Time",
    Form.MICRO_TIME: "v1.MicroTime",
    Form.QUANTITY: "resource.Quantity",
    Form.INT_OR_STRING: "intstr.IntOrString",
    Form.ANY: "interface {}",
}


def _zero(type_: Type) -> Any:
    """The zero value of a type, which replaces a null item of a list or map."""
    return _ZEROS.get(type_.form, dict)()


_ZEROS: dict[Form, Callable[[], Any]] = {
    Form.STRUCT: dict,
    Form.MAP: dict,
    Form.LIST: list,
    Form.STRING: str,
    Form.BYTES: str,
    Form.INTEGER: int,
    Form.NUMBER: int,
    Form.BOOLEAN: bool,
    Form.INT_OR_STRING: int,
    Form.QUANTITY: lambda: "0",
    Form.TIME: lambda: None,
    Form.MICRO_TIME: lambda: None,
    Form.ANY: lambda: None,
}


def _step(type_: Type, keep_zeros: bool) -> _Step:
    """The compiled form of a type."""
    known = _plans.get((type_, keep_zeros))
    if known is not None:
        return known
    if (
        len(_plans) >= _MAX_PLANS
    ):  # bounded, because custom resources change; compiled steps keep references to what they use
        _plans.clear()
    form = type_.form
    if form is Form.STRUCT:
        return _struct(type_, keep_zeros)
    if form is Form.STRING:
        step: _Step = str
    elif form is Form.BOOLEAN:
        step = bool
    elif form is Form.LIST:
        step = _list(type_, keep_zeros)
    elif form is Form.MAP:
        step = _map(type_, keep_zeros)
    elif form is Form.INTEGER:
        step = _integer(type_)
    else:
        step = _SCALARS[form]
    _plans[type_, keep_zeros] = step
    return step


def _struct(type_: Type, keep_zeros: bool) -> _Walker:
    steps: dict[str, _Step] = {}
    find: Callable[[str], Any] = steps.get
    keep_unknown = type_.preserve_unknown
    nullable = frozenset(name for name, field in type_.fields.items() if field.type.nullable)
    types = {name: field.type for name, field in type_.fields.items()}
    omitted: frozenset[str] = frozenset() if keep_zeros else _omitted(type_)

    def walk(value: Any) -> Any:
        if value.__class__ is not dict:
            raise _Mismatch(_json_type(value), _go_type(type_))
        dropped: list[str] | None = None
        try:
            for key, item in value.items():
                step = find(key)
                if item.__class__ is step:
                    if item or key not in omitted:
                        continue
                elif step is None:
                    if keep_unknown:
                        continue
                    raise _UnknownField
                elif item is None:
                    if key in nullable:
                        continue
                elif step.__class__ is type:
                    raise _Mismatch(_json_type(item), _go_type(types[key]))
                else:
                    fitted = step(item)
                    if fitted is not item:
                        value[key] = fitted
                    if fitted or key not in omitted:
                        continue
                if dropped is None:
                    dropped = [key]
                else:
                    dropped.append(key)
        except _Mismatch as mismatch:
            mismatch.fields.append(key)
            if not mismatch.struct:
                mismatch.struct = _short(type_.name)
            raise
        if dropped is not None:
            for key in dropped:
                del value[key]
        return value

    _plans[type_, keep_zeros] = walk  # before the fields, which may refer back to it
    for name, field in type_.fields.items():
        steps[name] = _step(field.type, keep_zeros)
    return walk


_OMITTABLE = frozenset({Form.STRING, Form.INTEGER, Form.NUMBER, Form.BOOLEAN, Form.BYTES, Form.LIST, Form.MAP})


def _omitted(type_: Type) -> frozenset[str]:
    """Fields that JSON omits when they are zero or empty."""
    if not type_.name.startswith("io.k8s."):
        return frozenset()
    zeros = messages.omitted_zeros(type_.name.removeprefix("io.k8s.").replace("-", "_"))
    return frozenset(name for name in zeros if name in type_.fields and type_.fields[name].type.form in _OMITTABLE)


def _list(type_: Type, keep_zeros: bool) -> _Walker:
    element = type_.element
    step = _step(element, keep_zeros)
    go_type = _go_type(element)

    def walk(value: Any) -> Any:
        if value.__class__ is not list:
            raise _Mismatch(_json_type(value), _go_type(type_))
        for index, item in enumerate(value):
            if item.__class__ is step:
                continue
            if item is None:
                if not element.nullable:
                    value[index] = _zero(element)
            elif step.__class__ is type:
                raise _Mismatch(_json_type(item), go_type)
            else:
                fitted = step(item)
                if fitted is not item:
                    value[index] = fitted
        return value

    return walk


def _map(type_: Type, keep_zeros: bool) -> _Walker:
    element = type_.element
    step = _step(element, keep_zeros)
    go_type = _go_type(element)

    def walk(value: Any) -> Any:
        if value.__class__ is not dict:
            raise _Mismatch(_json_type(value), _go_type(type_))
        for key, item in value.items():
            if item.__class__ is step:
                continue
            if item is None:
                if not element.nullable:
                    value[key] = _zero(element)
            elif step.__class__ is type:
                raise _Mismatch(_json_type(item), go_type)
            else:
                fitted = step(item)
                if fitted is not item:
                    value[key] = fitted
        return value

    return walk


def _integer(type_: Type) -> _Walker:
    limit = 1 << (type_.bits - 1)
    low = -limit
    go_type = f"int{type_.bits}"

    def walk(value: Any) -> Any:
        if value.__class__ is int and low <= value < limit:
            return value
        raise _Mismatch(_number_problem(value), go_type)

    return walk


def _number_problem(value: Any) -> str:
    """The message for a wrong number: its digits if it is out of range, else its JSON type."""
    if value.__class__ is int or value.__class__ is float:
        return f"number {json.dumps(value)}"
    return _json_type(value)


def _number(value: Any) -> Any:
    if value.__class__ is int:
        return value
    if value.__class__ is not float:
        raise _Mismatch(_json_type(value), "float64")
    return int(value) if value.is_integer() and abs(value) < _INT64_LIMIT else value


_INT32_LIMIT = 1 << 31
_INT64_LIMIT = 1 << 63  # orjson writes no larger integers


def _int_or_string(value: Any) -> Any:
    if value.__class__ is str or (value.__class__ is int and -_INT32_LIMIT <= value < _INT32_LIMIT):
        return value
    raise _Mismatch(_number_problem(value), "int32")


def _quantity(value: Any) -> Any:
    try:
        return quantity.canonical(value)
    except (ValueError, TypeError) as error:
        raise _Mismatch(str(error) if isinstance(error, ValueError) else quantity.FORMAT_ERROR) from None


def _time(value: Any) -> Any:
    if value.__class__ is not str:
        raise _Mismatch(_json_type(value), "string")
    try:
        return times.normalize_time(value)
    except ValueError as error:
        raise _Mismatch(str(error)) from None


def _micro_time(value: Any) -> Any:
    if value.__class__ is not str:
        raise _Mismatch(_json_type(value), "string")
    try:
        return times.normalize_micro_time(value)
    except ValueError as error:
        raise _Mismatch(str(error)) from None


def _bytes(value: Any) -> Any:
    if value.__class__ is not str:
        raise _Mismatch(_json_type(value), "[]uint8")
    try:
        binascii.a2b_base64(value, strict_mode=True)
    except ValueError:
        return _lenient_bytes(value)
    return value


def _lenient_bytes(value: str) -> str:
    """Accept base64 with line breaks, as Go does, and write it without."""
    joined = value.replace("\r", "").replace("\n", "")
    try:
        binascii.a2b_base64(joined, strict_mode=True)
    except ValueError:
        raise _Mismatch(f"illegal base64 data at input byte {_first_bad_byte(value)}") from None
    return joined


_BASE64 = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")


def _first_bad_byte(value: str) -> int:
    body = value.rstrip("=")
    for index, letter in enumerate(body):
        if letter not in _BASE64 and letter not in "\r\n":
            return index
    return len(body)


def _any(value: Any) -> Any:
    return value


_SCALARS: dict[Form, _Walker] = {
    Form.NUMBER: _number,
    Form.INT_OR_STRING: _int_or_string,
    Form.QUANTITY: _quantity,
    Form.TIME: _time,
    Form.MICRO_TIME: _micro_time,
    Form.BYTES: _bytes,
    Form.ANY: _any,
}
