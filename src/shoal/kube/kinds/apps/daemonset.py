"""DaemonSet: defaults, the limits of a rolling update, and the template generation in an annotation."""

from __future__ import annotations

from typing import Final

from shoal.errors import FieldError, invalid, not_supported, required
from shoal.kube.kinds.apps.workload import (
    check_collision_count,
    check_long_running,
    default_template,
    template_warnings_of,
)
from shoal.kube.kinds.checks import Errors, check_int_or_percent, check_label_selector, check_not_above_100_percent
from shoal.kube.kinds.common import (
    amount,
    check_frozen,
    check_nonnegative_fields,
    child,
    deep_same,
    read,
    selector_matches,
    spec_of,
)
from shoal.kube.kinds.core.pod import validate_pod_template
from shoal.kube.objects import Obj
from shoal.kube.rules import KindRules

_TEMPLATE_GENERATION: Final = "deprecated.daemonset.template.generation"
_COUNTERS: Final = (
    "currentNumberScheduled",
    "numberMisscheduled",
    "desiredNumberScheduled",
    "numberReady",
    "observedGeneration",
    "updatedNumberScheduled",
    "numberAvailable",
    "numberUnavailable",
    "collisionCount",
)


def _default(obj: Obj) -> None:
    spec = spec_of(obj)
    strategy = child(spec, "updateStrategy")
    if not strategy.get("type"):
        strategy["type"] = "RollingUpdate"
    if strategy["type"] == "RollingUpdate":
        rolling = child(strategy, "rollingUpdate")
        rolling.setdefault("maxUnavailable", 1)
        rolling.setdefault("maxSurge", 0)
    spec.setdefault("revisionHistoryLimit", 10)
    default_template(spec)


def _template_generation(obj: Obj) -> int:
    text = read(obj["metadata"], "annotations").get(_TEMPLATE_GENERATION) or ""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0


def _prepare_create(obj: Obj) -> None:
    annotations = child(obj["metadata"], "annotations")
    annotations[_TEMPLATE_GENERATION] = str(max(1, _template_generation(obj)))


def _prepare_update(new: Obj, old: Obj) -> None:
    changed = not deep_same(read(new, "spec").get("template"), read(old, "spec").get("template"))
    child(new["metadata"], "annotations")[_TEMPLATE_GENERATION] = str(_template_generation(old) + changed)


def _check_rolling(rolling: Obj, errors: Errors) -> None:
    path = "spec.updateStrategy.rollingUpdate"
    unavailable, surge = rolling.get("maxUnavailable", 0), rolling.get("maxSurge", 0)
    check_int_or_percent(unavailable, f"{path}.maxUnavailable", errors)
    check_int_or_percent(surge, f"{path}.maxSurge", errors)
    check_not_above_100_percent(unavailable, f"{path}.maxUnavailable", errors)
    check_not_above_100_percent(surge, f"{path}.maxSurge", errors)
    if amount(unavailable) and amount(surge):
        errors.append(invalid(f"{path}.maxSurge", surge, "may not be set when maxUnavailable is non-zero"))
    elif not amount(unavailable) and not amount(surge):
        errors.append(required(f"{path}.maxUnavailable", "cannot be 0 when maxSurge is 0"))


def _check_strategy(strategy: Obj, errors: Errors) -> None:
    kind = strategy.get("type")
    if kind == "RollingUpdate":
        rolling = strategy.get("rollingUpdate")
        if rolling is None:
            errors.append(required("spec.updateStrategy.rollingUpdate"))
        else:
            _check_rolling(rolling, errors)
    elif kind != "OnDelete":
        errors.append(not_supported("spec.updateStrategy", strategy, ("RollingUpdate", "OnDelete")))


def _validate(obj: Obj) -> list[FieldError]:
    errors: Errors = []
    spec = read(obj, "spec")
    selector = spec.get("selector")
    check_label_selector(selector, "spec.selector", errors)
    template = read(spec, "template")
    labels = read(read(template, "metadata"), "labels")
    if selector_matches(selector, labels) is False:
        text = "`selector` does not match template `labels`"
        errors.append(invalid("spec.template.metadata.labels", labels or None, text))
    if selector is not None and not selector.get("matchLabels") and not selector.get("matchExpressions"):
        errors.append(invalid("spec.selector", selector, "empty selector is invalid for daemonset"))
    validate_pod_template(template, "spec.template", errors)
    check_long_running(template, "DaemonSet", errors)
    check_nonnegative_fields(spec, ("minReadySeconds",), "spec", errors)
    _check_strategy(read(spec, "updateStrategy"), errors)
    check_nonnegative_fields(spec, ("revisionHistoryLimit",), "spec", errors)
    return errors


def _validate_update(new: Obj, old: Obj) -> list[FieldError]:
    errors: Errors = []
    check_frozen(read(new, "spec").get("selector"), read(old, "spec").get("selector"), "spec.selector", errors)
    return errors + _validate(new)


def _validate_status(new: Obj, old: Obj) -> list[FieldError]:
    errors: Errors = []
    check_nonnegative_fields(read(new, "status"), _COUNTERS, "status", errors)
    check_collision_count(new, old, errors)
    return errors


RULES: Final = KindRules(
    default=_default,
    prepare_create=_prepare_create,
    prepare_update=_prepare_update,
    validate_create=_validate,
    validate_update=_validate_update,
    validate_status=_validate_status,
    warnings=template_warnings_of,
)
