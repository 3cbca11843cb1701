"""Turns the results of policies into errors, warnings and audit annotations, worded as in Kubernetes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from shoal.apiserver.admission.model import Admission
from shoal.apiserver.admission.policies.model import AdmissionPolicy, PolicyBinding
from shoal.errors import ApiError, Forbidden, Invalid, ShoalError, TooLarge

if TYPE_CHECKING:
    from shoal.apiserver.admission.policies.validating import ValidationOutcome

_FAILURES = "validation.policy.admission.k8s.io/validation_failure"
_MAX_FAILURES = 50  # in one note
_REASONS: dict[str, type[ApiError]] = {"Forbidden": Forbidden, "RequestEntityTooLarge": TooLarge}


class MutationDenied(Forbidden):
    """A mutation failed and its policy fails closed."""

    reason = "Invalid"


class ValidationRefusal:
    """Raises the first denial; warnings are sent in any case."""

    __slots__ = ("_admission", "_first")

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self._first: tuple[str, str] | None = None

    def misconfigured(self, policy: AdmissionPolicy, binding: PolicyBinding | None, error: ShoalError) -> None:
        if policy.fails:
            what = "policy" if binding is None else "binding"
            self._deny(policy, binding, f"failed to configure {what}: {error}", "")

    def add(self, policy: AdmissionPolicy, binding: PolicyBinding, outcome: ValidationOutcome) -> None:
        for finding in outcome.findings:
            if "Deny" in binding.actions:
                self._deny(policy, binding, finding.message, finding.reason)
            if "Warn" in binding.actions:
                self._admission.warnings.append(
                    f"Validation failed for ValidatingAdmissionPolicy '{policy.name}' with binding '{binding.name}': "
                    f"{finding.message}"
                )
        for fault in outcome.annotation_faults:
            self._deny(policy, binding, fault, "")

    def _deny(self, policy: AdmissionPolicy, binding: PolicyBinding | None, message: str, reason: str) -> None:
        if self._first is None:
            bound = f" with binding '{binding.name}'" if binding is not None else ""
            self._first = f"ValidatingAdmissionPolicy '{policy.name}'{bound} denied request: {message}", reason

    def raise_if_any(self) -> None:
        if self._first is not None:
            message, reason = self._first
            denied = self._admission.denied(message)
            cls = _REASONS.get(reason, Invalid)
            raise cls(denied.message, details=denied.details, causes=[{"message": message}])


class MutationRefusal:
    """Failures that the policies do not ignore: the first is raised, the rest become its causes."""

    __slots__ = ("_admission", "_faults")

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self._faults: list[tuple[str, type[ApiError]]] = []

    def misconfigured(self, policy: AdmissionPolicy, binding: PolicyBinding | None, error: ShoalError) -> None:
        if policy.fails:
            what = "policy" if binding is None else "binding"
            text = f"failed to configure {what}: {error}"
            named = f"'{policy.name}' with binding '{binding.name}'" if binding is not None else f'"{policy.name}"'
            self._faults.append((f"policy {named} denied request: {text}", Forbidden))

    def add(self, policy: AdmissionPolicy, binding: PolicyBinding, message: str) -> None:
        if policy.fails:
            text = f"policy '{policy.name}' with binding '{binding.name}' denied request: {message}"
            self._faults.append((text, MutationDenied))

    def raise_if_any(self) -> None:
        if self._faults:
            message, cls = self._faults[0]
            causes = [{"message": text} for text, _ in self._faults]
            raise cls(message, details=self._admission.denied("").details, causes=causes)


class Audit:
    """Audit annotations: those that policies define, and the failed validations."""

    __slots__ = ("_admission", "_failures", "_notes")

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self._notes: dict[str, list[str]] = {}  # of the policy at hand, by key
        self._failures: list[dict[str, object]] = []

    def begin(self, policy: AdmissionPolicy) -> None:
        self._notes = {}

    def add(self, policy: AdmissionPolicy, binding: PolicyBinding, outcome: ValidationOutcome) -> None:
        for key, text in outcome.annotations:
            texts = self._notes.setdefault(key, [])
            if text not in texts:
                texts.append(text)
        if "Audit" in binding.actions:
            for finding in outcome.findings:
                self._failures.append(
                    {
                        "message": finding.message,
                        "policy": policy.name,
                        "binding": binding.name,
                        "expressionIndex": finding.place,
                        "validationActions": list(binding.actions),
                    }
                )

    def publish(self, policy: AdmissionPolicy) -> None:
        for key, texts in self._notes.items():
            self._admission.annotations[f"{policy.name}/{key}"] = ", ".join(texts)

    def publish_failures(self) -> None:
        if self._failures:
            self._admission.annotations[_FAILURES] = orjson.dumps(self._failures[:_MAX_FAILURES]).decode()
