"""Audit policies: the first rule that matches, mistakes that are named, secrets that no rule can uncover."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shoal.apiserver.audit.policy import (
    COMPLETE,
    METADATA,
    NONE,
    RECEIVED,
    REQUEST,
    REQUEST_RESPONSE,
    AuditAttributes,
    AuditPolicy,
    default_policy,
    load,
    parse,
)
from shoal.errors import ConfigError

EVERYBODY = ("system:authenticated",)


def policy(*rules: Any, **more: Any) -> AuditPolicy:
    return parse({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": list(rules), **more})


def level(of: AuditPolicy, asked: AuditAttributes) -> int:
    grade = of.grade(asked)
    return NONE if grade is None else grade.level


def asked(verb: str = "create", group: str = "", resource: str = "pods", **more: Any) -> AuditAttributes:
    return AuditAttributes("alice", ("devs", *EVERYBODY), verb, group, resource, **{"namespace": "default", **more})


def url(path: str, user: str = "alice") -> AuditAttributes:
    return AuditAttributes(user, EVERYBODY, "get", path=path)


def test_the_first_rule_that_matches_decides_and_without_one_nothing_is_recorded() -> None:
    made = policy({"level": "None", "users": ["alice"], "verbs": ["get"]}, {"level": "Request", "users": ["alice"]})
    assert level(made, asked("get")) == NONE
    assert level(made, asked("create")) == REQUEST
    assert level(made, AuditAttributes("bob", (), "create", resource="pods")) == NONE


@pytest.mark.parametrize(
    ("rule", "matching", "other"),
    [
        ({"userGroups": ["devs"]}, asked(), AuditAttributes("bob", EVERYBODY, "create", resource="pods")),
        ({"namespaces": ["default"]}, asked(), asked(namespace="other")),
        ({"namespaces": [""]}, asked(resource="nodes", namespace=""), asked()),
        ({"resources": [{"group": ""}]}, asked(resource="pods/log"), asked(group="apps")),
        ({"resources": [{"group": "*", "resources": ["pods"]}]}, asked(), asked(resource="pods/log")),
        ({"resources": [{"resources": ["pods/*"]}]}, asked(resource="pods/log"), asked(resource="nodes/log")),
        ({"resources": [{"resources": ["*/scale"]}]}, asked(resource="x/scale"), asked(resource="x/status")),
        ({"resources": [{"resources": ["*"]}]}, asked(resource="x/scale"), url("/metrics")),
        ({"resources": [{"resources": ["pods"], "resourceNames": ["a"]}]}, asked(name="a"), asked(name="b")),
        ({"nonResourceURLs": ["/metrics"]}, url("/metrics"), url("/metrics/x")),
        ({"nonResourceURLs": ["/healthz*"]}, url("/healthz/x"), url("/livez")),
        ({"nonResourceURLs": ["*"]}, url("/anything"), asked()),
        ({"verbs": ["get"]}, asked("get"), asked("list")),
    ],
)
def test_rules_match_as_kubernetes_matches_them(
    rule: dict[str, Any], matching: AuditAttributes, other: AuditAttributes
) -> None:
    made = policy({"level": "Metadata", **rule})
    assert level(made, matching) == METADATA
    assert level(made, other) == NONE


@pytest.mark.parametrize(
    ("group", "resource"),
    [("", "secrets"), ("", "serviceaccounts/token"), ("authentication.k8s.io", "tokenreviews")],
)
def test_no_policy_records_the_bodies_of_secrets(group: str, resource: str) -> None:
    grade = policy({"level": "RequestResponse"}).grade(asked(group=group, resource=resource))
    assert grade is not None
    assert grade.level == METADATA and grade.confidential
    assert level(policy({"level": "RequestResponse"}), asked()) == REQUEST_RESPONSE


def test_stages_of_policy_and_rule_are_left_out_together_and_managed_fields_by_the_rule_first() -> None:
    made = policy(
        {"level": "Request", "omitStages": ["Panic"], "omitManagedFields": False, "verbs": ["get"]},
        {"level": "Request"},
        omitStages=["RequestReceived"],
        omitManagedFields=True,
    )
    first, second = made.grade(asked("get")), made.grade(asked("list"))
    assert first is not None and second is not None
    assert first.stages == {"ResponseStarted", "ResponseComplete"} and first.managed_fields
    assert RECEIVED not in second.stages and COMPLETE in second.stages and not second.managed_fields


def test_the_default_is_changes_but_not_the_chatter() -> None:
    made = default_policy()
    assert level(made, asked("create")) == level(made, asked("deletecollection")) == METADATA
    assert level(made, asked("patch", resource="pods/status")) == METADATA
    for quiet in (
        asked("get"), asked("list"), asked("watch"), url("/livez"), asked("create", resource="events"),
        asked("update", "coordination.k8s.io", "leases"), asked("create", "events.k8s.io", "events"),
    ):  # fmt: skip
        assert level(made, quiet) == NONE
    assert made.refusals


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("[]", "apiVersion: audit.k8s.io/v1"),
        ("{apiVersion: v1, kind: Policy}", "apiVersion is 'v1': use audit.k8s.io/v1"),
        ("{apiVersion: audit.k8s.io/v1, kind: Polizei}", "kind is 'Polizei': use Policy"),
        ("{apiVersion: audit.k8s.io/v1, kind: Policy}", "rules is empty"),
        ("{apiVersion: audit.k8s.io/v1, kind: Policy, rule: []}", "rule: unknown field; known fields:"),
        ("{rules: [{}]}", "rules[0].level is None: choose from None, Metadata"),
        ("{rules: [{level: All}]}", "rules[0].level is 'All': choose from"),
        ("{rules: [{level: None}, {level: Request, verb: [get]}]}", "rules[1].verb: unknown field"),
        ("{rules: [{level: Request, verbs: get}]}", "rules[0].verbs must be a list of strings"),
        ("{rules: [{level: Request, nonResourceURLs: [metrics]}]}", "it must begin with a slash"),
        ("{rules: [{level: Request, nonResourceURLs: ['/a*b']}]}", "a star can only be the last character"),
        ("{rules: [{level: Request, nonResourceURLs: ['/a'], namespaces: [x]}]}", "make it two rules"),
        ("{rules: [{level: Request, resources: [{group: apps/v1}]}]}", "rules[0].resources[0].group is 'apps/v1'"),
        ("{rules: [{level: Request, resources: [{resourceNames: [a]}]}]}", "resourceNames needs resources"),
        ("{rules: [{level: Request, omitStages: [Done]}]}", "rules[0].omitStages has 'Done': choose from"),
        ("{rules: [{level: Request}], omitManagedFields: 1}", "omitManagedFields is 1: use true or false"),
        ("{rules: [", "not YAML"),
    ],
)
def test_a_bad_policy_is_refused_with_the_field_and_the_fix(tmp_path: Path, content: str, named: str) -> None:
    if content.startswith("{rules") and "apiVersion" not in content:
        content = content.replace("{rules", "{apiVersion: audit.k8s.io/v1, kind: Policy, rules", 1)
    file = tmp_path / "policy.yaml"
    file.write_text(content)
    try:
        load(file)
    except ConfigError as error:
        assert named in str(error) and str(file) in str(error), str(error)
    else:
        raise AssertionError("accepted")


def test_a_policy_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere.yaml: No such file"):
        load(tmp_path / "nowhere.yaml")
