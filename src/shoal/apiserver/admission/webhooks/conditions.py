"""matchConditions: expressions that decide, after the rules and selectors, whether a hook is called.

Policies have the same expressions. The evaluator is imported with the first write that needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from shoal.apiserver.admission.model import Admission
from shoal.errors import ShoalError
from shoal.kube.objects import Obj

if TYPE_CHECKING:
    from shoal.apiserver.admission.policies.expressions import Conditions as Compiled

Decide = Callable[[dict[str, Any]], tuple[bool, str, str]]
Kind = tuple[str, str, str]


class ConditionsFailed(ShoalError):
    """No condition is false, but at least one could not be evaluated."""


class Conditions:
    """The conditions of one hook."""

    __slots__ = ("_compiled", "_written")

    def __init__(self, conditions: Sequence[Mapping[str, Any]]) -> None:
        self._written = conditions
        self._compiled: Compiled | None = None

    def __bool__(self) -> bool:
        return bool(self._written)

    def hold(
        self, admission: Admission, kind: Kind, resource: Kind, obj: Obj | None, old: Obj | None,
        *, decide: Decide, interrupted: Callable[[], bool],
    ) -> bool:  # fmt: skip
        """Whether all are true. One false condition decides, even if others failed; otherwise a failure is raised."""
        from shoal.apiserver.admission.policies import expressions
        from shoal.kube.cel.admission import Variables, VariableScope

        scope = VariableScope()
        if self._compiled is None:
            self._compiled = expressions.Conditions(self._written, scope)
        subject = expressions.WriteSubject(
            admission, kind, resource, obj, old, namespace=lambda: None, decide=decide, interrupted=interrupted
        )
        try:
            return self._compiled.hold(expressions.Activation(subject, None, Variables((), scope)))
        except expressions.ExpressionFailed as failed:
            raise ConditionsFailed(str(failed)) from None
