"""MutatingAdmissionPolicy: applies the mutations of a policy to an object."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from shoal.apiserver.admission.policies.expressions import (
    Activation,
    Conditions,
    CostBudget,
    Expression,
    ExpressionFailed,
    WriteSubject,
)
from shoal.apiserver.admission.policies.model import AdmissionPolicy
from shoal.apiserver.admission.policies.patches import PatchFailed, applied, patched
from shoal.kube.cel.admission import PER_POLICY_LIMIT, Variables, VariableScope
from shoal.kube.objects import Obj
from shoal.kube.schema.model import Type

_VALUES: Final = {"ApplyConfiguration": ("Object",), "JSONPatch": ("list(JSONPatch)",)}
_FIELDS: Final = {"ApplyConfiguration": "applyConfiguration", "JSONPatch": "jsonPatch"}

Place = tuple[str, str, str, str]  # policy, binding, namespace and name of the parameter
Settle = Callable[[Obj, bool], None]  # makes a changed object canonical; whether unknown fields are an error


@dataclass(slots=True)
class MutationMemory:
    """State of one write between calls: the policies to run again if later plugins change the object."""

    done: set[Place] = field(default_factory=set)  # policies that may run again
    to_repeat: set[Place] = field(default_factory=set)
    left: bytes = b""  # the object as the last policy left it

    def changed(self) -> None:
        self.to_repeat |= self.done
        self.done.clear()


class Mutation:
    """The compiled expressions of a policy."""

    def __init__(self, policy: AdmissionPolicy) -> None:
        spec = policy.spec
        scope = VariableScope(params=policy.param_kind is not None)
        self._variables = Variables(spec.get("variables") or (), scope)
        scope = replace(scope, variables=self._variables.type)
        self._fails = policy.fails
        self._conditions = Conditions(spec.get("matchConditions") or (), scope)
        self._patches = [_patch(each, replace(scope, patches=True)) for each in spec.get("mutations") or ()]
        self.repeats = spec.get("reinvocationPolicy") == "IfNeeded"

    def concerns(self, subject: WriteSubject, params: Obj | None) -> bool:
        """Whether the match conditions hold; ``ExpressionFailed`` if evaluation fails and the policy fails closed."""
        try:
            return self._conditions.hold(Activation(subject, params, self._variables))
        except ExpressionFailed:
            if self._fails:
                raise
            return False

    def apply(self, subject: WriteSubject, params: Obj | None, type_: Type, settle: Settle) -> list[str]:
        """Change ``subject.obj``, one mutation after the other; return the errors of those that failed."""
        faults: list[str] = []
        for kind, expression in self._patches:
            obj = subject.obj
            if obj is None:
                break
            activation = Activation(subject, params, self._variables)
            try:
                value = CostBudget(PER_POLICY_LIMIT).evaluate(expression, activation)
                if kind == "ApplyConfiguration":
                    made = applied(obj, value, type_)
                else:
                    made = patched(obj, value)
            except (ExpressionFailed, PatchFailed) as error:
                text = str(error)
                faults.append(text.removeprefix("compilation error: ") if expression.fault else text)
                continue
            if made is not obj:
                settle(made, kind == "JSONPatch")
                subject.obj = made
        return faults


def _patch(mutation: Mapping[str, Any], scope: VariableScope) -> tuple[str, Expression]:
    kind = mutation.get("patchType") or ""
    text = (mutation.get(_FIELDS.get(kind, "")) or {}).get("expression") or ""
    return kind, Expression(text, scope, _VALUES.get(kind, ()))
