"""Evaluates the expressions of policies: their variables, and their cost budget."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from shoal.apiserver.admission.model import Admission
from shoal.apiserver.admission.webhooks.review import request_of, user_info
from shoal.errors import ShoalError
from shoal.kube.cel import PER_CALL_LIMIT, CompileError, EvalError, Program, compile
from shoal.kube.cel.admission import (
    CONDITIONS_LIMIT,
    REQUEST_RESOURCE,
    Variables,
    VariableScope,
    returning,
)
from shoal.kube.cel.library.authorization import Authorizer, Decide, ResourceCheck
from shoal.kube.cel.values import Lazy
from shoal.kube.objects import Obj

Kind = tuple[str, str, str]  # group, version, kind
_EXHAUSTED: Final = "validation failed due to running out of cost budget, no further validation rules will be run"


class ExpressionFailed(ShoalError):
    """An expression could not be evaluated for this write."""


class BudgetExhausted(ExpressionFailed):
    """The expressions of a policy exceed their cost budget."""

    def __init__(self) -> None:
        super().__init__(_EXHAUSTED)


class Expression:
    """A compiled expression, or its compile error: an older server may have accepted it."""

    __slots__ = ("fault", "program", "text")

    def __init__(self, text: str, scope: VariableScope, returns: Sequence[str]) -> None:
        self.text = text
        self.program: Program | None = None
        try:
            self.program = compile(text, scope.env())
            self.fault = returning(self.program, returns)
        except CompileError as error:
            self.fault = f"compilation failed: {error}"


class WriteSubject:
    """One write as expressions see it, in one version; shared by all policies that ask for that version."""

    __slots__ = ("_decide", "_interrupted", "_namespace", "admission", "kind", "obj", "old", "resource", "shared")

    def __init__(
        self,
        admission: Admission,
        kind: Kind,
        resource: Kind,
        obj: Obj | None,
        old: Obj | None,
        *,
        namespace: Callable[[], Any],
        decide: Decide,
        interrupted: Callable[[], bool],
    ) -> None:
        self.admission = admission
        self.kind = kind
        self.resource = resource
        self.obj = obj
        self.old = old
        self.shared: dict[str, Any] = {}
        self._namespace = namespace
        self._decide = decide
        self._interrupted = interrupted

    def value(self, name: str) -> Any:
        """``request``, ``namespaceObject`` or the authorizer, made when first asked for."""
        if name not in self.shared:
            self.shared[name] = self._make(name)
        return self.shared[name]

    @property
    def interrupted(self) -> Callable[[], bool]:
        return self._interrupted

    def _make(self, name: str) -> Any:
        admission = self.admission
        if name == "request":
            return request_of(admission, self.kind, self.resource)
        if name == "namespaceObject":
            return self._namespace()
        if name == "authorizer":
            return Authorizer(self._decide, user_info(admission.user))
        asked = admission.served.resource
        attributes = {
            "group": asked.group, "resource": asked.plural, "subresource": admission.subresource,
            "namespace": admission.namespace, "name": admission.name,
        }  # fmt: skip
        return ResourceCheck(self.value("authorizer"), {key: text for key, text in attributes.items() if text})


class Activation(Mapping[str, Any]):
    """The values of an expression's variables, for one write, binding and parameter."""

    __slots__ = ("_charged", "_computed", "_programs", "_spent", "_values", "namespace_hidden", "subject")

    _SHARED: Final = frozenset({"request", "namespaceObject", "authorizer", REQUEST_RESOURCE})

    def __init__(self, subject: WriteSubject, params: Obj | None, variables: Variables) -> None:
        self.subject = subject
        self._programs = variables.programs
        self._computed: dict[str, tuple[Any, int]] = {}  # value or error, cost
        self._charged: set[str] = set()
        self._spent = 0
        self.namespace_hidden = False  # match conditions do not see it
        self._values: dict[str, Any] = {
            "object": subject.obj,
            "oldObject": subject.old,
            "params": params,
            "variables": Lazy(self._programs, self._variable),
        }

    def __getitem__(self, name: str) -> Any:
        if name not in self._SHARED:
            return self._values[name]
        return None if name == "namespaceObject" and self.namespace_hidden else self.subject.value(name)

    def __contains__(self, name: object) -> bool:
        return name in self._values or name in self._SHARED

    def __iter__(self) -> Any:
        return iter((*self._values, *self._SHARED))

    def __len__(self) -> int:
        return len(self._values) + len(self._SHARED)

    def begin(self) -> None:
        """A new round of expressions, in which every variable costs again when it is first used."""
        self._charged.clear()

    def spent(self) -> int:
        """The cost of variables since the last call."""
        spent, self._spent = self._spent, 0
        return spent

    def _variable(self, name: str) -> Any:
        if name not in self._computed:
            self._computed[name] = self._compute(name)
        value, cost = self._computed[name]
        if name not in self._charged:
            self._charged.add(name)
            self._spent += cost
        if isinstance(value, EvalError):
            raise value
        return value

    def _compute(self, name: str) -> tuple[Any, int]:
        program = self._programs[name]
        if isinstance(program, CompileError):
            return EvalError(f'composited variable "{name}" fails to compile: compilation failed: {program}'), 0
        try:
            return program.evaluate(self, PER_CALL_LIMIT, self.subject.interrupted)
        except EvalError as error:
            return EvalError(f'composited variable "{name}" fails to evaluate: {error}'), error.cost


class CostBudget:
    """The remaining cost budget of a round of expressions."""

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left

    def evaluate(self, expression: Expression, activation: Activation) -> Any:
        """The value; ``ExpressionFailed`` if there is none, ``BudgetExhausted`` if the round must end."""
        if expression.fault or expression.program is None:
            raise ExpressionFailed(f"compilation error: {expression.fault}")
        failure: EvalError | None = None
        value: Any = None
        try:
            value, cost = expression.program.evaluate(activation, PER_CALL_LIMIT, activation.subject.interrupted)
        except EvalError as error:
            failure, cost = error, error.cost
        self.left -= activation.spent() + cost
        if self.left < 0:
            raise BudgetExhausted
        if failure is not None:
            raise ExpressionFailed(f"expression '{expression.text}' resulted in error: {failure}")
        return value


class Conditions:
    """matchConditions of a policy."""

    __slots__ = ("_expressions",)

    def __init__(self, conditions: Sequence[Mapping[str, Any]], scope: VariableScope) -> None:
        texts = [each.get("expression") or "" for each in conditions]
        self._expressions = [Expression(text, scope, ("bool",)) for text in texts]

    def hold(self, activation: Activation) -> bool:
        """Whether all are true. One false condition decides; otherwise a failure raises ``ExpressionFailed``."""
        if not self._expressions:
            return True
        activation.begin()
        activation.namespace_hidden = True
        try:
            results, errors = self._results(activation)
        finally:
            activation.namespace_hidden = False
        if False in results:
            return False
        if errors:
            raise ExpressionFailed(errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]")
        return True

    def _results(self, activation: Activation) -> tuple[list[Any], list[str]]:
        budget, results, errors = CostBudget(CONDITIONS_LIMIT), list[Any](), list[str]()
        for expression in self._expressions:
            try:
                results.append(budget.evaluate(expression, activation))
            except BudgetExhausted:
                raise
            except ExpressionFailed as error:
                errors.append(str(error))
        return results, errors
