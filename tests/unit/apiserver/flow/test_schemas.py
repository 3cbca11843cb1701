"""Which schema a request belongs to, with the schemas that a cluster starts with and with others."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.apiserver.flow.schemas import Digest, Schema, in_order
from shoal.kube.kinds.bootstrap_flowcontrol import flow_schemas

EVERYBODY = ("system:authenticated",)
ACCOUNT = ("system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated")
LEASES = ("coordination.k8s.io", "leases")


def of(user: str, groups: tuple[str, ...], verb: str, group: str, resource: str, namespace: str = "x") -> Digest:
    return Digest(user, groups, verb, group, resource, namespace)


@pytest.mark.parametrize(
    ("digest", "expected"),
    [
        (of("root", ("system:masters",), "list", "", "pods"), "exempt"),
        (Digest("root", ("system:masters",), "get", path="/metrics"), "exempt"),
        (Digest("system:anonymous", ("system:unauthenticated",), "get", path="/livez"), "probes"),
        (Digest("system:anonymous", ("system:unauthenticated",), "get", path="/readyz/ping"), "probes"),
        (Digest("system:anonymous", ("system:unauthenticated",), "get", path="/livezz"), "global-default"),
        (Digest("alice", EVERYBODY, "post", path="/livez"), "global-default"),
        (of("system:kube-scheduler", EVERYBODY, "update", *LEASES), "system-leader-election"),
        (of("system:kube-scheduler", EVERYBODY, "patch", *LEASES), "kube-scheduler"),
        (of("system:serviceaccount:kube-system:a", ACCOUNT, "get", *LEASES), "system-leader-election"),
        (of("system:serviceaccount:kube-system:a", ACCOUNT, "get", "", "pods"), "kube-system-service-accounts"),
        (of("system:serviceaccount:kube-systems:a", ACCOUNT, "get", "", "pods"), "service-accounts"),
        (of("system:node:n", ("system:nodes", *EVERYBODY), "patch", "", "nodes/status", ""), "system-node-high"),
        (of("system:node:n", ("system:nodes", *EVERYBODY), "patch", "", "pods/status"), "system-nodes"),
        (of("system:kube-controller-manager", EVERYBODY, "create", "apps", "replicasets"), "kube-controller-manager"),
        (of("alice", EVERYBODY, "create", "apps", "replicasets"), "global-default"),
    ],
)
def test_requests_find_the_schema_that_kubernetes_gives_them(digest: Digest, expected: str) -> None:
    schemas = in_order([Schema(obj) for obj in flow_schemas()])
    assert next(schema.name for schema in schemas if schema.matches(digest)) == expected


def schema(name: str, precedence: int = 500, method: str = "", **rule: Any) -> Schema:
    subject = {"kind": "User", "user": {"name": "alice"}}
    spec: dict[str, Any] = {
        "matchingPrecedence": precedence,
        "priorityLevelConfiguration": {"name": "x"},
        "rules": [{"subjects": [subject], "resourceRules": [rule]}],
    }
    if method:
        spec["distinguisherMethod"] = {"type": method}
    return Schema({"metadata": {"name": name}, "spec": spec})


def test_cluster_scoped_requests_need_a_rule_that_says_so() -> None:
    star = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
    namespaced, cluster = schema("a", namespaces=["*"], **star), schema("b", clusterScope=True, **star)
    inside, outside = of("alice", EVERYBODY, "get", "", "pods"), of("alice", EVERYBODY, "get", "", "nodes", "")
    assert (namespaced.matches(inside), namespaced.matches(outside)) == (True, False)
    assert (cluster.matches(inside), cluster.matches(outside)) == (False, True)


def test_a_resource_does_not_mean_its_subresources() -> None:
    found = schema("a", verbs=["*"], apiGroups=[""], resources=["pods"], namespaces=["x"])
    assert found.matches(of("alice", EVERYBODY, "get", "", "pods"))
    assert not found.matches(of("alice", EVERYBODY, "get", "", "pods/log"))
    assert not found.matches(of("alice", EVERYBODY, "get", "", "pods", "y"))


def test_equal_precedence_goes_by_name() -> None:
    assert [each.name for each in in_order([schema("b"), schema("a"), schema("c", 1)])] == ["c", "a", "b"]


def test_flows_are_distinguished_as_the_schema_defines() -> None:
    one, other = of("alice", (), "get", "", "pods", "x"), of("bob", (), "get", "", "pods", "y")
    assert schema("s", method="ByUser").flow_of(one) != schema("s", method="ByUser").flow_of(other)
    assert schema("s", method="ByNamespace").flow_of(one) != schema("s", method="ByNamespace").flow_of(other)
    assert schema("s").flow_of(one) == schema("s").flow_of(other)
    assert schema("s", method="ByUser").flow_of(one) != schema("t", method="ByUser").flow_of(one)
