"""StatefulSet: defaults, claim templates and the few fields that may change."""

from __future__ import annotations

from typing import Final

from shoal.errors import FieldError, invalid, not_supported, required
from shoal.kube.kinds.apps.claims import default_claim_template
from shoal.kube.kinds.apps.workload import (
    check_collision_count,
    check_counters,
    check_long_running,
    check_selector,
    check_template_labels,
    default_template,
    template_warnings_of,
)
from shoal.kube.kinds.checks import (
    Errors,
    check_int_or_percent,
    check_nonnegative,
    check_not_above_100_percent,
    check_syntax,
    label_name,
)
from shoal.kube.kinds.common import amount, check_frozen, check_nonnegative_fields, child, read, spec_of
from shoal.kube.kinds.core.claims import check_claim_spec
from shoal.kube.kinds.core.pod import validate_pod_template
from shoal.kube.names import is_dns1123_label
from shoal.kube.objects import Obj
from shoal.kube.rules import KindRules

_COUNTERS: Final = (
    "replicas",
    "readyReplicas",
    "currentReplicas",
    "updatedReplicas",
    "availableReplicas",
    "observedGeneration",
    "collisionCount",
)
_FROZEN: Final = ("selector", "volumeClaimTemplates", "serviceName", "podManagementPolicy")
_RETENTION: Final = ("Delete", "Retain")


def _default(obj: Obj) -> None:
    spec = spec_of(obj)
    if not spec.get("podManagementPolicy"):
        spec["podManagementPolicy"] = "OrderedReady"
    strategy = child(spec, "updateStrategy")
    if not strategy.get("type"):
        strategy["type"] = "RollingUpdate"
        child(strategy, "rollingUpdate")
    rolling = strategy.get("rollingUpdate")
    if strategy["type"] == "RollingUpdate" and rolling is not None:
        rolling.setdefault("partition", 0)
        rolling.setdefault("maxUnavailable", 1)
    retention = child(spec, "persistentVolumeClaimRetentionPolicy")
    for name in ("whenDeleted", "whenScaled"):
        if not retention.get(name):
            retention[name] = "Retain"
    spec.setdefault("replicas", 1)
    spec.setdefault("revisionHistoryLimit", 10)
    default_template(spec)
    for claim in spec.get("volumeClaimTemplates") or ():
        default_claim_template(claim)


def _check_strategy(strategy: Obj, errors: Errors) -> None:
    kind = strategy.get("type")
    rolling = strategy.get("rollingUpdate")
    path = "spec.updateStrategy"
    if not kind:
        errors.append(required(path))
    elif kind == "RollingUpdate":
        if rolling is not None:
            _check_rolling(rolling, f"{path}.rollingUpdate", errors)
    elif kind == "OnDelete":
        if rolling is not None:
            text = "only allowed for updateStrategy 'RollingUpdate'"
            errors.append(invalid(f"{path}.rollingUpdate", rolling, text))
    else:
        errors.append(invalid(path, strategy, "must be 'RollingUpdate' or 'OnDelete'"))


def _check_rolling(rolling: Obj, path: str, errors: Errors) -> None:
    check_nonnegative(rolling.get("partition"), f"{path}.partition", errors)
    unavailable = rolling.get("maxUnavailable")
    if unavailable is not None:
        path = f"{path}.maxUnavailable"
        check_int_or_percent(unavailable, path, errors)
        if amount(unavailable) == 0:
            errors.append(invalid(path, unavailable, "cannot be 0"))
        check_not_above_100_percent(unavailable, path, errors)


def _check_retention(retention: Obj | None, errors: Errors) -> None:
    if retention is not None:
        for name in ("whenDeleted", "whenScaled"):
            value = retention.get(name) or ""
            if value not in _RETENTION:
                errors.append(not_supported(f"spec.persistentVolumeClaimRetentionPolicy.{name}", value, _RETENTION))


def _template_with_claims(spec: Obj) -> Obj:
    """The template of the pods: with a volume per claim template, without the names that the controller sets."""
    template = read(spec, "template")
    pod = read(template, "spec")
    claims = spec.get("volumeClaimTemplates") or ()
    if not claims and not pod.get("hostname") and not pod.get("subdomain"):
        return template
    claimed = [read(claim, "metadata").get("name") or "" for claim in claims]
    volumes = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in dict.fromkeys(claimed)]
    volumes += [volume for volume in pod.get("volumes") or () if volume.get("name") not in claimed]
    shown = {key: value for key, value in pod.items() if key not in ("hostname", "subdomain")}
    return {**template, "spec": {**shown, "volumes": volumes}}


def _check_spec(spec: Obj, errors: Errors) -> None:
    policy = spec.get("podManagementPolicy")
    if not policy:
        errors.append(required("spec.podManagementPolicy"))
    elif policy not in ("OrderedReady", "Parallel"):
        errors.append(invalid("spec.podManagementPolicy", policy, "must be 'OrderedReady' or 'Parallel'"))
    _check_strategy(read(spec, "updateStrategy"), errors)
    _check_retention(spec.get("persistentVolumeClaimRetentionPolicy"), errors)
    check_nonnegative_fields(spec, ("replicas", "minReadySeconds"), "spec", errors)
    check_nonnegative(read(spec, "ordinals").get("start"), "spec.ordinals.start", errors)
    check_selector(spec, "statefulset", errors)
    if check_template_labels(spec, errors):
        validate_pod_template(_template_with_claims(spec), "spec.template", errors)
    else:
        errors.append(invalid("spec.selector", spec.get("selector"), ""))
    check_long_running(read(spec, "template"), "StatefulSet", errors)


def _validate(obj: Obj) -> list[FieldError]:
    errors: Errors = []
    spec = read(obj, "spec")
    _check_spec(spec, errors)
    for position, claim in enumerate(spec.get("volumeClaimTemplates") or ()):
        check_claim_spec(read(claim, "spec"), f"spec.volumeClaimTemplates[{position}].spec", errors)
    service = spec.get("serviceName")
    if service:
        check_syntax(service, is_dns1123_label, "spec.serviceName", errors)
    return errors


def _validate_update(new: Obj, old: Obj) -> list[FieldError]:
    errors: Errors = []
    spec, before = read(new, "spec"), read(old, "spec")
    _check_spec(spec, errors)
    for name in _FROZEN:
        check_frozen(spec.get(name), before.get(name), f"spec.{name}", errors)
    return errors


def _validate_status(new: Obj, old: Obj) -> list[FieldError]:
    errors: Errors = []
    status = read(new, "status")
    check_nonnegative_fields(status, _COUNTERS, "status", errors)
    parts = ("readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas")
    check_counters(status, parts, "status.readyReplicas", errors)
    check_collision_count(new, old, errors)
    return errors


def _warnings(obj: Obj) -> list[str]:
    found = template_warnings_of(obj)
    limit = read(obj, "spec").get("revisionHistoryLimit")
    if limit is not None and limit < 0:
        found.append(
            "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended"
        )
    return found


RULES: Final = KindRules(
    default=_default,
    validate_create=_validate,
    validate_update=_validate_update,
    validate_status=_validate_status,
    name_errors=label_name,
    warnings=_warnings,
)
