"""Checks and notifications as users write them, and what a workspace may not name in them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.control.domain.fields import Reader
from shoal.control.domain.kinds.rollout_checks import (
    COMPARISONS,
    credentials_in,
    outside_faults,
    parse_condition,
    read_checks,
    read_notifications,
)
from shoal.control.domain.outbound import OutboundRules
from shoal.control.rollout.strategy import CheckSpec, NotificationSpec

URL = "https://hooks.example.com/a"
PROMETHEUS = {"url": "http://10.1.2.3:9090", "query": "sum(rate(x{r='{{revision}}'}[1m]))", "condition": "< 0.01"}


def checks_of(*checks: Any) -> tuple[tuple[CheckSpec, ...], list[str]]:
    reader = Reader({"checks": list(checks)}, "spec.rollout", [])
    made = read_checks(reader)
    return made, [str(each) for each in reader.errors]


def test_the_three_kinds_are_read_with_their_defaults() -> None:
    made, errors = checks_of(
        {"name": "smoke", "webhook": {"url": URL, "secret": "hooks"}, "interval": "1m", "failures": 2},
        {"name": "errors", "prometheus": PROMETHEUS},
        {"name": "crashes", "query": "pods where restarts > 3 and app = '{{ app }}'"},
    )
    assert errors == []
    assert [(each.kind, each.interval_s, each.failures) for each in made] == [
        ("webhook", 60.0, 2), ("prometheus", 30.0, 1), ("query", 30.0, 1),
    ]  # fmt: skip
    assert made[0].settings == {"url": URL, "secret": "hooks"} and made[1].settings == PROMETHEUS


@pytest.mark.parametrize(
    ("check", "error"),
    [
        ({"name": "a"}, "spec.rollout.checks[0]: Required value: one of webhook, prometheus, query"),
        ({"name": "a", "query": "pods", "webhook": {"url": URL}}, "may not be used together with webhook"),
        ({"query": "pods"}, "spec.rollout.checks[0].name: Required value"),
        ({"name": "a", "webhook": {}}, "spec.rollout.checks[0].webhook.url: Required value"),
        ({"name": "a", "webhook": {"url": "hooks"}}, "use http(s)://HOST[:PORT]/PATH"),
        ({"name": "a", "webhook": {"url": URL, "ca": "x"}}, "must be certificates in PEM"),
        ({"name": "a", "webhook": {"url": URL, "header": "x"}}, "webhook.header: Forbidden: unknown field"),
        ({"name": "a", "webhook": {"url": URL}, "interval": "1s"}, "must be a duration from 10s to 1h"),
        ({"name": "a", "webhook": {"url": URL}, "interval": "soon"}, "must be a duration from 10s to 1h"),
        ({"name": "a", "webhook": {"url": URL}, "failures": 0}, "must be between 1 and 100"),
        ({"name": "a", "prometheus": {**PROMETHEUS, "condition": "is good"}}, "and a number, such as < 0.01"),
        ({"name": "a", "prometheus": {**PROMETHEUS, "query": "{{revison}}"}}, "has the placeholder \"'revison'\""),
        ({"name": "a", "query": 5}, "must be a string"),
        ({"name": "a", "job": {"image": "x"}}, "unknown field"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_the_field_and_the_fix(check: Any, error: str) -> None:
    _, errors = checks_of(check)
    assert any(error.replace("\"'", "'").replace("'\"", "'") in each for each in errors), errors


def test_two_checks_may_not_have_the_same_name() -> None:
    _, errors = checks_of({"name": "a", "query": "pods"}, {"name": "a", "query": "pods"})
    assert errors == ['spec.rollout.checks[1].name: Duplicate value: "a"']


def test_notifications_are_read_with_their_defaults() -> None:
    reader = Reader(
        {"notify": [{"url": URL}, {"url": URL, "format": "slack", "on": ["rollback"]}, {"url": URL, "on": ["end"]}]},
        "spec.rollout",
        [],
    )
    made = read_notifications(reader)
    assert made[0] == NotificationSpec(url=URL) and made[1].on == ("rollback",) and made[1].format == "slack"
    assert ["must be one of start, pause, success, rollback" in str(each) for each in reader.errors] == [True]


def test_hosts_that_are_not_allowed_and_credentials_that_are_none_are_refused_with_their_field() -> None:
    made, _ = checks_of(
        {"name": "smoke", "webhook": {"url": URL, "secret": "hooks"}},
        {"name": "errors", "prometheus": {**PROMETHEUS, "secret": "db"}},
        {"name": "crashes", "query": "pods"},
    )
    notify = [NotificationSpec(url="https://evil.example/", secret="gone")]
    rules = OutboundRules.of(["hooks.example.com"])
    faults = [str(each) for each in outside_faults(made, notify, rules, credentials={"hooks"}, secrets={"db"})]
    assert [each.partition(": ")[0] for each in faults] == [
        "spec.rollout.checks[1].prometheus.url", "spec.rollout.checks[1].prometheus.secret",
        "spec.rollout.notify[0].url", "spec.rollout.notify[0].secret",
    ]  # fmt: skip
    assert "--outbound 10.1.2.3:9090`" in faults[0] and "create a Credential" in faults[1]
    assert 'Not found: "gone"' in faults[3]


def test_the_credentials_of_a_rollout_are_found_as_it_was_applied() -> None:
    rollout = {
        "checks": [{"name": "a", "webhook": {"url": URL, "secret": "one"}}, {"name": "b", "query": "pods"}],
        "notify": [{"url": URL, "secret": "two"}, {"url": URL}],
    }
    assert credentials_in(rollout) == {"one", "two"}
    assert credentials_in(None) == credentials_in("rolling") == credentials_in({}) == set()


@given(st.sampled_from(sorted(COMPARISONS)), st.floats(allow_nan=False, allow_infinity=False))
def test_every_condition_with_a_finite_number_is_read_back(sign: str, number: float) -> None:
    assert parse_condition(f"{sign} {number!r}") == (sign, number)
