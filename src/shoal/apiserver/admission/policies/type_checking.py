"""Type-checks policy expressions against the kinds they match, and reports the result in the policy's status.

Expressions are written for objects of any type; here they are checked against the types of the kinds that the rules
name. The findings are warnings: the policy still runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from shoal.apiserver.admission.policies.model import AdmissionPolicy
from shoal.apiserver.context import Core
from shoal.apiserver.effects import NOTHING, Extra
from shoal.apiserver.registry import Served
from shoal.kube.objects import Obj

if TYPE_CHECKING:
    from shoal.kube.cel.admission import VariableScope

_MAX_KINDS = 10


class TypeChecks:
    """The ``Effects`` of writing a ValidatingAdmissionPolicy: writes the result into its status."""

    before_validation = False

    def __init__(self, core: Core) -> None:
        self._core = core

    def on_create(self, obj: Obj) -> Extra:
        self._check(obj)
        return NOTHING

    def on_update(self, new: Obj, old: Obj) -> Extra:
        if new["metadata"].get("generation") != old["metadata"].get("generation"):
            self._check(new)
        return NOTHING

    def on_delete(self, old: Obj) -> Extra:
        return NOTHING

    def _check(self, obj: Obj) -> None:
        status = dict(obj.get("status") or {})
        status["observedGeneration"] = obj["metadata"].get("generation", 1)
        warnings = self.warnings(obj)
        status["typeChecking"] = {"expressionWarnings": warnings} if warnings else {}
        obj["status"] = status

    def warnings(self, obj: Obj) -> list[dict[str, str]]:
        """The ExpressionWarnings of a policy."""
        policy = AdmissionPolicy(obj)
        kinds = list(self._kinds(policy.spec.get("matchConstraints") or {}))
        found: list[dict[str, str]] = []
        for place, validation in enumerate(policy.spec.get("validations") or ()):
            for name in ("expression", "messageExpression"):
                text = validation.get(name) or ""
                warning = self._complaints(policy, kinds, text) if text else ""
                if warning:
                    found.append({"fieldRef": f"spec.validations[{place}].{name}", "warning": warning})
        return found

    def _complaints(self, policy: AdmissionPolicy, kinds: list[Served], text: str) -> str:
        from shoal.kube.cel import CompileError, compile

        complaints = []
        for served in kinds:
            try:
                compile(text, self._scope(policy, served).env())
            except CompileError as error:
                resource = served.resource
                complaints.append(f"{resource.group}/{resource.version}, Kind={resource.kind}: {error}\n")
        return "\n".join(complaints)

    def _scope(self, policy: AdmissionPolicy, served: Served) -> VariableScope:
        from shoal.kube.cel.admission import Variables, VariableScope
        from shoal.kube.cel.types import DYN

        param = DYN
        if policy.param_kind is not None:
            kind = policy.param_kind
            known = self._core.registry.by_kind(kind.group, kind.version, kind.kind)
            param = DYN if known is None else _type_of(known)
        scope = VariableScope(params=policy.param_kind is not None, object=_type_of(served), param=param)
        return replace(scope, variables=Variables(policy.spec.get("variables") or (), scope).type)

    def _kinds(self, match: Mapping[str, Any]) -> Iterator[Served]:
        """The kinds that the rules name without wildcards, in the order of group, version and kind."""
        found: dict[tuple[str, str, str], Served] = {}
        for rule in match.get("resourceRules") or ():
            groups, versions = rule.get("apiGroups") or (), rule.get("apiVersions") or ()
            if any("*" in text for text in (*groups, *versions)):
                continue
            resources = [text for text in rule.get("resources") or () if "*" not in text and "/" not in text]
            count = 0
            for group in sorted(groups):
                for version in sorted(versions):
                    for resource in sorted(resources):
                        served = self._core.registry.get(group, version, resource)
                        if served is not None and count < _MAX_KINDS:
                            found[group, version, served.resource.kind] = served
                            count += 1
        for name in sorted(found):
            yield found[name]


def _type_of(served: Served) -> Any:
    from shoal.kube.cel.admission import type_of_schema, type_of_shape

    if served.crd is None:
        return type_of_shape(served.type)
    structural = served.crd.version.structural
    return type_of_schema(structural.schema, served.resource.kind, structural.type.fields["metadata"].type)
