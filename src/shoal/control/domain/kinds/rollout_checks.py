<<<<<<< HEAD
"""What judges a rollout and who is told, as ``spec.rollout`` says it: limits, checks elsewhere, notifications."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from shoal.control.domain.fields import Reader
from shoal.control.domain.kinds.checks import is_image, is_name, is_plain
from shoal.control.rollout.strategy import INTERVAL_S, AbortSpec, CheckSpec, LatencyLimit, NotificationSpec
from shoal.errors import duplicate, forbidden, not_supported, required
from shoal.kube.names import Faults

QUANTILES = {"p50": 0.5, "p75": 0.75, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p99.9": 0.999}
LONGEST_REQUEST_S = 600.0
MAX_CHECKS = 20
FORMATS = ("json", "slack")
OCCASIONS = ("start", "pause", "success", "rollback")

# What a check of each kind needs, and what it may have besides.
CHECKS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "webhook": (("url",), ("secret",)),
    "prometheus": (("url", "query"), ("secret",)),
    "job": ((), ("image", "command", "args")),
    "query": (("query",), ()),
}
=======
"""Checks and notifications in ``spec.rollout``: what the control plane asks or tells elsewhere during a rollout.

    checks:
    - {name: smoke, webhook: {url: https://hooks.example.com/smoke, secret: hooks}}
    - {name: errors, prometheus: {url: …, query: …, condition: < 0.01}, interval: 1m, failures: 3}
    - {name: crashes, query: pods where app = 'web' and restarts > 3}
    notify:
    - {url: https://hooks.slack.com/services/…, format: slack, on: [rollback]}

``outside_faults`` then compares them with what the workspace may call and with the credentials of the environment.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from shoal.base.destinations import OutboundRefused, OutboundUrl
from shoal.control.domain.fields import Reader
from shoal.control.domain.kinds.checks import is_name, is_plain
from shoal.control.domain.outbound import OutboundRules
from shoal.control.rollout.strategy import INTERVAL_S, CheckSpec, NotificationSpec
from shoal.errors import FieldError, duplicate, forbidden, invalid, not_found
from shoal.kube.names import Faults
from shoal.kube.times import parse_duration

CHECK_KINDS = ("webhook", "prometheus", "query")
EVENTS = ("start", "pause", "success", "rollback")
MOST_CHECKS = 20
MOST_NOTIFICATIONS = 10
_LEAST_INTERVAL_S, _MOST_INTERVAL_S = 10.0, 3600.0
_MAX_CA = 16 * 1024

COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
_condition = re.compile(r"(<=|>=|==|!=|<|>)\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)", re.ASCII).fullmatch


def read_checks(owner: Reader, name: str = "checks") -> tuple[CheckSpec, ...]:
    made: list[CheckSpec] = []
    for part in owner.parts(name, MOST_CHECKS):
        check = _check(part)
        if check.name and any(each.name == check.name for each in made):
            part.note(duplicate(part.at("name"), check.name))
        made.append(check)
        part.close()
    return tuple(made)


def _check(part: Reader) -> CheckSpec:
    kind = part.one_of(CHECK_KINDS)
    settings: dict[str, Any] = {}
    if kind == "query":
        settings = {"query": part.text("query", need=True, check=is_plain)}
    for each in CHECK_KINDS:
        inner = part.part(each) if each != "query" else part.raw(each)
        if isinstance(inner, Reader) and each == kind:
            settings = _outside(inner)
            if kind == "prometheus":
                settings |= {
                    "query": inner.text("query", need=True, check=is_plain),
                    "condition": inner.text("condition", need=True, check=is_condition),
                }
            inner.close()
    return CheckSpec(
        name=part.text("name", need=True, check=is_name),
        kind=kind,
        settings=settings,
        interval_s=_interval_s(part),
        failures=part.integer("failures", 1, 1, 100),
    )


def _outside(part: Reader) -> dict[str, Any]:
    """Where a call goes and with what."""
    ca = part.text("ca", check=_is_pem)
    found = {"url": part.text("url", need=True, check=is_url), "secret": part.text("secret", check=is_name), "ca": ca}
    return {name: value for name, value in found.items() if value}


def _interval_s(part: Reader) -> float:
    text = part.text("interval")
    if not text:
        return INTERVAL_S
    try:
        seconds = parse_duration(text) / 1e9
    except ValueError:
        seconds = 0.0
    if not _LEAST_INTERVAL_S <= seconds <= _MOST_INTERVAL_S:
        part.note(invalid(part.at("interval"), text, "must be a duration from 10s to 1h, such as 30s"))
        return INTERVAL_S
    return seconds


def read_notifications(owner: Reader, name: str = "notify") -> tuple[NotificationSpec, ...]:
    made: list[NotificationSpec] = []
    for part in owner.parts(name, MOST_NOTIFICATIONS):
        on = part.texts("on", check=_is_event, unique=True)
        made.append(
            NotificationSpec(
                url=part.text("url", need=True, check=is_url),
                format=part.choice("format", ("json", "slack"), "json"),
                secret=part.text("secret", check=is_name),
                on=on or EVENTS,
            )
        )
        part.close()
    return tuple(made)


def outside_faults(
    checks: Sequence[CheckSpec],
    notify: Sequence[NotificationSpec],
    rules: OutboundRules,
    *,
    credentials: Collection[str],
    secrets: Collection[str],
    path: str = "spec.rollout",
) -> list[FieldError]:
    """Hosts that the workspace may not call, and credentials that the environment does not have."""
    faults: list[FieldError] = []
    named = [
        (f"{path}.checks[{index}].{each.kind}", each.settings.get("url", ""), each.settings.get("secret", ""))
        for index, each in enumerate(checks)
        if each.kind in ("webhook", "prometheus")
    ]
    named += [(f"{path}.notify[{index}]", each.url, each.secret) for index, each in enumerate(notify)]
    for at, url, secret in named:
        if why := rules.url_fault(url):
            faults.append(forbidden(f"{at}.url", why))
        if secret and secret not in credentials:
            faults.append(_credential_fault(f"{at}.secret", secret, secrets))
    return faults


def _credential_fault(field: str, name: str, secrets: Collection[str]) -> FieldError:
    if name not in secrets:
        return not_found(field, name)
    return forbidden(
        field,
        f"{name!r} is a Secret, whose values go to clusters; create a Credential of the name with `shoal create "
        f"credential {name}`",
    )


def credentials_in(rollout: Any) -> set[str]:
    """The names of credentials that ``spec.rollout`` of an app uses, as it was applied."""
    if not isinstance(rollout, Mapping):
        return set()
    checks = [
        each.get(kind) or {} for each in rollout.get("checks") or () for kind in CHECK_KINDS if kind != "query"
    ]  # fmt: skip
    return {str(each["secret"]) for each in (*checks, *(rollout.get("notify") or ())) if each.get("secret")}
>>>>>>> f7f78619 (Credentials, and the hosts that may be called for a workspace)


def is_url(value: str) -> Faults:
    try:
<<<<<<< HEAD
        found = urlsplit(value)
        good = found.scheme in ("http", "https") and bool(found.hostname) and found.port != 0
    except ValueError:
        good = False
    if not good or any(letter.isspace() for letter in value):
        return ("must be a URL such as https://checks.example.com/verify",)
    if found.username is not None or found.password is not None:
        return ("may not have a password: name a secret instead",)
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
    part.close()
    return AbortSpec(errors=errors, latency=tuple(latency))


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
        "query": check.text("query", check=is_plain),
        "secret": check.text("secret", check=is_name),
        "image": check.text("image", check=is_image),
        "command": list(check.texts("command", check=is_plain)),
        "args": list(check.texts("args", check=is_plain)),
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
=======
        OutboundUrl.parse(value)
    except OutboundRefused as error:
        return (str(error),)
    return ()


def is_condition(value: str) -> Faults:
    if _condition(value.strip()):
        return ()
    return (f"must be one of {', '.join(COMPARISONS)} and a number, such as < 0.01",)


def parse_condition(text: str) -> tuple[str, float]:
    """The comparison and the number of a condition that was checked."""
    found = _condition(text.strip())
    if found is None:
        raise ValueError(f"condition {text!r} is not valid")
    return found[1], float(found[2])


def _is_event(value: str) -> Faults:
    return () if value in EVENTS else (f"must be one of {', '.join(EVENTS)}",)


def _is_pem(value: str) -> Faults:
    if len(value) > _MAX_CA or "-----BEGIN CERTIFICATE-----" not in value:
        return (f"must be certificates in PEM, up to {_MAX_CA} bytes",)
    return ()
>>>>>>> f7f78619 (Credentials, and the hosts that may be called for a workspace)
