"""Validates the schema of a version as a whole: structure, defaults, keywords, and rules with their cost.

Order matters, because later checks rely on earlier ones: rules are compiled only for a schema that is structural and
whose defaults hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from shoal.errors import Cause, FieldError, forbidden, invalid, not_supported, required
from shoal.kube.cel.cost import MAX
from shoal.kube.cel.declare import MAX_REQUEST_BYTES, declare
from shoal.kube.cel.types import Decl
from shoal.kube.crd.checks import compile_check
from shoal.kube.crd.defaults import default_errors
from shoal.kube.crd.fieldpath import FieldPathError, resolve
from shoal.kube.crd.model import META_FIELDS
from shoal.kube.crd.rules import CompiledRule, compile_rule, field_type
from shoal.kube.crd.schema_rules import extension_errors, keyword_errors, structural_errors, unsupported

Schema = Mapping[str, Any]

EXPRESSION_COST_LIMIT: Final = 10_000_000
SCHEMA_COST_LIMIT: Final = 100_000_000
_REASONS: Final = ("FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired")
_ADVICE = (
    "(try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings "
    "are declared)"
)


def schema_errors(schema: Schema, path: str) -> list[FieldError]:
    """Everything wrong with a well-formed schema document at ``path``."""
    unusable = unsupported(schema)
    errors: list[FieldError] = []
    sound = False
    if not unusable:
        errors += structural_errors(schema, path)
        if not errors:
            errors += default_errors(schema, path)
            sound = not errors
    checker = _Checker(sound)
    checker.visit(_Place(schema, path, root=True))
    errors += checker.errors + checker.rule_errors
    if not errors and unusable:
        errors.append(invalid(path, "", unusable))
    if checker.total > SCHEMA_COST_LIMIT:
        text = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"
        errors += (forbidden(place, text) for _, place in checker.expensive())
        what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema"
        errors.append(forbidden(path, _cost_text(what, checker.total, SCHEMA_COST_LIMIT)))
    if not errors:
        compile_check(schema)
    return errors


def _cost_text(what: str, cost: int, limit: int) -> str:
    times = cost / limit
    if times > 100:
        factor = "more than 100x"
    else:
        factor = f"{times:.6f}x" if times < 1.5 else f"{times:.1f}x"
    return f"{what} exceeds budget by factor of {factor} {_ADVICE}"


class _Place:
    """A node of the schema with properties inherited from its ancestors."""

    __slots__ = ("count", "meta", "no_default", "nested", "parent", "path", "root", "schema", "step", "uncorrelated")

    def __init__(self, schema: Schema, path: str, *, root: bool = False) -> None:
        self.schema = schema
        self.path = path
        self.root = root
        self.meta = False  # inside a resource's type or metadata
        self.no_default: str | None = None  # why it may have no default
        self.nested = False  # under allOf, anyOf, oneOf or not
        self.uncorrelated = ""  # the ancestor from which on old and new values cannot be correlated
        self.count: int | None = 1  # how often this node can occur in an object; None: unbounded
        self.parent: _Place | None = None
        self.step = ""

    def below(self, schema: Schema, suffix: str, step: str, *, nested: bool = False) -> _Place:
        made = _Place(schema, self.path + suffix)
        made.meta, made.no_default, made.uncorrelated = self.meta, self.no_default, self.uncorrelated
        made.nested = self.nested or nested
        made.parent, made.step = self, step
        most = _most_elements(self.schema)
        made.count = None if self.count is None or most is None else min(MAX, self.count * most)
        return made


def _most_elements(schema: Schema) -> int | None:
    kind = schema.get("type")
    if kind == "array":
        limit = schema.get("maxItems")
    elif kind == "object" and schema.get("additionalProperties") is not None:
        limit = schema.get("maxProperties")
    else:
        return 1
    return None if limit is None else max(0, limit)


class _Checker:
    def __init__(self, sound: bool) -> None:
        self.sound = sound
        self.errors: list[FieldError] = []
        self.rule_errors: list[FieldError] = []
        self.total = 0
        self.costs: list[tuple[int, str]] = []
        self.types: dict[int, Decl | None] = {}

    def expensive(self) -> list[tuple[int, str]]:
        """The four most expensive rules."""
        return sorted(self.costs, key=lambda each: -each[0])[:4]

    def visit(self, place: _Place) -> bool:
        """Check a node and all below; return whether their keywords are valid."""
        before = len(self.errors)
        schema, path = place.schema, place.path
        self.errors += keyword_errors(schema, path, meta=place.meta, no_default=place.no_default)
        self.visit_values(place)
        self.visit_fields(place)
        for key in ("not", "allOf", "oneOf", "anyOf"):
            value = schema.get(key)
            if isinstance(value, Mapping):
                self.visit(place.below(value, f".{key}", "", nested=True))
            for index, each in enumerate(value if isinstance(value, list) else ()):
                self.visit(place.below(each, f".{key}[{index}]", "", nested=True))
        items = schema.get("items")
        if isinstance(items, Mapping):
            below = place.below(items, ".items", "@items")
            if schema.get("x-kubernetes-list-type") != "map":
                below.uncorrelated = below.uncorrelated or path
            self.visit(below)
        self.errors += extension_errors(schema, path)
        self.visit_rules(place, before)
        return len(self.errors) == before

    def visit_values(self, place: _Place) -> None:
        additional = place.schema.get("additionalProperties")
        if isinstance(additional, Mapping):
            below = place.below(additional, ".additionalProperties", "@values")
            if place.meta:
                below.no_default = "inside additionalProperties applying to object metadata"
            self.visit(below)

    def visit_fields(self, place: _Place) -> None:
        schema = place.schema
        resource = place.root or bool(schema.get("x-kubernetes-embedded-resource"))
        for name, each in (schema.get("properties") or {}).items():
            below = place.below(each, f".properties[{name}]", name)
            if schema.get("x-kubernetes-map-type") not in (None, "granular", "atomic"):
                below.uncorrelated = below.uncorrelated or place.path
            if resource and name in META_FIELDS:
                below.meta = True
                if place.root:
                    below.no_default = f"in top-level {name}"
            self.visit(below)

    def visit_rules(self, place: _Place, before: int) -> None:
        rules = place.schema.get("x-kubernetes-validations") or ()
        for index, rule in enumerate(rules):
            self.errors += _rule_text_errors(rule, f"{place.path}.x-kubernetes-validations[{index}]", place.schema)
        if not rules or not self.sound or place.nested or len(self.errors) > before:
            return
        root = self.type_of(place)
        if root is None:
            path = f"{place.path}.x-kubernetes-validations"
            text = (
                "internal error: failed to construct type information for x-kubernetes-validations rules: "
                "unable to convert structural schema to CEL declarations"
            )
            self.rule_errors.append(FieldError(Cause.INTERNAL, path, text))
            return
        for index, rule in enumerate(rules):
            compiled = compile_rule(rule, root, place.schema)
            self.check_rule(compiled, place, f"{place.path}.x-kubernetes-validations[{index}]", root)

    def type_of(self, place: _Place) -> Decl | None:
        """The type of a node's values, derived from its parent's, so that each is built once."""
        known = self.types.get(id(place.schema), ...)
        if known is not ...:
            return known
        resource = place.root or bool(place.schema.get("x-kubernetes-embedded-resource"))
        parent = self.type_of(place.parent) if place.parent is not None else None
        made: Decl | None = None
        if parent is not None:
            if place.step in ("@items", "@values"):
                made = parent.elem
            else:
                made = field_type(place.schema, place.step, parent)
        made = made or declare(place.schema, resource=resource)
        self.types[id(place.schema)] = made
        return made

    def check_rule(self, rule: CompiledRule, place: _Place, path: str, root: Decl) -> None:
        errors = self.rule_errors
        most = rule.program.cost.high if rule.program is not None else 0
        count = place.count if place.count is not None else MAX_REQUEST_BYTES // (root.min_size + 1)
        self.charge(min(MAX, most * count), f"{path}.rule", "estimated rule cost")
        if rule.fault:
            errors.append(invalid(f"{path}.rule", rule.rule, rule.fault))
        if rule.message_fault:
            errors.append(invalid(f"{path}.messageExpression", rule.rule, rule.message_fault))
        elif rule.message is not None:
            place_ = f"{path}.messageExpression"
            self.charge(rule.message.cost.high, place_, "estimated messageExpression cost")
        if rule.uses_old:
            if place.uncorrelated:
                text = f"oldSelf cannot be used on the uncorrelatable portion of the schema within {place.uncorrelated}"
                errors.append(invalid(f"{path}.rule", rule.rule.get("rule"), text))
        elif rule.rule.get("optionalOldSelf") is not None:
            text = "may not be set if oldSelf is not used in rule"
            errors.append(invalid(f"{path}.optionalOldSelf", rule.rule["optionalOldSelf"], text))

    def charge(self, cost: int, path: str, what: str) -> None:
        if cost > EXPRESSION_COST_LIMIT:
            self.rule_errors.append(forbidden(path, _cost_text(what, cost, EXPRESSION_COST_LIMIT)))
        self.total = min(MAX, self.total + cost)
        if cost >= SCHEMA_COST_LIMIT // 100:
            self.costs.append((cost, path))


def _rule_text_errors(rule: Mapping[str, Any], path: str, schema: Schema) -> list[FieldError]:
    """The errors of a rule that need no compilation."""
    errors: list[FieldError] = []
    text, message = (rule.get("rule") or "").strip(), rule.get("message") or ""
    if not text:
        errors.append(required(f"{path}.rule", "rule is not specified"))
    elif message and not message.strip():
        errors.append(invalid(f"{path}.message", message, "must be non-empty if specified"))
    elif _has_newlines(message.strip()):
        errors.append(invalid(f"{path}.message", message, "must not contain line breaks"))
    elif _has_newlines(text) and not message.strip():
        errors.append(required(f"{path}.message", "message must be specified if rule contains line breaks"))
    computed = rule.get("messageExpression") or ""
    if computed and not computed.strip():
        text = "messageExpression must be non-empty if specified"
        errors.append(required(f"{path}.messageExpression", text))
    reason = rule.get("reason")
    if reason is not None and reason not in _REASONS:
        errors.append(not_supported(f"{path}.reason", reason, _REASONS))
    field_path = rule.get("fieldPath") or ""
    if field_path and not field_path.strip():
        errors.append(invalid(f"{path}.fieldPath", field_path, "must be non-empty if specified"))
    if _has_newlines(field_path):
        errors.append(invalid(f"{path}.fieldPath", field_path, "must not contain line breaks"))
    if field_path:
        try:
            resolve(field_path, schema)
        except FieldPathError:
            errors.append(invalid(f"{path}.fieldPath", field_path, "must be a valid path"))
    return errors


def _has_newlines(text: str) -> bool:
    return "\n" in text or "\r" in text
