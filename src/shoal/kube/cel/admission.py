"""The variables of expressions about requests: match conditions of webhooks, and admission policies.

``object``, ``oldObject`` and ``params`` have any type unless the caller gives one; ``request`` and ``namespaceObject``
have their own types. ``variables`` holds the named expressions of a policy, compiled in order, so that each may use
those before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from shoal.kube.cel import types
from shoal.kube.cel.declare import declare, escape
from shoal.kube.cel.environment import Env, Program, compile
from shoal.kube.cel.errors import CompileError
from shoal.kube.cel.library.conversions import timestamp_from_text
from shoal.kube.cel.types import DYN, STRING, Decl, Type, list_of, map_of, opaque, struct
from shoal.kube.schema.model import Form
from shoal.kube.schema.model import Type as Shape

PER_POLICY_LIMIT: Final = 10_000_000  # cost of all validations of one policy, with one binding and one parameter
CONDITIONS_LIMIT: Final = 2_500_000  # cost of all match conditions together
REQUEST_RESOURCE: Final = "authorizer.requestResource"

_KIND: Final = struct("kubernetes.GroupVersionKind", {"group": STRING, "version": STRING, "kind": STRING})
_RESOURCE: Final = struct("kubernetes.GroupVersionResource", {"group": STRING, "version": STRING, "resource": STRING})
_USER: Final = struct(
    "kubernetes.UserInfo",
    {"username": STRING, "uid": STRING, "groups": list_of(STRING), "extra": map_of(STRING, list_of(STRING))},
)
_REQUEST: Final = struct(
    "kubernetes.AdmissionRequest",
    {
        "kind": _KIND, "resource": _RESOURCE, "subResource": STRING, "requestKind": _KIND,
        "requestResource": _RESOURCE, "requestSubResource": STRING, "name": STRING, "namespace": STRING,
        "operation": STRING, "userInfo": _USER, "dryRun": types.BOOL, "options": DYN,
    },
)  # fmt: skip
_NAMESPACE_META: Final = (
    "name", "generateName", "namespace", "labels", "annotations", "uid", "creationTimestamp",
    "deletionGracePeriodSeconds", "deletionTimestamp", "generation", "resourceVersion", "finalizers",
)  # fmt: skip
_NAMESPACE: Final = struct(
    "kubernetes.Namespace",
    {
        "metadata": struct(
            "kubernetes.NamespaceMetadata",
            {
                "name": STRING, "generateName": STRING, "namespace": STRING, "labels": map_of(STRING, STRING),
                "annotations": map_of(STRING, STRING), "UID": STRING, "creationTimestamp": types.TIMESTAMP,
                "deletionGracePeriodSeconds": types.INT, "deletionTimestamp": types.TIMESTAMP,
                "generation": types.INT, "resourceVersion": STRING, "finalizers": list_of(STRING),
            },
        ),
        "spec": struct("kubernetes.NamespaceSpec", {"finalizers": list_of(STRING)}),
        "status": struct(
            "kubernetes.NamespaceStatus",
            {
                "phase": STRING,
                "conditions": list_of(
                    struct(
                        "kubernetes.NamespaceCondition",
                        {
                            "status": STRING, "type": STRING, "lastTransitionTime": types.TIMESTAMP,
                            "message": STRING, "reason": STRING,
                        },
                    )
                ),
            },
        ),
    },
)  # fmt: skip
_BASE: Final[Mapping[str, Type]] = {"request": _REQUEST, "namespaceObject": _NAMESPACE}
_AUTHORIZER: Final[Mapping[str, Type]] = {
    "authorizer": opaque("kubernetes.authorization.Authorizer"),
    REQUEST_RESOURCE: opaque("kubernetes.authorization.ResourceCheck"),
}


@dataclass(frozen=True, slots=True)
class VariableScope:
    """The variables that an expression may use."""

    params: bool = False
    authorizer: bool = True
    patches: bool = False
    object: Type = DYN
    param: Type = DYN
    variables: Type | None = None

    def env(self) -> Env:
        declared = {**_BASE, "object": self.object, "oldObject": self.object}
        if self.params:
            declared["params"] = self.param
        if self.authorizer:
            declared |= _AUTHORIZER
        if self.variables is not None:
            declared["variables"] = self.variables
        return Env(declared, None, self.patches)


def returning(program: Program, wanted: Sequence[str]) -> str:
    """The error message if an expression's type is not one of those wanted; else empty."""
    found = "null_type" if program.type.kind == "null" else str(program.type)
    if not wanted or found in wanted:
        return ""
    if len(wanted) == 1:
        return f"must evaluate to {wanted[0]} but got {found}"
    return f"must evaluate to one of [{' '.join(wanted)}] but got {found}"


