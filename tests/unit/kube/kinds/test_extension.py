"""Webhooks, admission policies and aggregated APIs."""

from __future__ import annotations

from typing import Any

import pytest

V, M = "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"
POLICY, BINDING = "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"
MUTATING, MUTATING_BINDING = "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"
HOOK, RULE = "webhooks[0]", "webhooks[0].rules[0]"
MATCH = "spec.matchConstraints"


def test_webhooks_get_their_defaults(kinds: Any) -> None:
    (hook,) = kinds.created(V)["webhooks"]
    expected = {
        "failurePolicy": "Fail",
        "matchPolicy": "Equivalent",
        "namespaceSelector": {},
        "objectSelector": {},
        "timeoutSeconds": 10,
    }
    assert {name: hook[name] for name in expected} == expected
    assert hook["clientConfig"]["service"]["port"] == 443
    assert hook["rules"][0]["scope"] == "*"
    assert "reinvocationPolicy" not in hook
    assert kinds.created(M)["webhooks"][0]["reinvocationPolicy"] == "Never"


def test_policies_get_their_defaults(kinds: Any) -> None:
    spec = kinds.created(POLICY)["spec"]
    assert spec["failurePolicy"] == "Fail"
    match = spec["matchConstraints"]
    assert (match["matchPolicy"], match["namespaceSelector"], match["objectSelector"]) == ("Equivalent", {}, {})
    assert match["resourceRules"][0]["scope"] == "*"
    assert kinds.created("APIService")["spec"]["service"]["port"] == 443


