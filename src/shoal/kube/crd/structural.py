"""One compiled schema of a custom resource: prunes, defaults and validates objects of that version.

The order of a write is ``prune`` → ``default`` → (server: metadata, generation) → ``validate``. Compiling costs
milliseconds for a large schema, so a definition's schemas are compiled when it is established and kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from shoal.errors import Cause, FieldError, invalid
from shoal.kube.crd import model
from shoal.kube.crd.checks import MISSING, Check, compile_check, same
from shoal.kube.crd.extras import list_errors, resource_errors
from shoal.kube.crd.model import SchemaNode
from shoal.kube.crd.rules import COST_BUDGET, SchemaRules, compile_rules
from shoal.kube.objects import Obj
from shoal.kube.schema.model import Type

Schema = Mapping[str, Any]

_BLOCKING = frozenset({Cause.NOT_SUPPORTED, Cause.REQUIRED, Cause.TOO_LONG, Cause.TOO_MANY, Cause.TYPE_INVALID})
_NOT_CHECKED = (
    "some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation"
)


class Structural:
    """A structural schema ready for use. ``schema`` must have passed ``validate_crd``."""

    __slots__ = ("_check", "_node", "_rules", "_status_check", "schema", "type")

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.type: Type = model.type_of_schema(schema, root=True)
        self._node = SchemaNode(schema, root=True)
        self._check = compile_check(schema)
        status = (schema.get("properties") or {}).get("status")
        self._status_check = compile_check(status) if status is not None else None
        self._rules: SchemaRules | None = compile_rules(schema)

    def prune(self, obj: Obj) -> list[str]:
        """Remove unknown fields from ``obj``, in place; return their sorted paths. Under strict validation each becomes
        ``unknown field "spec.foo"``."""
        unknown: list[str] = []
        model.prune(obj, self._node, "", unknown)
        unknown.sort()
        return unknown

    def default(self, obj: Obj) -> None:
        """Write defaults into ``obj``, in place, and remove nulls that are not allowed."""
        model.fill(obj, self._node)

    def validate(
        self, obj: Obj, old: Obj | None = None, *, interrupted: Callable[[], bool] | None = None
    ) -> list[FieldError]:
        """All errors of ``obj``. With ``old``, errors in unchanged parts are ignored, and rules
        that compare with ``oldSelf`` run. ``interrupted`` may stop rules that take too long."""
        return self._validate(self._check, obj, old, "", interrupted)

    def validate_status(self, obj: Obj, old: Obj, *, interrupted: Callable[[], bool] | None = None) -> list[FieldError]:
        """Like ``validate`` for the path ``/status``: checks the values of the status only; rules run on the whole
        object."""
        return self._validate(self._status_check, obj, old, "status", interrupted)

    def _validate(
        self, check: Check | None, obj: Obj, old: Obj | None, base: str, interrupted: Callable[[], bool] | None
    ) -> list[FieldError]:
        errors: list[FieldError] = []
        value = obj if not base else obj.get(base, MISSING)
        was = MISSING if old is None else old if not base else old.get(base, MISSING)
        if check is not None and value is not MISSING:
            check(value, "", errors, was)
            if errors and was is not MISSING and same(value, was):
                errors.clear()
            if errors:
                errors = [_placed(error, base) for error in errors]
        node = self._node
        if not base and node.deep_resources:
            errors += resource_errors(obj, node, "")
        if node.deep_lists:
            found = list_errors(obj, node, "")
            if found and (old is None or not list_errors(old, node, "")):
                errors += found
        if self._rules is not None:
            if any(error.cause in _BLOCKING for error in errors):
                errors.append(invalid("<nil>", None, _NOT_CHECKED))
            else:
                errors += self._rules.validate(obj, old, COST_BUDGET, interrupted)
        return errors


def _placed(error: FieldError, base: str) -> FieldError:
    """Add the path of the checked value to its errors; errors without a position belong to the whole."""
    path = error.field.removeprefix(".")
    if not base:
        return error if path and path == error.field else replace(error, field=path or "<nil>")
    return replace(error, field=f"{base}.{path}" if path else base)
