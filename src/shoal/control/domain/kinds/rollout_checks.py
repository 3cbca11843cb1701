"""What judges a rollout and who is told, as ``spec.rollout`` says it: limits, checks elsewhere, notifications."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from shoal.base.destinations import OutboundRefused, OutboundUrl
from shoal.control.domain.fields import Reader
from shoal.control.domain.kinds.check_queries import is_condition, is_query
from shoal.control.domain.kinds.checks import is_image, is_name, is_plain
from shoal.control.rollout.strategy import INTERVAL_S, AbortSpec, CheckSpec, LatencyLimit, NotificationSpec
from shoal.errors import duplicate, forbidden, invalid, not_found, not_supported, required
from shoal.kube.names import Faults

QUANTILES = {"p50": 0.5, "p75": 0.75, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p99.9": 0.999}
LONGEST_REQUEST_S = 600.0
MOST_REQUESTS = 1_000_000
MAX_CHECKS = 20
_MAX_CA = 16 * 1024
FORMATS = ("json", "slack")
OCCASIONS = ("start", "pause", "success", "rollback")

# What a check of each kind needs, and what it may have besides.
CHECKS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "webhook": (("url",), ("secret", "ca")),
    "prometheus": (("url", "query", "condition"), ("secret", "ca")),
    "query": (("query",), ()),
    "job": (("image",), ("command", "args", "region", "resources", "timeout")),
}
JOB_TIMEOUT_S = 300.0
LONGEST_JOB_S = 3600.0
JOB_RESOURCES = {"cpu": "100m", "memory": "128Mi"}


def is_url(value: str) -> Faults:
    try:
        OutboundUrl.parse(value)
    except OutboundRefused as error:
        return (str(error),)
    return ()


def _is_pem(value: str) -> Faults:
    if len(value) > _MAX_CA or "-----BEGIN CERTIFICATE-----" not in value:
        return (f"must be certificates in PEM, up to {_MAX_CA} bytes",)
    return ()


def read_abort(part: Reader) -> AbortSpec:
    given = part.names()
    errors = part.share("errors") if "errors" in given else None
    part.raw("errors")
    latency: list[LatencyLimit] = []
    for name, quantile in QUANTILES.items():
        if name in given and not part.has(name):
            part.note(required(part.at(name), "a rule needs a number, such as 500ms"))
        limit_s = part.seconds(name, 0.0, 0.001, LONGEST_REQUEST_S)
        if limit_s:
            latency.append(LatencyLimit(quantile=quantile, ms=limit_s * 1000))
    if "minRequests" in given and not part.has("minRequests"):
        part.note(required(part.at("minRequests"), "it needs a number, such as 200"))
    min_requests = part.integer("minRequests", 0, 1, MOST_REQUESTS)
    part.close()
    return AbortSpec(errors=errors, latency=tuple(latency), min_requests=min_requests)


def read_checks(part: Reader, regions: Collection[str] | None = None) -> tuple[CheckSpec, ...]:
    """``regions`` are those of the app, None for an environment."""
    found: list[CheckSpec] = []
    for check in part.parts("checks", MAX_CHECKS):
        name, kind = check.text("name", need=True, check=is_name), check.choice("kind", CHECKS, need=True)
        if name and any(each.name == name for each in found):
            check.note(duplicate(check.at("name"), name))
        found.append(
            CheckSpec(
                name=name,
                kind=kind,
                settings=_settings(check, kind, regions),
                interval_s=check.seconds("interval", INTERVAL_S, 5.0),
                failures=check.integer("failures", 1, 1, 100),
            )
        )
        check.close()
    return tuple(found)


def _settings(check: Reader, kind: str, regions: Collection[str] | None) -> dict[str, Any]:
    read: dict[str, Any] = {
        "url": check.text("url", check=is_url),
        "query": check.text("query", check=is_query),
        "condition": check.text("condition", check=is_condition),
        "secret": check.text("secret", check=is_name),
        "ca": check.text("ca", check=_is_pem),
        "image": check.text("image", check=is_image),
        "command": list(check.texts("command", check=is_plain)),
        "args": list(check.texts("args", check=is_plain)),
        "region": check.text("region", check=is_name),
        "resources": _job_resources(check.part("resources")),
        "timeout": check.seconds("timeout", 0.0, 1.0, LONGEST_JOB_S),
    }
    given = {name: value for name, value in read.items() if value}
    if not kind:
        return given
    needed, possible = CHECKS[kind]
    for name in needed:
        if name not in given:
            check.note(required(check.at(name), f"a check of kind {kind} needs it"))
    for name in given:
        if name not in (*needed, *possible):
            check.note(forbidden(check.at(name), f"a check of kind {kind} does not have it"))
    if kind == "job":
        if given.get("region") and regions is not None and given["region"] not in regions:
            check.note(not_found(check.at("region"), given["region"]))
        given["timeoutSeconds"] = round(given.pop("timeout", JOB_TIMEOUT_S))
        given["resources"] = {**JOB_RESOURCES, **given.get("resources", {})}
    return given


def _job_resources(part: Reader | None) -> dict[str, str]:
    """What it may use. It is asked for and not exceeded."""
    if part is None:
        return {}
    read = {name: part.quantity(name) for name in JOB_RESOURCES}
    for name, found in read.items():
        if found is not None and not found:
            part.note(invalid(part.at(name), str(found), "must be greater than 0"))
    part.close()
    return {name: str(found) for name, found in read.items() if found}


def read_notifications(part: Reader) -> tuple[NotificationSpec, ...]:
    found: list[NotificationSpec] = []
    for each in part.parts("notify", MAX_CHECKS):
        on = each.texts("true" if each.has("true") else "on", unique=True)  # YAML 1.1 reads the word "on" as true
        for index, occasion in enumerate(on):
            if occasion not in OCCASIONS:
                each.note(not_supported(f"{each.at('on')}[{index}]", occasion, OCCASIONS))
        found.append(
            NotificationSpec(
                url=each.text("url", need=True, check=is_url),
                format=each.choice("format", FORMATS, FORMATS[0]),
                secret=each.text("secret", check=is_name),
                on=on or OCCASIONS,
            )
        )
        each.close()
    return tuple(found)
