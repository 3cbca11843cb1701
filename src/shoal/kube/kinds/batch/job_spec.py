"""The spec of a job, alone or as the template in a CronJob."""

from __future__ import annotations

from typing import Final

from shoal.errors import duplicate, invalid, not_supported, required, too_long, too_many
from shoal.kube.kinds.batch.indexes import count_indexes
from shoal.kube.kinds.checks import CONDITION_STATUSES, Errors, check_nonnegative, check_syntax
from shoal.kube.kinds.common import check_domain_prefixed_path, check_nonnegative_fields, invalid_hidden, read
from shoal.kube.kinds.core.pod import validate_pod_template
from shoal.kube.names import is_qualified_name
from shoal.kube.objects import Obj

_MAX_INDEXED_PARALLELISM: Final = 100_000
_MAX_FAILED_INDEXES: Final = 100_000
_MANY_COMPLETIONS: Final = 100_000  # above it, further limits apply to keep the status small
_LIMIT_OF_MANY: Final = 10_000
_MAX_RULES: Final = 20
_MAX_EXIT_CODES: Final = 255
_MAX_MANAGED_BY: Final = 63
_MAX_INDEXES_BYTES: Final = 64 * 1024

_ACTIONS: Final = ("Count", "FailIndex", "FailJob", "Ignore")
_EXIT_CODE_OPERATORS: Final = ("In", "NotIn")
_REPLACEMENT_POLICIES: Final = ("Failed", "TerminatingOrFailed")
_NUMBERS: Final = (
    "parallelism",
    "completions",
    "activeDeadlineSeconds",
    "backoffLimit",
    "ttlSecondsAfterFinished",
    "backoffLimitPerIndex",
    "maxFailedIndexes",
)


def default_failure_policy(spec: Obj) -> None:
    for rule in read(spec, "podFailurePolicy").get("rules") or ():
        for pattern in rule.get("onPodConditions") or ():
            if not pattern.get("status"):
                pattern["status"] = "True"


def check_job_spec(spec: Obj, path: str, errors: Errors) -> None:
    """Check all but the selector, which the template of a CronJob may not have."""
    check_nonnegative_fields(spec, _NUMBERS, path, errors)
    if spec.get("maxFailedIndexes") is not None and spec.get("backoffLimitPerIndex") is None:
        errors.append(required(f"{path}.backoffLimitPerIndex", "when maxFailedIndexes is specified"))
    managed_by = spec.get("managedBy")
    if managed_by is not None:
        check_domain_prefixed_path(managed_by, f"{path}.managedBy", errors)
        if len(managed_by) > _MAX_MANAGED_BY:
            errors.append(too_long(f"{path}.managedBy", _MAX_MANAGED_BY))
    _check_completion_mode(spec, path, errors)
    policy = spec.get("podFailurePolicy")
    if policy is not None:
        _check_failure_policy(policy, spec, f"{path}.podFailurePolicy", errors)
    policy = spec.get("successPolicy")
    if policy is not None:
        if spec.get("completionMode") == "Indexed":
            _check_success_policy(policy, spec, f"{path}.successPolicy", errors)
        else:
            errors.append(invalid(f"{path}.successPolicy", policy, "requires indexed completion mode"))
    _check_replacement_policy(spec, f"{path}.podReplacementPolicy", errors)
    template = read(spec, "template")
    validate_pod_template(template, f"{path}.template", errors)
    _check_restart_policy(spec, template, f"{path}.template.spec.restartPolicy", errors)


def _check_restart_policy(spec: Obj, template: Obj, path: str, errors: Errors) -> None:
    restart = read(template, "spec").get("restartPolicy") or "Always"
    if restart == "Always":
        errors.append(required(path, 'valid values: "OnFailure", "Never"'))
    elif restart not in ("OnFailure", "Never"):
        errors.append(not_supported(path, restart, ("OnFailure", "Never")))
    elif restart != "Never" and spec.get("podFailurePolicy") is not None:
        errors.append(invalid(path, restart, 'only "Never" is supported when podFailurePolicy is specified'))


