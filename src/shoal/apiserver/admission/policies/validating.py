"""ValidatingAdmissionPolicy: evaluates the validations of a policy for one write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from shoal.apiserver.admission.policies.expressions import (
    Activation,
    BudgetExhausted,
    Conditions,
    CostBudget,
    Expression,
    ExpressionFailed,
    WriteSubject,
)
from shoal.apiserver.admission.policies.model import AdmissionPolicy
from shoal.kube.cel.admission import PER_POLICY_LIMIT, Variables, VariableScope
from shoal.kube.objects import Obj

_MAX_MESSAGE: Final = 5 * 1024
_MAX_ANNOTATION: Final = 10 * 1024


@dataclass(frozen=True, slots=True)
class ValidationFailure:
    """A validation that is false, or could not be evaluated."""

    place: int  # among the policy's validations
    message: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ValidationOutcome:
    findings: tuple[ValidationFailure, ...] = ()
    annotations: tuple[tuple[str, str], ...] = ()
    annotation_faults: tuple[str, ...] = ()


_NOTHING: Final = ValidationOutcome()


class _Check:
    """One validation."""

    __slots__ = ("condition", "fallback", "message", "reason")

    def __init__(self, validation: Mapping[str, Any], scope: VariableScope) -> None:
        text = validation.get("expression") or ""
        self.condition = Expression(text, scope, ("bool",))
        written = validation.get("messageExpression") or ""
        self.message = Expression(written, replace(scope, authorizer=False), ("string",)) if written else None
        self.fallback = (validation.get("message") or "").strip() or f"failed expression: {text.strip()}"
        self.reason: str = validation.get("reason") or "Invalid"


class Validation:
    """The compiled expressions of a policy."""

    def __init__(self, policy: AdmissionPolicy) -> None:
        spec = policy.spec
        self._fails = policy.fails
        scope = VariableScope(params=policy.param_kind is not None)
        self._variables = Variables(spec.get("variables") or (), scope)
        scope = replace(scope, variables=self._variables.type)
        self._conditions = Conditions(spec.get("matchConditions") or (), scope)
        self._checks = [_Check(each, scope) for each in spec.get("validations") or ()]
        self._annotations = [
            (each.get("key") or "", Expression(each.get("valueExpression") or "", scope, ("string", "null_type")))
            for each in spec.get("auditAnnotations") or ()
        ]

    def find(self, subject: WriteSubject, params: Obj | None) -> ValidationOutcome:
        """The failed validations. Expression errors count as failures unless the policy ignores them."""
        activation = Activation(subject, params, self._variables)
        try:
            if not self._conditions.hold(activation):
                return _NOTHING
            activation.begin()
            findings = self._findings(activation)
            activation.begin()
            annotations, faults = self._annotate(activation)
        except ExpressionFailed as error:
            return ValidationOutcome((ValidationFailure(0, str(error)),)) if self._fails else _NOTHING
        return ValidationOutcome(tuple(findings), tuple(annotations), tuple(faults))

    def _findings(self, activation: Activation) -> list[ValidationFailure]:
        budget = CostBudget(PER_POLICY_LIMIT)
        findings: list[ValidationFailure] = []
        broken: list[tuple[int, _Check]] = []
        for place, check in enumerate(self._checks):
            try:
                if budget.evaluate(check.condition, activation) is not True:
                    broken.append((place, check))
            except BudgetExhausted:
                raise
            except ExpressionFailed as error:
                if self._fails:
                    findings.append(ValidationFailure(place, str(error)))
        activation.begin()
        for place, check in broken:
            try:
                findings.append(ValidationFailure(place, _message(check, activation, budget), check.reason))
            except BudgetExhausted as error:
                if self._fails:
                    findings.append(ValidationFailure(place, f"failed messageExpression: {error}"))
        findings.sort(key=lambda finding: finding.place)
        return findings

    def _annotate(self, activation: Activation) -> tuple[list[tuple[str, str]], list[str]]:
        budget = CostBudget(PER_POLICY_LIMIT)
        annotations: list[tuple[str, str]] = []
        faults: list[str] = []
        for key, expression in self._annotations:
            try:
                value = budget.evaluate(expression, activation)
            except BudgetExhausted:
                raise
            except ExpressionFailed as error:
                if self._fails:
                    faults.append(str(error))
                continue
            text = value.strip() if isinstance(value, str) else ""
            if text:
                annotations.append((key, text[:_MAX_ANNOTATION]))
        return annotations, faults


def _message(check: _Check, activation: Activation, budget: CostBudget) -> str:
    """The result of messageExpression if it is a usable line, else the policy's message, else the expression."""
    if check.message is None:
        return check.fallback
    try:
        made = budget.evaluate(check.message, activation)
    except BudgetExhausted:
        raise
    except ExpressionFailed:
        return check.fallback
    text = made.strip() if isinstance(made, str) else ""
    if not text or "\n" in text or len(text.encode()) > _MAX_MESSAGE:
        return check.fallback
    return text