class Variables:
    """The named expressions of a policy: their programs or errors."""

    def __init__(self, variables: Sequence[Mapping[str, Any]], scope: VariableScope) -> None:
        self.programs: dict[str, Program | CompileError] = {}
        known: dict[str, Type] = {}
        for variable in variables:
            name, text = variable.get("name") or "", variable.get("expression") or ""
            env = VariableScope(
                scope.params, scope.authorizer, False, scope.object, scope.param, struct("kubernetes.variables", known)
            ).env()  # fmt: skip
            try:
                program = compile(text, env)
                self.programs[name] = program
                known[name] = _seen_type(program.type)
            except CompileError as error:
                self.programs[name] = error
                known[name] = DYN
        self.type = struct("kubernetes.variables", known)


def _seen_type(found: Type) -> Type:
    """The type of a variable as other expressions see it: dynamic for objects and special types."""
    if found.kind in ("list", "map"):
        return Type(found.kind, found.name, tuple(map(_seen_type, found.params)))
    return DYN if found.kind in ("struct", "opaque", "param", "type") else found


def namespace_value(namespace: Mapping[str, Any]) -> dict[str, Any]:
    """The value of ``namespaceObject`` for a namespace."""
    metadata = {name: namespace["metadata"][name] for name in _NAMESPACE_META if name in namespace["metadata"]}
    if "uid" in metadata:
        metadata["UID"] = metadata.pop("uid")
    _timed(metadata, "creationTimestamp", "deletionTimestamp")
    shown: dict[str, Any] = {"metadata": metadata}
    for name in ("spec", "status"):
        if namespace.get(name):
            shown[name] = dict(namespace[name])
    conditions = (shown.get("status") or {}).get("conditions")
    if conditions:
        shown["status"]["conditions"] = [dict(each) for each in conditions]
        for each in shown["status"]["conditions"]:
            _timed(each, "lastTransitionTime")
    return shown


def _timed(value: dict[str, Any], *names: str) -> None:
    for name in names:
        if value.get(name):
            value[name] = timestamp_from_text(value[name])


def type_of_shape(shape: Shape) -> Type:
    """The type of a built-in kind's objects."""
    return _Shapes().type(shape, shape.name)


def type_of_schema(schema: Mapping[str, Any], name: str, metadata: Shape) -> Type:
    """The type of a custom resource's objects."""
    declared = declare(schema, name, resource=True)
    if declared is None or declared.fields is None:
        return DYN
    declared.fields["metadata"] = ("metadata", Decl(type_of_shape(metadata), 2))
    return declared.type


_SCALARS: Final = {
    Form.STRING: STRING, Form.INTEGER: types.INT, Form.NUMBER: types.DOUBLE, Form.BOOLEAN: types.BOOL,
    Form.BYTES: types.BYTES, Form.TIME: types.TIMESTAMP, Form.MICRO_TIME: types.TIMESTAMP,
}  # fmt: skip


class _Shapes:
    """Types of shapes, which may contain themselves."""

    def __init__(self) -> None:
        self._known: dict[int, Type] = {}

    def type(self, shape: Shape, path: str) -> Type:
        if shape.form is Form.LIST:
            return list_of(self.type(shape.element, f"{path}.@idx"))
        if shape.form is Form.MAP:
            return map_of(STRING, self.type(shape.element, f"{path}.@elem"))
        if shape.form is not Form.STRUCT:
            return _SCALARS.get(shape.form, DYN)
        found = self._known.get(id(shape))
        if found is None:
            found = self._known[id(shape)] = struct(shape.name or path, {})
            assert found.decl is not None and found.decl.fields is not None
            for name, field in shape.fields.items():
                escaped = escape(name)
                if escaped is not None:
                    found.decl.fields[escaped] = (name, Decl(self.type(field.type, f"{path}.{escaped}"), 1))
        return found
