"""Validates desired state before any of its objects is written; pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from shoal.errors import FieldError, Invalid, forbidden, invalid, not_supported, required
from shoal.kube import names
from shoal.wire.fleet.v1 import cluster_pb as pb

_PROBES = ("http", "tcp", "grpc", "exec")
_PROTOCOLS = ("", "http1", "h2c")
_SIGNALS = ("", "SIGTERM", "SIGINT", "SIGQUIT", "SIGKILL", "SIGHUP", "SIGUSR1", "SIGUSR2")
_RESERVED = ("kube-system", "kube-public", "kube-node-lease")
_PORT_MAX = 65535
_is_capability = re.compile(r"(?!CAP_)[A-Z][A-Z0-9_]{1,62}", re.ASCII).fullmatch


def check(state: pb.DeploymentState, values: Mapping[str, str]) -> None:
    """``Invalid`` with every field at fault. ``values`` are the plain secrets: only their names are looked at."""
    errors = [
        *_identity(state),
        *_program(state),
        *(fault for name in state.env for fault in _variable("env", name)),
        *(fault for name in values for fault in _variable("secrets", name)),
        *_healthcheck(state),
        *_autoscaling(state.autoscaling),
        *_security(state.security),
        *(fault for at, job in enumerate(state.check_jobs) for fault in _check_job(f"checkJobs[{at}]", job)),
    ]
    if errors:
        raise Invalid.of("DeploymentState", "", state.name or state.deployment, errors)


def check_id(field: str, value: str) -> list[FieldError]:
    """An id is a label of everything that belongs to it."""
    if not value:
        return [required(field)]
    return [invalid(field, value, fault) for fault in names.is_label_value(value)]


def check_name(field: str, value: str) -> list[FieldError]:
    if not value:
        return [required(field)]
    return [invalid(field, value, fault) for fault in names.is_dns1035_label(value)]


def _identity(state: pb.DeploymentState) -> list[FieldError]:
    errors = [*check_id("deployment", state.deployment), *check_name("name", state.name)]
    for field in ("workspace", "project", "environment", "app"):
        if value := getattr(state, field):
            errors += check_id(field, value)
    if not state.namespace:
        errors.append(required("namespace"))
    elif state.namespace in _RESERVED:
        errors.append(forbidden("namespace", f"{state.namespace} is a system namespace"))
    else:
        errors += [invalid("namespace", state.namespace, fault) for fault in names.is_dns1123_label(state.namespace)]
    return errors


def _program(state: pb.DeploymentState) -> list[FieldError]:
    errors = [] if state.image.strip() else [required("image")]
    if state.port > _PORT_MAX:
        errors.append(invalid("port", state.port, "must be between 0 and 65535, inclusive"))
    if state.protocol not in _PROTOCOLS:
        errors.append(not_supported("protocol", state.protocol, ("http1", "h2c")))
    if state.shutdown_signal not in _SIGNALS:
        errors.append(not_supported("shutdownSignal", state.shutdown_signal, _SIGNALS[1:]))
    return errors


def _check_job(field: str, job: pb.CheckJob) -> list[FieldError]:
    errors = check_name(f"{field}.id", job.id)
    if not job.image.strip():
        errors.append(required(f"{field}.image"))
    if not job.timeout_seconds:
        errors.append(required(f"{field}.timeoutSeconds"))
    return errors


def _variable(field: str, name: str) -> list[FieldError]:
    return [invalid(f"{field}[{name}]", name, fault) for fault in names.is_env_var_name_strict(name)]


def _healthcheck(state: pb.DeploymentState) -> list[FieldError]:
    check = state.healthcheck
    if check is None or not check.kind:
        return []
    if check.kind not in _PROBES:
        return [not_supported("healthcheck.kind", check.kind, _PROBES)]
    if check.kind == "exec":
        return [] if check.command else [required("healthcheck.command")]
    return [] if 0 < (check.port or state.port) <= _PORT_MAX else [required("healthcheck.port", "the app has no port")]


def _security(security: pb.Security | None) -> list[FieldError]:
    return [
        invalid("security.capabilities", name, "must be a capability without CAP_, such as NET_BIND_SERVICE")
        for name in (security.capabilities if security is not None else ())
        if not _is_capability(name)
    ]


def _autoscaling(scaling: pb.Autoscaling | None) -> list[FieldError]:
    if scaling is None:
        return []
    errors = [] if scaling.min >= 1 else [invalid("autoscaling.min", scaling.min, "must be 1 or more")]
    if scaling.max < max(scaling.min, 1):
        errors.append(invalid("autoscaling.max", scaling.max, "must be greater than or equal to min"))
    return errors