CASES: list[tuple[str, dict[str, Any], list[str]]] = [
    (V, {"webhooks.0.name": "short"}, [
        f'{HOOK}.name: Invalid value: "short": should be a domain with at least three segments separated by dots'
    ]),
    (V, {"webhooks.0.name": ""}, [f"{HOOK}.name: Required value"]),
    (V, {"webhooks.0.failurePolicy": "Maybe"}, [
        f'{HOOK}.failurePolicy: Unsupported value: "Maybe": supported values: "Fail", "Ignore"'
    ]),
    (V, {"webhooks.0.matchPolicy": "Maybe"}, [
        f'{HOOK}.matchPolicy: Unsupported value: "Maybe": supported values: "Equivalent", "Exact"'
    ]),
    (V, {"webhooks.0.sideEffects": "Some"}, [
        f'{HOOK}.sideEffects: Unsupported value: "Some": supported values: "None", "NoneOnDryRun"'
    ]),
    (V, {"webhooks.0.timeoutSeconds": 31}, [
        f"{HOOK}.timeoutSeconds: Invalid value: 31: the timeout value must be between 1 and 30 seconds"
    ]),
    (V, {"webhooks.0.admissionReviewVersions": []}, [
        f"{HOOK}.admissionReviewVersions: Required value: must specify one of v1, v1beta1"
    ]),
    (V, {"webhooks.0.admissionReviewVersions": ["v2"]}, [
        f'{HOOK}.admissionReviewVersions: Invalid value: ["v2"]: must include at least one of v1, v1beta1'
    ]),
    (V, {"webhooks.0.admissionReviewVersions": ["v1", "v1"]}, [
        f'{HOOK}.admissionReviewVersions[1]: Invalid value: "v1": duplicate version'
    ]),
    (V, {"webhooks.0.clientConfig": {}}, [
        f"{HOOK}.clientConfig: Required value: exactly one of url or service is required"
    ]),
    (M, {"webhooks.0.clientConfig.url": "http://a.example"}, [
        f"{HOOK}.clientConfig.url: Invalid value: \"http\": 'https' is the only allowed URL scheme; "
        "desired format: https://host[/path]"
    ]),
    (M, {"webhooks.0.clientConfig.url": "https://a.example/x?y=1"}, [
        f'{HOOK}.clientConfig.url: Invalid value: "y=1": query parameters are not permitted in the URL'
    ]),
    (V, {"webhooks.0.clientConfig.service.port": 0}, [
        f"{HOOK}.clientConfig.service.port: Invalid value: 0: "
        "port is not valid: must be between 1 and 65535, inclusive"
    ]),
    (V, {"webhooks.0.clientConfig.service.path": "check"}, [
        f"{HOOK}.clientConfig.service.path: Invalid value: \"check\": must start with a '/'"
    ]),
    (M, {"webhooks.0.reinvocationPolicy": "Maybe"}, [
        f'{HOOK}.reinvocationPolicy: Unsupported value: "Maybe": supported values: "IfNeeded", "Never"'
    ]),
    (V, {"webhooks.0.rules.0.operations": []}, [f"{RULE}.operations: Required value"]),
    (V, {"webhooks.0.rules.0.operations": ["PATCH"]}, [
        f'{RULE}.operations[0]: Unsupported value: "PATCH": '
        'supported values: "*", "CONNECT", "CREATE", "DELETE", "UPDATE"'
    ]),
    (V, {"webhooks.0.rules.0.operations": ["*", "CREATE"]}, [
        f'{RULE}.operations: Invalid value: ["*","CREATE"]: if \'*\' is present, must not specify other operations'
    ]),
    (V, {"webhooks.0.rules.0.apiGroups": ["*", "apps"]}, [
        f'{RULE}.apiGroups: Invalid value: ["*","apps"]: if \'*\' is present, must not specify other API groups'
    ]),
    (V, {"webhooks.0.rules.0.apiVersions": []}, [f"{RULE}.apiVersions: Required value"]),
    (V, {"webhooks.0.rules.0.resources": ["pods/*", "pods/status"]}, [
        f"{RULE}.resources[1]: Invalid value: \"pods/status\": if 'pods/*' is present, must not specify pods/status"
    ]),
    (V, {"webhooks.0.rules.0.resources": ["*/*", "pods"]}, [
        f'{RULE}.resources: Invalid value: ["*/*","pods"]: if \'*/*\' is present, must not specify other resources'
    ]),
    (V, {"webhooks.0.rules.0.resources": ["*", "pods"]}, [
        f'{RULE}.resources: Invalid value: ["*","pods"]: '
        "if '*' is present, must not specify other resources without subresources"
    ]),
    (V, {"webhooks.0.rules.0.scope": "World"}, [
        f'{RULE}.scope: Unsupported value: "World": supported values: "*", "Cluster", "Namespaced"'
    ]),
    (V, {"webhooks.0.matchConditions": [{"name": "a", "expression": "true"}] * 2}, [
        f'{HOOK}.matchConditions[1].name: Duplicate value: "a"'
    ]),
    (V, {"webhooks.0.matchConditions": [{"name": "a"}]}, [f"{HOOK}.matchConditions[0].expression: Required value"]),
    (V, {"webhooks": []}, []),
    (POLICY, {"spec.matchConstraints.resourceRules": []}, [f"{MATCH}.resourceRules: Required value"]),
    (POLICY, {"spec.failurePolicy": "Maybe"}, [
        'spec.failurePolicy: Unsupported value: "Maybe": supported values: "Fail", "Ignore"'
    ]),
    (POLICY, {"spec.paramKind": {}}, ["spec.paramKind.apiVersion: Required value", "spec.paramKind.kind: Required value"]),
    (POLICY, {"spec.paramKind.apiVersion": "a/b/c"}, [
        'spec.paramKind.apiVersion: Invalid value: "a/b/c": unexpected GroupVersion string: a/b/c'
    ]),
    (POLICY, {"spec.validations": []}, [
        "spec.validations: Required value: validations or auditAnnotations must contain at least one item",
        "spec.auditAnnotations: Required value: validations or auditAnnotations must contain at least one item",
    ]),
    (POLICY, {"spec.validations.0.expression": " "}, [
        "spec.validations[0].expression: Required value: expression is not specified"
    ]),
    (POLICY, {"spec.validations.0.message": "a\nb"}, [
        'spec.validations[0].message: Invalid value: "a\\nb": must not contain line breaks'
    ]),
    (POLICY, {"spec.validations.0.reason": "Mood"}, [
        'spec.validations[0].reason: Unsupported value: "Mood": '
        'supported values: "Forbidden", "Invalid", "RequestEntityTooLarge"'
    ]),
    (POLICY, {"spec.variables.0.name": "in"}, [
        'spec.variables[0].name: Invalid value: "in": must be a valid CEL identifier',
        'spec.validations[0].expression: Invalid value: "variables.replicas < 5": compilation failed: '
        "ERROR: <input>:1:10: undefined field 'replicas'\n | variables.replicas < 5\n | .........^",
    ]),
    (POLICY, {"spec.auditAnnotations": [{"key": "a", "valueExpression": "'x'"}] * 2}, [
        'spec.auditAnnotations[1].key: Duplicate value: "a"'
    ]),
    (POLICY, {"spec.auditAnnotations": [{"key": "a"}]}, [
        "spec.auditAnnotations[0].valueExpression: Required value: valueExpression is not specified"
    ]),
    (BINDING, {"spec.policyName": ""}, ["spec.policyName: Required value"]),
    (BINDING, {"spec.validationActions": []}, [
        "spec.validationActions: Required value: at least one validation action is required"
    ]),
    (BINDING, {"spec.validationActions": ["Deny", "Warn"]}, [
        'spec.validationActions: Invalid value: ["Deny","Warn"]: must not contain both Deny and Warn (repeating the '
        "same validation failure information in the API response and headers serves no purpose)"
    ]),
    (BINDING, {"spec.validationActions": ["Deny", "Deny"]}, ['spec.validationActions[1]: Duplicate value: "Deny"']),
    (BINDING, {"spec.paramRef.selector": {}}, [
        "spec.paramRef.name: Forbidden: name and selector are mutually exclusive",
        "spec.paramRef.selector: Forbidden: name and selector are mutually exclusive",
    ]),
    (BINDING, {"spec.paramRef": {"parameterNotFoundAction": "Allow"}}, [
        "spec.paramRef: Required value: one of name or selector must be specified"
    ]),
    (BINDING, {"spec.paramRef.parameterNotFoundAction": "Cry"}, [
        'spec.paramRef.parameterNotFoundAction: Unsupported value: "Cry": supported values: "Allow", "Deny"'
    ]),
    (MUTATING, {"spec.mutations": []}, ["spec.mutations: Required value: mutations must contain at least one item"]),
    (MUTATING, {"spec.mutations.0.applyConfiguration": {"expression": "Object{}"}}, [
        'spec.mutations[0].applyConfiguration: Invalid value: "{applyConfiguration}": '
        "must not be specified when patchType is JSONPatch"
    ]),
    (MUTATING, {"spec.mutations.0.patchType": "Magic"}, [
        'spec.mutations[0].patchType: Unsupported value: "Magic": supported values: "ApplyConfiguration", "JSONPatch"'
    ]),
    (MUTATING, {"spec.mutations.0": {"patchType": "ApplyConfiguration"}}, [
        "spec.mutations[0].applyConfiguration: Required value: must be specified when patchType is ApplyConfiguration"
    ]),
    (MUTATING, {"spec.reinvocationPolicy": ""}, ["spec.reinvocationPolicy: Required value"]),
    (MUTATING, {"spec.matchConstraints.resourceRules.0.operations": ["DELETE"]}, [
        f'{MATCH}.resourceRules.operations: Unsupported value: "DELETE": '
        'supported values: "*", "CONNECT", "CREATE", "UPDATE"'
    ]),
    (MUTATING_BINDING, {"spec.policyName": ""}, ["spec.policyName: Required value"]),
    ("APIService", {"metadata.name": "v2.shop.example"}, [
        'metadata.name: Invalid value: "v2.shop.example": must be `spec.version+"."+spec.group`: "v1.shop.example"'
    ]),
    ("APIService", {"spec.groupPriorityMinimum": 0}, [
        "spec.groupPriorityMinimum: Invalid value: 0: must be positive and less than 20000"
    ]),
    ("APIService", {"spec.versionPriority": 1001}, [
        "spec.versionPriority: Invalid value: 1001: must be positive and less than 1000"
    ]),
    ("APIService", {"spec.caBundle": "YQ=="}, [
        "spec.insecureSkipTLSVerify: Invalid value: true: may not be true if caBundle is present"
    ]),
    ("APIService", {"spec.service.name": ""}, ["spec.service.name: Required value"]),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "edits", "expected"), CASES)
