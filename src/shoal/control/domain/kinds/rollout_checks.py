"""What judges a rollout and who is told, as ``spec.rollout`` says it: limits, checks elsewhere, notifications."""

from __future__ import annotations

from typing import Any

from shoal.base.destinations import OutboundRefused, OutboundUrl
from shoal.control.domain.fields import Reader
from shoal.control.domain.kinds.check_queries import is_condition, is_query
from shoal.control.domain.kinds.checks import is_name
from shoal.control.rollout.strategy import INTERVAL_S, AbortSpec, CheckSpec, LatencyLimit, NotificationSpec
from shoal.errors import duplicate, forbidden, not_supported, required
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
}


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


def read_checks(part: Reader) -> tuple[CheckSpec, ...]:
    found: list[CheckSpec] = []
    for check in part.parts("checks", MAX_CHECKS):
        name, kind = check.text("name", need=True, check=is_name), check.choice("kind", CHECKS, need=True)
        if name and any(each.name == name for each in found):
            check.note(duplicate(check.at("name"), name))
        found.append(
            CheckSpec(
                name=name,
                kind=kind,
                settings=_settings(check, kind),
                interval_s=check.seconds("interval", INTERVAL_S, 5.0),
                failures=check.integer("failures", 1, 1, 100),
            )
        )
        check.close()
    return tuple(found)


def _settings(check: Reader, kind: str) -> dict[str, Any]:
    read: dict[str, Any] = {
        "url": check.text("url", check=is_url),
        "query": check.text("query", check=is_query),
        "condition": check.text("condition", check=is_condition),
        "secret": check.text("secret", check=is_name),
        "ca": check.text("ca", check=_is_pem),
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
    return given


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
