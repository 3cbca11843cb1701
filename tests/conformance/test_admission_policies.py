"""Admission policies at work: what they refuse and what they change, only in the namespaces they are bound to."""

from __future__ import annotations

import pytest
from conformance_api import Api, Refused, conformance, unique
from conformance_objects import workload

from shoal.kube.objects import Obj

ADMISSION = "admissionregistration.k8s.io/v1"
DEPLOYMENTS: Obj = {
    "operations": ["CREATE", "UPDATE"],
    "apiGroups": ["apps"],
    "apiVersions": ["v1"],
    "resources": ["deployments"],
}


@pytest.fixture
def marked(api: Api, namespace: str) -> str:
    """A namespace that bindings of this test select."""
    api.of("v1", "namespaces").patch(namespace, {"metadata": {"labels": {namespace: "true"}}})
    return namespace


def put_in_force(api: Api, kind: str, namespace: str, **spec: object) -> str:
    """A policy on deployments and its binding to the namespace."""
    name = unique("policy") + ".example.com"
    selector = {"matchLabels": {namespace: "true"}}
    match = {"matchPolicy": "Equivalent", "namespaceSelector": selector, "resourceRules": [DEPLOYMENTS]}
    api.of(ADMISSION, f"{kind}admissionpolicies").create(
        {"metadata": {"name": name}, "spec": {"matchConstraints": match, **spec}}
    )
    bound: Obj = {"policyName": name, "matchResources": {"namespaceSelector": selector}}
    if kind == "validating":
        bound["validationActions"] = ["Deny"]
    api.of(ADMISSION, f"{kind}admissionpolicybindings").create({"metadata": {"name": name}, "spec": bound})
    return name


def refusal(api: Api, namespace: str, name: str, replicas: int) -> Refused:
    with pytest.raises(Refused) as refused:
        api.of("apps/v1", "deployments", namespace).create(workload(name, replicas))
    return refused.value


@conformance(
    "[sig-api-machinery] ValidatingAdmissionPolicy [Privileged:ClusterAdmin] should validate against a Deployment"
    " [Conformance]"
)
def test_a_policy_validates_deployments(api: Api, marked: str) -> None:
    policy = put_in_force(
        api, "validating", marked,
        validations=[
            {
                "expression": "object.spec.replicas > 1",
                "messageExpression": "'wants replicas > 1, got ' + object.spec.replicas",
            },
            {
                "expression": f"namespaceObject.metadata.name == '{marked}'",
                "message": "Internal error! Other namespace should not be allowed.",
            },
        ],
    )  # fmt: skip
    refused = refusal(api, marked, "marker-deployment", 1)
    assert (refused.code, refused.reason) == (422, "Invalid")
    # the message adds a number to a text, which has no value: the expression itself stands in for it
    assert refused.message == (
        f"deployments.apps \"marker-deployment\" is forbidden: ValidatingAdmissionPolicy '{policy}' with binding "
        f"'{policy}' denied request: failed expression: object.spec.replicas > 1"
    )
    api.of("apps/v1", "deployments", marked).create(workload("replicated", 2))
    api.of("apps/v1", "replicasets", marked).create(workload("non-replicated", 1))
    api.of("apps/v1", "deployments", "default").create(workload(unique("elsewhere"), 1))


@conformance(
    "[sig-api-machinery] ValidatingAdmissionPolicy [Privileged:ClusterAdmin] should allow expressions to refer"
    " variables. [Conformance]"
)
def test_expressions_refer_to_variables(api: Api, marked: str) -> None:
    put_in_force(
        api, "validating", marked,
        variables=[
            {"name": "replicas", "expression": "object.spec.replicas"},
            {"name": "oddReplicas", "expression": "variables.replicas % 2 == 1"},
        ],
        validations=[{"expression": "variables.replicas > 1"}, {"expression": "variables.oddReplicas"}],
    )  # fmt: skip
    assert refusal(api, marked, "marker-deployment", 1).message.endswith("failed expression: variables.replicas > 1")
    assert refusal(api, marked, "even", 2).message.endswith("failed expression: variables.oddReplicas")
    api.of("apps/v1", "deployments", marked).create(workload("replicated", 3))
    api.of("apps/v1", "replicasets", marked).create(workload("non-replicated", 1))


@conformance(
    "[sig-api-machinery] MutatingAdmissionPolicy [Privileged:ClusterAdmin] should mutate a Deployment [Conformance]"
)
def test_a_policy_mutates_deployments(api: Api, marked: str) -> None:
    expression = "Object{spec: Object.spec{replicas: 1337}}"
    mutation = {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}
    put_in_force(api, "mutating", marked, reinvocationPolicy="Never", mutations=[mutation])
    created = api.of("apps/v1", "deployments", marked).create(workload("marker-deployment", 1))
    assert created["spec"]["replicas"] == 1337
    elsewhere = api.of("apps/v1", "deployments", "default").create(workload(unique("elsewhere"), 1))
    assert elsewhere["spec"]["replicas"] == 1


@conformance(
    "[sig-api-machinery] MutatingAdmissionPolicy [Privileged:ClusterAdmin] should mutate a Deployment with annotations"
    " [Conformance]"
)
def test_a_policy_adds_annotations(api: Api, marked: str) -> None:
    expression = """
        Object{
            metadata: Object.metadata{
                annotations: {
                    "mutated-by": "admission-policy"
                }
            }
        }"""
    mutation = {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}
    put_in_force(api, "mutating", marked, reinvocationPolicy="IfNeeded", mutations=[mutation])
    sent = workload("marker-deployment", 1)
    sent["metadata"]["annotations"] = {"own": "kept"}
    created = api.of("apps/v1", "deployments", marked).create(sent)
    assert created["metadata"]["annotations"] == {"own": "kept", "mutated-by": "admission-policy"}