def _check_replacement_policy(spec: Obj, path: str, errors: Errors) -> None:
    policy = spec.get("podReplacementPolicy")
    allowed = _REPLACEMENT_POLICIES if spec.get("podFailurePolicy") is None else ("Failed",)
    if policy is not None and policy not in allowed:
        errors.append(not_supported(path, policy, allowed))


def _check_completion_mode(spec: Obj, path: str, errors: Errors) -> None:
    mode = spec.get("completionMode")
    if mode is not None and mode not in ("NonIndexed", "Indexed"):
        errors.append(not_supported(f"{path}.completionMode", mode, ("NonIndexed", "Indexed")))
    if mode == "Indexed":
        _check_indexed(spec, path, errors)
    elif mode is None or mode == "NonIndexed":
        for name in ("backoffLimitPerIndex", "maxFailedIndexes"):
            if spec.get(name) is not None:
                errors.append(invalid(f"{path}.{name}", spec[name], "requires indexed completion mode"))


def _check_indexed(spec: Obj, path: str, errors: Errors) -> None:
    completions, parallelism = spec.get("completions"), spec.get("parallelism")
    failed = spec.get("maxFailedIndexes")
    if completions is None:
        errors.append(required(f"{path}.completions", "when completion mode is Indexed"))
    if parallelism is not None and parallelism > _MAX_INDEXED_PARALLELISM:
        text = f"must be less than or equal to {_MAX_INDEXED_PARALLELISM} when completion mode is Indexed"
        errors.append(invalid(f"{path}.parallelism", parallelism, text))
    if failed is not None:
        if completions is not None and failed > completions:
            errors.append(invalid(f"{path}.maxFailedIndexes", failed, "must be less than or equal to completions"))
        if failed > _MAX_FAILED_INDEXES:
            text = f"must be less than or equal to {_MAX_FAILED_INDEXES}"
            errors.append(invalid(f"{path}.maxFailedIndexes", failed, text))
    many = completions is not None and completions > _MANY_COMPLETIONS
    if not many or spec.get("backoffLimitPerIndex") is None:
        return
    text = (
        f"must be less than or equal to {_LIMIT_OF_MANY} when completions are above {_MANY_COMPLETIONS} "
        "and used with backoff limit per index"
    )
    if failed is None:
        detail = f"must be specified when completions is above {_MANY_COMPLETIONS}"
        errors.append(required(f"{path}.maxFailedIndexes", detail))
    elif failed > _LIMIT_OF_MANY:
        errors.append(invalid(f"{path}.maxFailedIndexes", failed, text))
    if parallelism is not None and parallelism > _LIMIT_OF_MANY:
        errors.append(invalid(f"{path}.parallelism", parallelism, text))


def _listed(choices: tuple[str, ...]) -> str:
    return "valid values: [" + " ".join(f'"{choice}"' for choice in choices) + "]"


def _check_failure_policy(policy: Obj, spec: Obj, path: str, errors: Errors) -> None:
    rules = policy.get("rules") or []
    if len(rules) > _MAX_RULES:
        errors.append(too_many(f"{path}.rules", len(rules), _MAX_RULES))
    pod = read(read(spec, "template"), "spec")
    names = {c.get("name") for field in ("containers", "initContainers") for c in pod.get(field) or ()}
    for position, rule in enumerate(rules):
        _check_failure_rule(rule, spec, f"{path}.rules[{position}]", names, errors)


def _check_failure_rule(rule: Obj, spec: Obj, path: str, names: set[str | None], errors: Errors) -> None:
    action = rule.get("action")
    if not action:
        errors.append(required(f"{path}.action", _listed(_ACTIONS)))
    elif action == "FailIndex":
        if spec.get("backoffLimitPerIndex") is None:
            errors.append(invalid(f"{path}.action", action, "requires the backoffLimitPerIndex to be set"))
    elif action not in _ACTIONS:
        errors.append(not_supported(f"{path}.action", action, _ACTIONS))
    codes, conditions = rule.get("onExitCodes"), rule.get("onPodConditions")
    if codes is not None:
        _check_exit_codes(codes, f"{path}.onExitCodes", names, errors)
    if conditions:
        _check_pod_conditions(conditions, f"{path}.onPodConditions", errors)
    if codes is not None and conditions:
        errors.append(invalid_hidden(path, "specifying both OnExitCodes and OnPodConditions is not supported"))
    if codes is None and not conditions:
        errors.append(invalid_hidden(path, "specifying one of OnExitCodes and OnPodConditions is required"))


