"""Webhook configurations and admission policies as stored objects: what is admitted by them is tested elsewhere.

Every object here matches nothing, so that it cannot meet the requests of other tests.
"""

from __future__ import annotations

from conformance_api import Api, conformance, refused, unique
from conformance_steps import check_discovery, check_operations

from shoal.kube.objects import Obj

ADMISSION = "admissionregistration.k8s.io/v1"
NOWHERE = {"matchLabels": {"conformance": "no-such-namespace"}}


def webhook_configuration(name: str, conditions: list[Obj]) -> Obj:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]}
    webhook = {
        "name": "hook.k8s.io",
        "clientConfig": {"url": "https://127.0.0.1:1/never"},
        "rules": [rule],
        "namespaceSelector": NOWHERE,
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "matchConditions": conditions,
    }
    return {"metadata": {"name": name}, "webhooks": [webhook]}


@conformance(
    "[sig-api-machinery] AdmissionWebhook [Privileged:ClusterAdmin] should include webhook resources in discovery"
    " documents [Conformance]"
)
def test_webhooks_are_in_discovery(api: Api) -> None:
    check_discovery(api, ADMISSION, "mutatingwebhookconfigurations", "validatingwebhookconfigurations")


@conformance(
    "[sig-api-machinery] AdmissionWebhook [Privileged:ClusterAdmin] should reject validating webhook configurations"
    " with invalid match conditions [Conformance]"
)
def test_validating_webhook_with_a_bad_condition(api: Api) -> None:
    check_bad_condition(api, "validatingwebhookconfigurations")


@conformance(
    "[sig-api-machinery] AdmissionWebhook [Privileged:ClusterAdmin] should reject mutating webhook configurations with"
    " invalid match conditions [Conformance]"
)
def test_mutating_webhook_with_a_bad_condition(api: Api) -> None:
    check_bad_condition(api, "mutatingwebhookconfigurations")


def check_bad_condition(api: Api, plural: str) -> None:
    bad = [{"name": "invalid-expression-1", "expression": "... [] bad expression"}]
    error = refused("Invalid", api.of(ADMISSION, plural).create, webhook_configuration(unique("bad"), bad))
    assert "compilation failed" in error.message


@conformance(
    "[sig-api-machinery] AdmissionWebhook [Privileged:ClusterAdmin] should be able to create and update validating"
    " webhook configurations with match conditions [Conformance]"
)
def test_validating_webhook_conditions(api: Api) -> None:
    check_conditions(api, "validatingwebhookconfigurations")


@conformance(
    "[sig-api-machinery] AdmissionWebhook [Privileged:ClusterAdmin] should be able to create and update mutating"
    " webhook configurations with match conditions [Conformance]"
)
def test_mutating_webhook_conditions(api: Api) -> None:
    check_conditions(api, "mutatingwebhookconfigurations")


def check_conditions(api: Api, plural: str) -> None:
    configurations, name = api.of(ADMISSION, plural), unique("hook")
    first = [{"name": "expression-1", "expression": "object.metadata.namespace == 'production'"}]
    second = [*first, {"name": "expression-2", "expression": "object.metadata.namespace == 'staging'"}]
    configurations.create(webhook_configuration(name, first))
    assert configurations.get(name)["webhooks"][0]["matchConditions"] == first
    configurations.update(name, lambda obj: obj["webhooks"][0].update(matchConditions=second))
    assert configurations.get(name)["webhooks"][0]["matchConditions"] == second
    configurations.delete(name)
    assert configurations.is_gone(name)


CONSTRAINTS: Obj = {
    "namespaceSelector": NOWHERE,
    "resourceRules": [
        {"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["deployments"]}
    ],
}


def validating_policy(name: str) -> Obj:
    validations = [{"expression": "object.spec.replicas <= 100"}]
    return {"metadata": {"name": name}, "spec": {"matchConstraints": CONSTRAINTS, "validations": validations}}


def mutating_policy(name: str) -> Obj:
    expression = "Object{metadata: Object.metadata{labels: {'set': 'yes'}}}"
    mutation = {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}
    spec = {"matchConstraints": CONSTRAINTS, "reinvocationPolicy": "Never", "mutations": [mutation]}
    return {"metadata": {"name": name}, "spec": spec}


def binding(name: str) -> Obj:
    return {"metadata": {"name": name}, "spec": {"policyName": "no-such-policy"}}


def validating_binding(name: str) -> Obj:
    return {"metadata": {"name": name}, "spec": {"policyName": "no-such-policy", "validationActions": ["Deny"]}}


@conformance(
    "[sig-api-machinery] ValidatingAdmissionPolicy [Privileged:ClusterAdmin] should support ValidatingAdmissionPolicy"
    " API operations [Conformance]"
)
def test_validating_policy_operations(api: Api) -> None:
    check_discovery(api, ADMISSION, "validatingadmissionpolicies", "validatingadmissionpolicies/status")
    policies, name = api.of(ADMISSION, "validatingadmissionpolicies"), unique("vap")

    def change(obj: Obj) -> None:
        obj["spec"]["validations"][0]["expression"] = "object.spec.replicas <= 200"

    check_operations(policies, validating_policy, change=change)
    created = policies.create(validating_policy(name))
    assert policies.get(name, "status")["metadata"]["uid"] == created["metadata"]["uid"]
    failed = {
        "type": "PatchStatusFailed",
        "status": "False",
        "reason": "e2e",
        "message": "Set from a test",
        "lastTransitionTime": "2024-01-01T00:00:00Z",
    }
    patched = policies.patch(name, {"status": {"conditions": [failed]}}, sub="status")
    assert failed in patched["status"]["conditions"]
    second = {**failed, "type": "StatusUpdateFailed"}
    updated = policies.update(name, lambda obj: obj["status"]["conditions"].append(second), "status")
    assert [c["type"] for c in updated["status"]["conditions"]][-1] == "StatusUpdateFailed"
    policies.delete(name)


@conformance(
    "[sig-api-machinery] ValidatingAdmissionPolicy [Privileged:ClusterAdmin] should support"
    " ValidatingAdmissionPolicyBinding API operations [Conformance]"
)
def test_validating_binding_operations(api: Api) -> None:
    check_discovery(api, ADMISSION, "validatingadmissionpolicybindings")
    bindings = api.of(ADMISSION, "validatingadmissionpolicybindings")
    check_operations(bindings, validating_binding, change=lambda obj: None)


@conformance(
    "[sig-api-machinery] MutatingAdmissionPolicy [Privileged:ClusterAdmin] should support MutatingAdmissionPolicy API"
    " operations [Conformance]"
)
def test_mutating_policy_operations(api: Api) -> None:
    check_discovery(api, ADMISSION, "mutatingadmissionpolicies")
    policies = api.of(ADMISSION, "mutatingadmissionpolicies")
    check_operations(policies, mutating_policy, change=lambda obj: obj["spec"].update(failurePolicy="Ignore"))


@conformance(
    "[sig-api-machinery] MutatingAdmissionPolicy [Privileged:ClusterAdmin] should support"
    " MutatingAdmissionPolicyBinding API operations [Conformance]"
)
def test_mutating_binding_operations(api: Api) -> None:
    check_discovery(api, ADMISSION, "mutatingadmissionpolicybindings")
    bindings = api.of(ADMISSION, "mutatingadmissionpolicybindings")
    check_operations(bindings, binding, change=lambda obj: None)
