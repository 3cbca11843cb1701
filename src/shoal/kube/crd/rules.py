"""The rules of a schema (``x-kubernetes-validations``): compiled once, run on every object.

``self`` is the value at the rule's node and ``oldSelf`` its old value; a rule that uses ``oldSelf`` runs only if there
is an old value, unless it takes it as an optional. A failure on an unchanged value is ignored, like other errors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from shoal.errors import Cause, FieldError, duplicate, forbidden, invalid, required
from shoal.kube.cel import PER_CALL_LIMIT, CompileError, CostExceeded, Env, EvalError, Program, ProgramError, compile
from shoal.kube.cel.declare import Adapter, adapter, declare, escape
from shoal.kube.cel.types import Decl
from shoal.kube.cel.values import NONE, Optional
from shoal.kube.crd.checks import MISSING, Correlated, same
from shoal.kube.crd.fieldpath import FieldPathError, resolve

Schema = Mapping[str, Any]
Interrupted = Callable[[], bool] | None

COST_BUDGET: Final = 10_000_000
_MAX_MESSAGE_BYTES: Final = 5 * 1024
_OUT_OF_BUDGET = "validation failed due to running out of cost budget, no further validation rules will be run"


class ValuelessError(FieldError):
    """A field error that does not repeat its value, because that is a whole object or list."""

    __slots__ = ()

    @property
    def body(self) -> str:
        text = "Duplicate value" if self.cause is Cause.DUPLICATE else "Invalid value"
        return f"{text}: {self.detail}" if self.detail else text


@dataclass(frozen=True, slots=True)
class CompiledRule:
    """One rule. ``fault`` is why it could not be compiled; then there is no program."""

    rule: Mapping[str, Any]
    program: Program | None = None
    message: Program | None = None
    fault: str = ""
    message_fault: str = ""
    field_path: str = ""

    @property
    def uses_old(self) -> bool:
        return self.program is not None and "oldSelf" in self.program.variables

    @property
    def shown(self) -> str:
        """The name of the rule in messages."""
        return (self.rule.get("message") or self.rule.get("rule") or "").strip()


def compile_rule(rule: Mapping[str, Any], root: Decl, schema: Schema) -> CompiledRule:
    """Compile a rule of a node whose values have type ``root``."""
    text = rule.get("rule") or ""
    if not text.strip():
        return CompiledRule(rule)
    env = Env.of_type(root, optional_old=bool(rule.get("optionalOldSelf")))
    try:
        program = compile(text, env)
    except ProgramError as error:
        return CompiledRule(rule, fault=f"program instantiation failed: {error}")
    except CompileError as error:
        return CompiledRule(rule, fault=f"compilation failed: {error}")
    if program.type.kind != "bool":
        return CompiledRule(rule, fault="cel expression must evaluate to a bool")
    message, message_fault = _compile_message(rule.get("messageExpression") or "", env)
    path = ""
    if rule.get("fieldPath"):
        try:
            path = resolve(rule["fieldPath"], schema)[0]
        except FieldPathError:
            path = ""
    return CompiledRule(rule, program, message, "", message_fault, path)


def _compile_message(text: str, env: Env) -> tuple[Program | None, str]:
    if not text:
        return None, ""
    try:
        message = compile(text, env)
    except ProgramError as error:
        return None, f"messageExpression instantiation failed: {error}"
    except CompileError as error:
        return None, f"messageExpression compilation failed: {error}"
    if message.type.kind != "string":
        return None, "messageExpression must evaluate to a string"
    return message, ""


class _Budget:
    """The remaining cost budget for the rules of one object."""

    __slots__ = ("interrupted", "left")

    def __init__(self, left: int, interrupted: Interrupted) -> None:
        self.left = left
        self.interrupted = interrupted


class _Exhausted(Exception):
    """The budget is exhausted; the error is already recorded."""


class SchemaRules:
    """The rules at one place of a schema and below."""

    __slots__ = ("_adapt", "additional", "items", "keys", "properties", "rules", "type")

    def __init__(self, schema: Schema, root: Decl) -> None:
        self.type: str = schema.get("type") or ""
        self.rules = [compile_rule(rule, root, schema) for rule in schema.get("x-kubernetes-validations") or ()]
        lists = any(rule.program is not None and rule.program.compares_lists for rule in self.rules)
        self._adapt: Adapter | None = adapter(schema, lists=lists) if self.rules else None
        self.keys = tuple(schema.get("x-kubernetes-list-map-keys") or ())
        if schema.get("x-kubernetes-list-type") != "map":
            self.keys = ()
        self.properties: dict[str, SchemaRules] = {}
        self.additional: SchemaRules | None = None
        self.items: SchemaRules | None = None

    def validate(self, obj: Any, old: Any, budget: int, interrupted: Interrupted) -> list[FieldError]:
        """Run all rules on an object; ``old`` is None on create."""
        errors: list[FieldError] = []
        was = MISSING if old is None else old
        try:
            self._visit(obj, was, "", was, None, errors, _Budget(budget, interrupted))
        except _Exhausted:
            pass
        return errors

    def _visit(
        self,
        value: Any,
        old: Any,
        path: str,
        correlated: Any,
        nearest: tuple[Any, Any] | None,
        errors: list[FieldError],
        budget: _Budget,
    ) -> None:
        """``correlated`` is the old value for ratcheting; where there is none, ``nearest`` is the pair of new and old
        value closest above. It differs from ``old`` at the root's apiVersion and kind, which are never ratcheted."""
        if value is None:
            return
        if self.rules:
            pair = (value, correlated) if correlated is not MISSING else nearest
            self._run(value, MISSING if old is None else old, path, pair, errors, budget)
        if type(value) is dict:
            self._visit_fields(value, old, path, correlated, nearest, errors, budget)
        elif type(value) is list and self.items is not None:
            before = Correlated(self.keys, old) if self.keys and type(old) is list else None
            above = (value, correlated) if correlated is not MISSING else nearest
            for index, item in enumerate(value):
                was = before.find(item) if before is not None else MISSING
                linked = was if correlated is not MISSING else MISSING
                self.items._visit(item, was, f"{path}[{index}]", linked, above, errors, budget)

    def _visit_fields(
        self,
        value: dict[str, Any],
        old: Any,
        path: str,
        correlated: Any,
        nearest: tuple[Any, Any] | None,
        errors: list[FieldError],
        budget: _Budget,
    ) -> None:
        before: dict[str, Any] = old if type(old) is dict else {}
        above = (value, correlated) if correlated is not MISSING else nearest
        links: dict[str, Any] = correlated if type(correlated) is dict else {}
        for name, item in value.items():
            child = self.properties.get(name)
            if child is not None:
                place = f"{path}.{name}" if path else name
                if not path and name in ("apiVersion", "kind"):
                    child._visit(item, before.get(name, MISSING), place, MISSING, None, errors, budget)
                    continue
            elif self.additional is not None:
                child, place = self.additional, f"{path}[{name}]"
            else:
                continue
            linked = links.get(name, MISSING)
            child._visit(item, before.get(name, MISSING), place, linked, above, errors, budget)

    def _run(
        self, value: Any, old: Any, path: str, pair: tuple[Any, Any] | None, errors: list[FieldError], budget: _Budget
    ) -> None:
        if budget.left <= 0:
            errors.append(invalid(path or "<nil>", self.type, _OUT_OF_BUDGET))
            raise _Exhausted
        try:
            values, optional_values = self._values(value, old)
        except EvalError as error:
            errors.append(invalid(path or "<nil>", self.type, f"{error} converting value"))
            return
        for rule in self.rules:
            if rule.fault:
                errors.append(invalid(path or "<nil>", self.type, f"rule compile error: {rule.fault}"))
                continue
            if rule.program is None or (rule.uses_old and old is MISSING and not rule.rule.get("optionalOldSelf")):
                continue
            given = optional_values if rule.rule.get("optionalOldSelf") else values
            if self._holds(rule, given, path, errors, budget):
                continue
            failure = self._failure(rule, given, value, path, errors, budget)
            if rule.uses_old or pair is None or not same(*pair):
                errors.append(failure)

    def _values(self, value: Any, old: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        adapt = self._adapt
        now = value if adapt is None else adapt(value)
        if old is MISSING:
            return {"self": now}, {"self": now, "oldSelf": NONE}
        before = old if adapt is None else adapt(old)
        return {"self": now, "oldSelf": before}, {"self": now, "oldSelf": Optional(True, before)}

    def _holds(
        self, rule: CompiledRule, values: dict[str, Any], path: str, errors: list[FieldError], budget: _Budget
    ) -> bool:
        """Whether the rule holds; true also if it could not be evaluated, which adds an error."""
        place = path or "<nil>"
        program = rule.program
        if program is None:
            return True
        try:
            found, cost = program.evaluate(values, PER_CALL_LIMIT, budget.interrupted)
            failure: EvalError | None = None
        except EvalError as error:
            found, cost, failure = True, error.cost, error
        if cost > budget.left:
            errors.append(invalid(place, self.type, _OUT_OF_BUDGET))
            raise _Exhausted
        budget.left -= cost
        if failure is None:
            return found is True
        text = str(failure)
        if text.startswith("no such overload"):
            why = "call arguments did not match a supported operator, function or macro signature for rule"
            errors.append(invalid(place, self.type, f"'{text}': {why}: {rule.shown}"))
        elif isinstance(failure, CostExceeded):
            why = "no further validation rules will be run due to call cost exceeds limit for rule"
            errors.append(invalid(place, self.type, f"'{text}': {why}: {rule.shown}"))
            raise _Exhausted
        else:
            errors.append(invalid(place, self.type, f"{text} evaluating rule: {rule.shown}"))
        return True

    def _failure(
        self,
        rule: CompiledRule,
        values: dict[str, Any],
        value: Any,
        path: str,
        errors: list[FieldError],
        budget: _Budget,
    ) -> FieldError:
        place = path
        if rule.field_path:
            place = f"{path}.{rule.field_path}" if path else rule.field_path
        place = place or "<nil>"
        detail = ""
        if rule.message is not None:
            detail = self._message(rule, rule.message, values, place, errors, budget)
        if not detail:
            message = rule.rule.get("message")
            detail = message.strip() if message else f"failed rule: {rule.shown}"
        reason = rule.rule.get("reason")
        if reason == "FieldValueForbidden":
            return forbidden(place, detail)
        if reason == "FieldValueRequired":
            return required(place, detail)
        bare = self.type in ("object", "array")
        if reason == "FieldValueDuplicate":
            return ValuelessError(Cause.DUPLICATE, place) if bare else duplicate(place, value)
        return ValuelessError(Cause.INVALID, place, detail) if bare else invalid(place, value, detail)

    def _message(
        self,
        rule: CompiledRule,
        message: Program,
        values: dict[str, Any],
        place: str,
        errors: list[FieldError],
        budget: _Budget,
    ) -> str:
        """The computed message of the rule; empty if it is unusable."""
        source = rule.rule.get("messageExpression") or ""
        try:
            found, cost = message.evaluate(values, PER_CALL_LIMIT, budget.interrupted)
        except CostExceeded:
            why = "no further validation rules will be run due to call cost exceeds limit for messageExpression"
            errors.append(invalid(place, self.type, f'{why}: "{source}"'))
            raise _Exhausted from None
        except EvalError as error:
            found, cost = "", error.cost
        if cost > budget.left:
            why = "messageExpression evaluation failed due to running out of cost budget"
            errors.append(invalid(place, self.type, f"{why}, no further validation rules will be run"))
            raise _Exhausted
        budget.left -= cost
        text = found.strip() if type(found) is str else ""
        return text if "\n" not in text and len(text.encode("utf-8", "replace")) <= _MAX_MESSAGE_BYTES else ""


def has_rules(schema: Schema) -> bool:
    if schema.get("x-kubernetes-validations"):
        return True
    below = [*(schema.get("properties") or {}).values(), schema.get("items"), schema.get("additionalProperties")]
    return any(isinstance(each, Mapping) and has_rules(each) for each in below)


def compile_rules(schema: Schema, *, resource: bool = True) -> SchemaRules | None:
    """All rules of a schema, or None if there are none."""
    if not has_rules(schema):
        return None
    root = declare(schema, resource=resource)
    return _build(schema, root) if root is not None else None


def _build(schema: Schema, root: Decl) -> SchemaRules:
    made = SchemaRules(schema, root)
    for name, each in (schema.get("properties") or {}).items():
        below = field_type(each, name, root) if has_rules(each) else None
        if below is not None:
            made.properties[name] = _build(each, below)
    items, additional = schema.get("items"), schema.get("additionalProperties")
    if isinstance(items, Mapping) and has_rules(items) and root.elem is not None:
        made.items = _build(items, root.elem)
    if isinstance(additional, Mapping) and has_rules(additional) and root.elem is not None:
        made.additional = _build(additional, root.elem)
    return made


def field_type(schema: Schema, name: str, parent: Decl) -> Decl | None:
    """The type of a field's values: the parent's if it has one for it, else the schema's own."""
    escaped = escape(name)
    if escaped is not None:
        entry = (parent.fields or {}).get(escaped)
        return entry[1] if entry else None
    return declare(schema, resource=bool(schema.get("x-kubernetes-embedded-resource")))