def test_what_is_wrong_with_it(kinds: Any, kind: str, edits: dict[str, Any], expected: list[str]) -> None:
    assert kinds.faults(kind, edits) == expected


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        (V, "webhooks.0.matchConditions.0.expression"),
        (POLICY, "spec.validations.0.expression"),
        (POLICY, "spec.validations.0.messageExpression"),
        (POLICY, "spec.variables.0.expression"),
        (MUTATING, "spec.mutations.0.jsonPatch.expression"),
    ],
)
def test_a_text_that_is_no_expression_is_refused(kinds: Any, kind: str, path: str) -> None:
    (found,) = kinds.faults(kind, {path: "object.spec ==="})
    field, _, rest = found.partition(": Invalid value: ")
    assert field == path.replace(".0.", "[0].")
    assert rest.startswith('"object.spec ===": compilation failed: ERROR: <input>:1:')


@pytest.mark.parametrize(
    ("kind", "path", "expression", "fault"),
    [
        (V, "webhooks.0.matchConditions.0.expression", "params.x == 1", "undeclared reference to 'params'"),
        (V, "webhooks.0.matchConditions.0.expression", "1 + 1", "must evaluate to bool"),
        (POLICY, "spec.validations.0.expression", "objct.spec", "undeclared reference to 'objct'"),
        (POLICY, "spec.validations.0.messageExpression", "1", "must evaluate to string"),
    ],
)
def test_expressions_are_checked_against_what_they_may_use(
    kinds: Any, kind: str, path: str, expression: str, fault: str
) -> None:
    (found,) = kinds.faults(kind, {path: expression})
    assert fault in found


