"""The zero values that Kubernetes writes into every object of a built-in kind.

Go omits an unset field from JSON only if the field is marked so and is not a struct. Clients rely on the others: the
official Python client raises an error for a DaemonSet whose status has no counters. A plan per kind, computed once from
the fields of its messages, says which fields to fill in. A list that the schema requires becomes ``[]`` instead of Go's
``null``: clients that check for the field accept only a list there.

Items of lists are left as they are: nearly all of their fields that Go always writes are required by validation.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import orjson

from shoal.kube.objects import Obj
from shoal.kube.protobuf import messages
from shoal.kube.schema.model import Form, Type

_COMPLETE = frozenset(
    {"io.k8s.api.core.v1.PodSpec", "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}
)  # their own rules fill them in
_SCALARS: dict[Form, Any] = {
    Form.STRING: "",
    Form.INTEGER: 0,
    Form.NUMBER: 0,
    Form.BOOLEAN: False,
    Form.QUANTITY: "0",
    Form.INT_OR_STRING: 0,
}


class ZeroField(NamedTuple):
    """A field that is always written: its zero, or for a struct the fields of it."""

    name: str
    zero: Any
    below: tuple[ZeroField, ...] | None


Plan = tuple[ZeroField, ...]


class Zeros(NamedTuple):
    """The fields of a kind that are always written."""

    content: Plan  # outside metadata and status
    status: Plan
    new_status: bytes  # the status of an object that has none yet, encoded


NO_ZEROS = Zeros((), (), b"{}")


@cache
def zeros_of(type_: Type) -> Zeros:
    """The plans of a kind; empty ones for custom resources."""
    if not type_.name.startswith("io.k8s."):
        return NO_ZEROS
    root = _plan(type_)
    status = next((field.below or () for field in root if field.name == "status"), ())
    made: Obj = {}
    fill(made, status)
    content = tuple(field for field in root if field.name not in ("metadata", "status"))
    return Zeros(content, status, orjson.dumps(made))


def fill(obj: Obj, plan: Plan) -> None:
    """Add the missing fields of ``plan`` to ``obj``, in place."""
    for name, zero, below in plan:
        found = obj.get(name)
        if found is None:
            if below is None:
                obj[name] = [] if zero.__class__ is list else zero
                continue
            found = obj[name] = {}
        if below:
            fill(found, below)


def _plan(type_: Type) -> Plan:
    always = messages.always_written(type_.name.removeprefix("io.k8s.").replace("-", "_"))
    found = []
    for name, field in type_.fields.items():
        pointer = always.get(name)
        if pointer is None:
            continue
        kind, below = field.type.form, None
        if kind is Form.STRUCT and not pointer:
            below = () if field.type.name in _COMPLETE else _plan(field.type)
        required_list = kind is Form.LIST and name in type_.required
        found.append(ZeroField(name, [] if required_list else None if pointer else _SCALARS.get(kind), below))
    return tuple(found)
