"""Webhooks, parsed from their configurations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from shoal.apiserver.admission.matching import Match
from shoal.apiserver.admission.webhooks.conditions import Conditions
from shoal.apiserver.admission.webhooks.review import VERSIONS
from shoal.apiserver.admission.webhooks.target import HookTarget, target_of
from shoal.kube.objects import Obj

MUTATING = "mutatingwebhookconfigurations.admissionregistration.k8s.io"
VALIDATING = "validatingwebhookconfigurations.admissionregistration.k8s.io"
_DEFAULT_TIMEOUT_S = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Hook:
    """One webhook of a configuration."""

    id: tuple[str, str, int]  # configuration, name, and its place among those of the same name
    configuration: str
    name: str
    target: HookTarget
    match: Match
    conditions: Conditions
    timeout_s: float
    ignores_failure: bool
    dry_run: bool  # can be called for dry runs
    again: bool  # called again when later hooks have changed the object
    version: str  # AdmissionReview versions it supports; empty: none that this server knows


def hooks_of(configuration: Obj) -> tuple[Hook, ...]:
    """The hooks of a configuration in their order."""
    name = configuration["metadata"]["name"]
    seen: dict[str, int] = {}
    hooks = []
    for hook in configuration.get("webhooks") or ():
        place = seen[hook["name"]] = seen.get(hook["name"], -1) + 1
        hooks.append(_hook(hook, name, place))
    return tuple(hooks)


def _hook(hook: Mapping[str, Any], configuration: str, place: int) -> Hook:
    return Hook(
        id=(configuration, hook["name"], place),
        configuration=configuration,
        name=hook["name"],
        target=target_of(hook.get("clientConfig") or {}),
        match=Match.of_webhook(hook),
        conditions=Conditions(hook.get("matchConditions") or ()),
        timeout_s=float(hook.get("timeoutSeconds") or _DEFAULT_TIMEOUT_S),
        ignores_failure=hook.get("failurePolicy") == "Ignore",
        dry_run=hook.get("sideEffects") in ("None", "NoneOnDryRun"),
        again=hook.get("reinvocationPolicy") == "IfNeeded",
        version=_version(hook.get("admissionReviewVersions") or ()),
    )


def _version(versions: Iterable[str]) -> str:
    return next((version for version in versions if version in VERSIONS), "")