def test_match_constraints_and_side_effects_are_required(kinds: Any) -> None:
    assert kinds.faults(POLICY, {"spec.matchConstraints": kinds.ABSENT}) == ["spec.matchConstraints: Required value"]
    assert kinds.faults(V, {"webhooks.0.sideEffects": kinds.ABSENT}) == [
        f"{HOOK}.sideEffects: Required value: must specify one of None, NoneOnDryRun"
    ]


def test_webhooks_of_one_name_are_refused(kinds: Any) -> None:
    hook = kinds.example(V)["webhooks"][0]
    assert kinds.faults(V, {"webhooks.1": hook}) == ['webhooks[1].name: Duplicate value: "check.shop.example"']


def test_what_a_configuration_already_has_stays_allowed(kinds: Any) -> None:
    old = {"webhooks.0.sideEffects": "Some"}
    assert kinds.update_faults(V, {"metadata.labels": {"a": "b"}}, old) == []
    expression = {"webhooks.0.matchConditions.0.expression": "=="}
    assert kinds.update_faults(V, {"metadata.labels": {"a": "b"}}, expression) == []


def test_a_local_api_service_has_no_transport_settings(kinds: Any) -> None:
    assert kinds.faults("APIService", {"spec.service": kinds.ABSENT}) == [
        "spec.insecureSkipTLSVerify: Invalid value: true: local APIServices may not have insecureSkipTLSVerify"
    ]


def test_conditions_of_an_api_service_are_true_false_or_unknown(kinds: Any) -> None:
    assert kinds.status_faults("APIService", {"conditions": [{"type": "Available", "status": "Maybe"}]}) == [
        'status.conditions[0].status: Unsupported value: "Maybe": supported values: "False", "True", "Unknown"'
    ]


def test_a_status_write_keeps_the_metadata_of_an_api_service(kinds: Any) -> None:
    old = kinds.created("APIService", {"metadata.labels": {"a": "1"}})
    new = kinds.edited(old, {"metadata.labels": {"a": "2"}, "metadata.annotations": {"b": "1"}})
    kinds.rules(old).prepare_status(new, old)
    assert new["metadata"] == old["metadata"]


def test_warnings_of_type_checking_name_a_field(kinds: Any) -> None:
    assert kinds.status_faults(POLICY, {"typeChecking": {"expressionWarnings": [{}]}}) == [
        "status.typeChecking.expressionWarnings[0].warning: Required value",
        "status.typeChecking.expressionWarnings[0].fieldRef: Required value",
    ]