def _check_pod_conditions(patterns: list[Obj], path: str, errors: Errors) -> None:
    if len(patterns) > _MAX_RULES:
        errors.append(too_many(path, len(patterns), _MAX_RULES))
    statuses = tuple(sorted(CONDITION_STATUSES))
    for position, pattern in enumerate(patterns):
        where = f"{path}[{position}]"
        check_syntax(pattern.get("type") or "", is_qualified_name, f"{where}.type", errors)
        status = pattern.get("status")
        if not status:
            errors.append(required(f"{where}.status", _listed(statuses)))
        elif status not in statuses:
            errors.append(not_supported(f"{where}.status", status, statuses))


def _check_exit_codes(codes: Obj, path: str, names: set[str | None], errors: Errors) -> None:
    operator = codes.get("operator")
    if not operator:
        errors.append(required(f"{path}.operator", _listed(_EXIT_CODE_OPERATORS)))
    elif operator not in _EXIT_CODE_OPERATORS:
        errors.append(not_supported(f"{path}.operator", operator, _EXIT_CODE_OPERATORS))
    container = codes.get("containerName")
    if container is not None and container not in names:
        text = "must be one of the container or initContainer names in the pod template"
        errors.append(invalid(f"{path}.containerName", container, text))
    values = codes.get("values") or []
    where = f"{path}.values"
    if not values:
        errors.append(invalid(where, values, "at least one value is required"))
    elif len(values) > _MAX_EXIT_CODES:
        errors.append(too_many(where, len(values), _MAX_EXIT_CODES))
    seen: set[int] = set()
    for position, value in enumerate(values):
        if operator == "In" and value == 0:
            errors.append(invalid(f"{where}[{position}]", value, "must not be 0 for the In operator"))
        if value in seen:
            errors.append(duplicate(f"{where}[{position}]", value))
        seen.add(value)
    if values != sorted(values):
        errors.append(invalid(where, values, "must be ordered"))


def _check_success_policy(policy: Obj, spec: Obj, path: str, errors: Errors) -> None:
    rules = policy.get("rules") or []
    if not rules:
        text = "at least one rules must be specified when the successPolicy is specified"
        errors.append(required(f"{path}.rules", text))
    if len(rules) > _MAX_RULES:
        errors.append(too_many(f"{path}.rules", len(rules), _MAX_RULES))
    for position, rule in enumerate(rules):
        _check_success_rule(rule, spec.get("completions") or 0, f"{path}.rules[{position}]", errors)


def _check_success_rule(rule: Obj, completions: int, path: str, errors: Errors) -> None:
    count, indexes = rule.get("succeededCount"), rule.get("succeededIndexes")
    if count is None and indexes is None:
        errors.append(required(path, "at least one of succeededCount or succeededIndexes must be specified"))
    total = 0
    if indexes is not None:
        where = f"{path}.succeededIndexes"
        if len(indexes) > _MAX_INDEXES_BYTES:
            errors.append(too_long(where, _MAX_INDEXES_BYTES))
        try:
            total = count_indexes(indexes, completions)
        except ValueError as error:
            errors.append(invalid(where, indexes, f"error parsing succeededIndexes: {error}"))
    if count is None:
        return
    where = f"{path}.succeededCount"
    check_nonnegative(count, where, errors)
    if count > completions:
        text = f"must be less than or equal to {completions} (the number of specified completions)"
        errors.append(invalid(where, count, text))
    if indexes is not None and count > total:
        text = f"must be less than or equal to {total} (the number of indexes in the specified succeededIndexes field)"
        errors.append(invalid(where, count, text))
