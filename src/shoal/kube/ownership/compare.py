"""Computes field sets of objects: all fields, the fields of an applied configuration, the changes between two objects.

The three functions differ in whether a container itself is a member:

- ``fields_of``: all fields of a created object; new containers are members too.
- ``applied_fields``: the fields of an applied configuration; of a struct only its fields are members.
- ``compare``: what an update changed, added and removed. Equal subtrees are skipped by ``==``.

Each type is compiled once into three functions. Fields that are never owned are omitted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from shoal.kube.ownership.elements import (
    UNRECORDED_METADATA,
    UNRECORDED_ROOT,
    always_present,
    identifier,
    is_leaf,
)
from shoal.kube.ownership.fieldset import SELF, FieldSet
from shoal.kube.schema.model import ANY, Form, Type

_MAX_PLANS = 20_000
_ABSENT = object()

Read = Callable[[Any], FieldSet]
Diff = Callable[[Any, Any], tuple[FieldSet, FieldSet]]


@dataclass(slots=True, eq=False)
class ComparePlan:
    """The compiled form of a type that is not a leaf."""

    kind: type  # dict or list: values of other classes are leaves
    added: Read  # node of a new value
    applied: Read  # node of a value in an applied configuration, without a mark for the value itself
    diff: Diff  # changed and removed nodes between two present values


class Comparison(NamedTuple):
    """The differences between two objects."""

    changed: FieldSet  # modified or added
    removed: FieldSet


def fields_of(obj: dict[str, Any], type_: Type) -> FieldSet:
    """All fields of a new object."""
    return _root_plan(type_).diff({}, obj)[0]


def applied_fields(obj: dict[str, Any], type_: Type) -> FieldSet:
    """The fields of an applied configuration."""
    return _root_plan(type_).applied(obj)


def compare(old: dict[str, Any], new: dict[str, Any], type_: Type) -> Comparison:
    """What ``new`` changes in ``old``."""
    return Comparison(*_root_plan(type_).diff(old, new))


_plans: dict[Type, ComparePlan] = {}
_roots: dict[Type, ComparePlan] = {}


def _root_plan(type_: Type) -> ComparePlan:
    known = _roots.get(type_)
    if known is None:
        if len(_roots) + len(_plans) >= _MAX_PLANS:  # custom resources come and go
            _roots.clear()
            _plans.clear()
        known = _roots[type_] = _compile_root(type_)
    return known


def _plan(type_: Type) -> ComparePlan | None:
    """The plan of a type; ``None`` if it is a leaf."""
    known = _plans.get(type_)
    if known is not None:
        return known
    if is_leaf(type_):
        return None
    if type_.form is Form.STRUCT:
        fields = _Fields()
        made = _plans[type_] = _struct(fields, always_present(type_, root=False))  # fields may lead back here
        fields.fill(type_)
        return made
    if type_.form is Form.LIST:
        made = _list(type_)
    elif type_.form is Form.MAP:
        made = _map(_plan(type_.element))
    else:
        made = _ANY_PLAN
    _plans[type_] = made
    return made


def _compile_root(type_: Type) -> ComparePlan:
    """The plan of a whole object, without the fields of it and of its metadata that are never recorded."""
    if type_.form is not Form.STRUCT:
        type_ = _UNKNOWN_OBJECT
    fields = _Fields()
    fields.fill(type_)
    fields.skip(UNRECORDED_ROOT)
    metadata = type_.fields.get("metadata")
    if metadata is not None and metadata.type.form is Form.STRUCT:
        inner = _Fields()
        inner.fill(metadata.type)
        inner.skip(UNRECORDED_METADATA)
        plan = _struct(inner, frozenset())
    else:
        plan = _struct(_skipping(UNRECORDED_METADATA), frozenset())
    dict.__setitem__(fields, "metadata", ("f:metadata", plan))
    return _struct(fields, always_present(type_, root=True) | {"metadata"})


_UNKNOWN_OBJECT = Type(Form.STRUCT)
_UNKNOWN_OBJECT.preserve_unknown = True

_Entry = tuple[str, ComparePlan | None]


class _Fields(dict[str, _Entry]):
    """Path element and plan of each field of a struct; an empty element means the field is not recorded."""

    def fill(self, type_: Type) -> None:
        for name, field in type_.fields.items():
            self[name] = (f"f:{name}", _plan(field.type))

    def skip(self, names: frozenset[str]) -> None:
        for name in names:
            self[name] = ("", None)

    def __missing__(self, name: str) -> _Entry:
        return (f"f:{name}", _ANY_PLAN)


def _skipping(names: frozenset[str]) -> _Fields:
    fields = _Fields()
    fields.skip(names)
    return fields


def _struct(fields: _Fields, present: frozenset[str]) -> ComparePlan:
    def added(value: Any) -> FieldSet:
        if value.__class__ is not dict or not value:
            return {}
        node: FieldSet = {SELF: {}}
        for key, item in value.items():
            name, plan = fields[key]
            node[name] = {} if plan is None else plan.added(item)
        node.pop("", None)
        return node

    def applied(value: Any) -> FieldSet:
        node: FieldSet = {}
        if value.__class__ is not dict:
            return node
        for key, item in value.items():
            name, plan = fields[key]
            if plan is None or item.__class__ is str:
                node[name] = {}
            elif item:
                below = plan.applied(item) if key in fields else plan.added(item)
                if below or plan is _ANY_PLAN:
                    node[name] = below
            elif item.__class__ is not list or plan is _ANY_PLAN:
                node[name] = {}
        node.pop("", None)
        return node

    def diff(old: Any, new: Any) -> tuple[FieldSet, FieldSet]:
        changed: FieldSet = {}
        removed: FieldSet = {}
        find = old.get
        for key, item in new.items():
            before = find(key, _ABSENT)
            if before == item:
                continue
            name, plan = fields[key]
            if before is _ABSENT:
                if key not in present or plan is None:
                    changed[name] = {} if plan is None else plan.added(item)
                    continue
                if not item:
                    continue
                before = item.__class__()
            if plan is None:
                changed[name] = {}
            else:
                _descend(name, plan, before, item, changed, removed)
        for key, item in old.items():
            if key not in new:
                name, plan = fields[key]
                if plan is not None and key in present:
                    _descend(name, plan, item, None, changed, removed)
                else:
                    removed[name] = {} if plan is None else plan.added(item)
        changed.pop("", None)
        removed.pop("", None)
        return changed, removed

    return ComparePlan(dict, added, applied, diff)


def _descend(name: str, plan: ComparePlan, before: Any, after: Any, changed: FieldSet, removed: FieldSet) -> None:
    """Record the differences below ``name``, which both objects have."""
    kind = plan.kind
    if before.__class__ is kind and after.__class__ is kind:
        below, gone = plan.diff(before, after)
    elif before is None and after.__class__ is kind:
        below, gone = plan.diff(kind(), after) if after else ({SELF: {}}, {})
    elif after is None and before.__class__ is kind:
        below, gone = plan.diff(before, kind())
    else:  # scalars, or a value of unknown type that changed its class
        below = {SELF: {}, **plan.added(after)}
        gone = plan.added(before)
        gone.pop(SELF, None)
    if below:
        changed[name] = {} if len(below) == 1 and SELF in below else below
    if gone:
        removed[name] = gone


def _map(element: ComparePlan | None) -> ComparePlan:
    def added(value: Any) -> FieldSet:
        if value.__class__ is not dict or not value:
            return {}
        node: FieldSet = {SELF: {}}
        if element is None:
            for key in value:
                node["f:" + key] = {}
        else:
            for key, item in value.items():
                node["f:" + key] = element.added(item)
        return node

    def applied(value: Any) -> FieldSet:
        node: FieldSet = {}
        if value.__class__ is not dict:
            return node
        if element is None:
            for key in value:
                node["f:" + key] = {}
            return node
        for key, item in value.items():
            if item and (item.__class__ is dict or item.__class__ is list):
                below = element.applied(item)
                below[SELF] = {}
                node["f:" + key] = below if len(below) > 1 else {}
            else:
                node["f:" + key] = {}
        return node

    def diff(old: Any, new: Any) -> tuple[FieldSet, FieldSet]:
        changed: FieldSet = {}
        removed: FieldSet = {}
        for key, item in new.items():
            before = old.get(key, _ABSENT)
            if before == item:
                continue
            if element is None:
                changed["f:" + key] = {}
            elif before is _ABSENT:
                changed["f:" + key] = element.added(item)
            else:
                _descend("f:" + key, element, before, item, changed, removed)
        for key, item in old.items():
            if key not in new:
                removed["f:" + key] = {} if element is None else element.added(item)
        return changed, removed

    return ComparePlan(dict, added, applied, diff)


def _list(type_: Type) -> ComparePlan:
    identify = identifier(type_)
    element = _plan(type_.element)

    def nodes(value: list[Any], read: Read | None) -> FieldSet:
        node: FieldSet = {}
        for item in value:
            name = identify(item)
            if name in node:
                node[name] = {}  # duplicate items are owned together
            elif read is None or item.__class__ is not dict or not item:
                node[name] = {}
            else:
                below = read(item)
                below[SELF] = {}
                node[name] = below if len(below) > 1 else {}
        return node

    def added(value: Any) -> FieldSet:
        if value.__class__ is not list or not value:
            return {}
        node = nodes(value, None if element is None else element.added)
        node[SELF] = {}
        return node

    def applied(value: Any) -> FieldSet:
        if value.__class__ is not list:
            return {}
        return nodes(value, None if element is None else element.applied)

    def diff(old: Any, new: Any) -> tuple[FieldSet, FieldSet]:
        changed: FieldSet = {}
        removed: FieldSet = {}
        before, after = _index(old, identify), _index(new, identify)
        for name, items in after.items():
            others = before.get(name)
            if others is None:
                changed[name] = element.added(items[0]) if element is not None and len(items) == 1 else {}
            elif others != items:
                _diff_items(name, others, items, element, changed, removed)
        for name, others in before.items():
            if name not in after:
                removed[name] = element.added(others[0]) if element is not None and len(others) == 1 else {}
        return changed, removed

    return ComparePlan(list, added, applied, diff)


def _index(items: list[Any], identify: Callable[[Any], str]) -> dict[str, list[Any]]:
    index: dict[str, list[Any]] = {}
    for item in items:
        index.setdefault(identify(item), []).append(item)
    return index


def _diff_items(
    name: str, old: list[Any], new: list[Any], element: ComparePlan | None, changed: FieldSet, removed: FieldSet
) -> None:
    """Differences between the items of one name; several items of one name count as one value."""
    if element is None or (len(old) > 1 and len(new) > 1):
        changed[name] = {}
    elif len(old) == 1 and len(new) == 1:
        _descend(name, element, old[0], new[0], changed, removed)
    elif len(old) > 1:
        changed[name] = element.added(new[0])
    else:
        removed[name] = element.added(old[0])
        changed[name] = {}


def _any_added(value: Any) -> FieldSet:
    if value.__class__ is not dict or not value:
        return {}
    node: FieldSet = {SELF: {}}
    for key, item in value.items():
        node["f:" + key] = _any_added(item) if item.__class__ is dict else {}
    return node


def _any_applied(value: Any) -> FieldSet:
    node: FieldSet = {}
    if value.__class__ is dict:
        for key, item in value.items():
            node["f:" + key] = _any_added(item) if item.__class__ is dict else {}
    return node


def _any_diff(old: Any, new: Any) -> tuple[FieldSet, FieldSet]:
    return _any_map.diff(old, new)


_ANY_PLAN = ComparePlan(dict, _any_added, _any_applied, _any_diff)
_any_map = _map(_ANY_PLAN)
_plans[ANY] = _ANY_PLAN
