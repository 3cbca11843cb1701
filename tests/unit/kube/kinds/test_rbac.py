"""Roles and bindings, and the default ones of a cluster."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.kube.kinds import bootstrap_rbac, rbac

GROUP = "rbac.authorization.k8s.io"
CASES: list[tuple[str, dict[str, Any], list[str]]] = [
    ("Role", {"rules.0.verbs": []}, ["rules[0].verbs: Required value: verbs must contain at least one value"]),
    ("Role", {"rules.0.apiGroups": []}, [
        "rules[0].apiGroups: Required value: resource rules must supply at least one api group"
    ]),
    ("Role", {"rules.0.resources": []}, [
        "rules[0].resources: Required value: resource rules must supply at least one resource"
    ]),
    ("Role", {"rules": [{"verbs": ["get"], "nonResourceURLs": ["/a"]}]}, [
        'rules[0].nonResourceURLs: Invalid value: ["/a"]: namespaced rules cannot apply to non-resource URLs'
    ]),
    ("Role", {"rules": []}, []),
    ("ClusterRole", {"rules.0.resources": ["pods"]}, [
        'rules[0].nonResourceURLs: Invalid value: ["/metrics"]: '
        "rules cannot apply to both regular resources and non-resource URLs"
    ]),
    ("ClusterRole", {"aggregationRule": {}}, [
        "aggregationRule.clusterRoleSelectors: Required value: "
        "at least one clusterRoleSelector required if aggregationRule is non-nil"
    ]),
    ("RoleBinding", {"roleRef.kind": "User"}, [
        'roleRef.kind: Unsupported value: "User": supported values: "ClusterRole", "Role"'
    ]),
    ("RoleBinding", {"roleRef.name": ""}, ["roleRef.name: Required value"]),
    ("RoleBinding", {"roleRef.name": "a/b"}, ["roleRef.name: Invalid value: \"a/b\": may not contain '/'"]),
    ("RoleBinding", {"roleRef.apiGroup": "other"}, [
        f'roleRef.apiGroup: Unsupported value: "other": supported values: "{GROUP}"'
    ]),
    ("RoleBinding", {"subjects.0.kind": "Pod"}, [
        'subjects[0].kind: Unsupported value: "Pod": supported values: "Group", "ServiceAccount", "User"'
    ]),
    ("RoleBinding", {"subjects.0.name": ""}, ["subjects[0].name: Required value"]),
    ("RoleBinding", {"subjects.0.apiGroup": "x"}, [
        f'subjects[0].apiGroup: Unsupported value: "x": supported values: "{GROUP}"'
    ]),
    ("RoleBinding", {"subjects.1.apiGroup": GROUP}, [
        f'subjects[1].apiGroup: Unsupported value: "{GROUP}": supported values: ""'
    ]),
    ("RoleBinding", {"subjects.1.namespace": ""}, []),
    ("RoleBinding", {"subjects": []}, []),
    ("ClusterRoleBinding", {"roleRef.kind": "Role"}, [
        'roleRef.kind: Unsupported value: "Role": supported values: "ClusterRole"'
    ]),
    ("ClusterRoleBinding", {"subjects.0": {"kind": "ServiceAccount", "name": "web"}}, [
        "subjects[0].namespace: Required value"
    ]),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "edits", "expected"), CASES)
def test_what_is_wrong_with_it(kinds: Any, kind: str, edits: dict[str, Any], expected: list[str]) -> None:
    assert kinds.faults(kind, edits) == expected


def test_bindings_get_the_group_of_roles_and_people(kinds: Any) -> None:
    made = kinds.created("RoleBinding")
    assert made["roleRef"]["apiGroup"] == GROUP
    assert [subject.get("apiGroup") for subject in made["subjects"]] == [GROUP, None]


@pytest.mark.parametrize("kind", ["RoleBinding", "ClusterRoleBinding"])
def test_a_binding_keeps_its_role(kinds: Any, kind: str) -> None:
    (found,) = kinds.update_faults(kind, {"roleRef.name": "other"})
    assert found.startswith('roleRef: Invalid value: {"kind":"')
    assert found.endswith(": field is immutable")
    assert kinds.update_faults(kind, {"subjects": []}) == []


@pytest.mark.parametrize("kind", ["Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"])
def test_names_may_have_colons_but_no_slashes(kinds: Any, kind: str) -> None:
    check = kinds.rules(kinds.example(kind)).name_errors
    assert check("system:Node_reader") == []
    assert check("a/b%c") == ["may not contain '/'", "may not contain '%'"]


def role(name: str, label: str, *rules: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": {label: "true"}}, "rules": [{"verbs": [verb]} for verb in rules]}


def test_an_aggregated_role_gathers_rules_by_selector_then_by_name_and_once() -> None:
    whole = {
        "metadata": {"name": "all"},
        "aggregationRule": {
            "clusterRoleSelectors": [{"matchLabels": {"a": "true"}}, {"matchExpressions": [
                {"key": "b", "operator": "Exists"}]}]
        },
    }  # fmt: skip
    roles = [role("z", "a", "get", "list"), role("y", "b", "list", "watch"), role("x", "c", "delete"), whole]
    roles.append(role("w", "a", "patch"))
    gathered = rbac.aggregated_rules(whole, roles)
    assert [rule["verbs"][0] for rule in gathered] == ["patch", "get", "list", "watch"]


# --- what a cluster starts with


def test_bootstrap_roles_are_valid_named_once_and_marked(kinds: Any) -> None:
    made = bootstrap_rbac.bootstrap_objects()
    names = [(each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]) for each in made]
    assert len(set(names)) == len(names)
    for each in made:
        assert [str(error) for error in kinds.rules(each).validate_create(each)] == [], each["metadata"]["name"]
        filled = kinds.edited(each, {})
        kinds.rules(each).default(filled)
        assert filled == each
        assert each["metadata"]["labels"]["kubernetes.io/bootstrapping"] == "rbac-defaults"
        assert each["metadata"]["annotations"] == {"rbac.authorization.kubernetes.io/autoupdate": "true"}


def test_every_bootstrap_binding_finds_its_role() -> None:
    cluster = {each["metadata"]["name"] for each in bootstrap_rbac.cluster_roles()}
    local = {(each["metadata"]["namespace"], each["metadata"]["name"]) for each in bootstrap_rbac.roles()}
    for each in bootstrap_rbac.cluster_role_bindings():
        assert each["roleRef"]["name"] in cluster
    for each in bootstrap_rbac.role_bindings():
        assert (each["metadata"]["namespace"], each["roleRef"]["name"]) in local


def rules_of(name: str) -> list[dict[str, Any]]:
    (found,) = (each["rules"] for each in bootstrap_rbac.cluster_roles() if each["metadata"]["name"] == name)
    return list(found)


def allows(name: str, verb: str, group: str, resource: str) -> bool:
    return any(
        verb in rule["verbs"] and group in rule.get("apiGroups", ()) and resource in rule.get("resources", ())
        for rule in rules_of(name)
    )


@pytest.mark.parametrize(
    ("role", "verb", "group", "resource", "allowed"),
    [
        ("view", "list", "", "pods", True),
        ("view", "get", "", "secrets", False),
        ("view", "create", "", "pods", False),
        ("edit", "get", "", "secrets", True),
        ("edit", "create", "apps", "deployments", True),
        ("edit", "create", GROUP, "rolebindings", False),
        ("admin", "create", GROUP, "rolebindings", True),
        ("admin", "delete", "", "pods", True),
        ("admin", "update", "", "resourcequotas", False),
        ("view", "list", "metrics.k8s.io", "pods", True),
        ("edit", "get", "metrics.k8s.io", "nodes", True),
        ("system:aggregated-metrics-reader", "watch", "metrics.k8s.io", "pods", True),
        ("system:node", "patch", "", "nodes/status", True),
        ("system:kube-scheduler", "create", "", "pods/binding", True),
        ("system:auth-delegator", "create", "authentication.k8s.io", "tokenreviews", True),
        ("system:controller:job-controller", "create", "", "pods", True),
    ],
)
def test_what_bootstrap_roles_allow(role: str, verb: str, group: str, resource: str, allowed: bool) -> None:
    assert allows(role, verb, group, resource) is allowed


def test_the_larger_role_has_all_of_the_smaller() -> None:
    for larger, smaller in (("edit", "view"), ("admin", "edit")):
        assert all(rule in rules_of(larger) for rule in rules_of(smaller))


def test_cluster_admin_may_do_anything() -> None:
    assert rules_of("cluster-admin") == [
        {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
        {"verbs": ["*"], "nonResourceURLs": ["*"]},
    ]


def test_bootstrap_objects_are_new_each_time() -> None:
    first = bootstrap_rbac.bootstrap_objects()
    for each in first:
        each.get("rules", []).clear()
        each["metadata"].clear()
    assert all(each["metadata"] for each in bootstrap_rbac.bootstrap_objects())
