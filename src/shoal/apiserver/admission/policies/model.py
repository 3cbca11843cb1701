"""Policies and bindings, parsed once per stored revision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from shoal.apiserver.admission.matching import Match
from shoal.errors import ShoalError
from shoal.kube import labels
from shoal.kube.labels import Selector
from shoal.kube.objects import Obj

if TYPE_CHECKING:
    from shoal.apiserver.admission.policies.mutating import Mutation
    from shoal.apiserver.admission.policies.validating import Validation

GROUP = "admissionregistration.k8s.io"
VALIDATING = f"validatingadmissionpolicies.{GROUP}"
VALIDATING_BINDINGS = f"validatingadmissionpolicybindings.{GROUP}"
MUTATING = f"mutatingadmissionpolicies.{GROUP}"
MUTATING_BINDINGS = f"mutatingadmissionpolicybindings.{GROUP}"


class Misconfigured(ShoalError):
    """A policy or a binding has a configuration error."""


@dataclass(frozen=True, slots=True)
class ParamKind:
    group: str
    version: str
    kind: str

    def __str__(self) -> str:
        return f"{self.group}/{self.version}, Kind={self.kind}"


@dataclass(frozen=True, slots=True)
class ParamRef:
    """The parameters of a binding, by name or by label selector."""

    name: str
    namespace: str
    selector: Selector | None
    deny_if_missing: bool


class PolicyBinding:
    """A binding, which puts a policy into force."""

    __slots__ = ("actions", "match", "name", "param_ref", "policy_name")

    def __init__(self, obj: Obj) -> None:
        spec = obj.get("spec") or {}
        self.name: str = obj["metadata"]["name"]
        self.policy_name: str = spec.get("policyName") or ""
        self.actions: tuple[str, ...] = tuple(spec.get("validationActions") or ())
        self.match = Match.of_policy(spec.get("matchResources"))
        self.param_ref = _param_ref(spec.get("paramRef"))


@dataclass(eq=False)
class AdmissionPolicy:
    """A policy with the bindings that put it into force; its expressions are compiled when they are first needed."""

    obj: Obj
    bindings: tuple[PolicyBinding, ...] = field(default=())

    def __post_init__(self) -> None:
        self.name: str = self.obj["metadata"]["name"]
        self.spec: Mapping[str, Any] = self.obj.get("spec") or {}
        self.match = Match.of_policy(self.spec.get("matchConstraints"))
        self.fails = self.spec.get("failurePolicy") != "Ignore"
        self.param_kind = _param_kind(self.spec.get("paramKind"))

    @cached_property
    def validation(self) -> Validation:
        from shoal.apiserver.admission.policies.validating import Validation  # the rule language is large

        return Validation(self)

    @cached_property
    def mutation(self) -> Mutation:
        from shoal.apiserver.admission.policies.mutating import Mutation

        return Mutation(self)


def _param_kind(kind: Mapping[str, Any] | None) -> ParamKind | None:
    if kind is None:
        return None
    group, _, version = (kind.get("apiVersion") or "").rpartition("/")
    return ParamKind(group, version, kind.get("kind") or "")


def _param_ref(reference: Mapping[str, Any] | None) -> ParamRef | None:
    if reference is None:
        return None
    selector = reference.get("selector")
    return ParamRef(
        reference.get("name") or "",
        reference.get("namespace") or "",
        None if selector is None else labels.from_object(selector),
        reference.get("parameterNotFoundAction") == "Deny",
    )
