"""PriorityClass, RuntimeClass, Lease, events.k8s.io Event, FlowSchema and PriorityLevelConfiguration."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.kube.kinds import bootstrap_flowcontrol, rules_for
from shoal.kube.kinds.cluster import priority_class

RULE = "spec.rules[0]"
CASES: list[tuple[str, dict[str, Any], list[str]]] = [
    ("PriorityClass", {"value": 1_000_000_001}, [
        "value: Forbidden: maximum allowed value of a user defined priority is 1000000000"
    ]),
    ("PriorityClass", {"value": -5}, []),
    ("PriorityClass", {"metadata.name": "system-mine"}, [
        "metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for system use only. "
        "error: system-mine is not a known system priority class"
    ]),
    ("PriorityClass", {"metadata.name": "system-node-critical"}, [
        "metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for system use only. "
        "error: value of system-node-critical PriorityClass must be 2000001000"
    ]),
    ("PriorityClass", {"metadata.name": "system-node-critical", "value": 2000001000}, []),
    ("PriorityClass", {"preemptionPolicy": "Maybe"}, [
        'preemptionPolicy: Unsupported value: "Maybe": supported values: "Never", "PreemptLowerPriority"'
    ]),
    ("RuntimeClass", {"handler": ""}, ["handler: Required value"]),
    ("RuntimeClass", {"handler": "a.b"}, ['handler: Invalid value: "a.b": must not contain dots']),
    ("RuntimeClass", {"overhead.podFixed.cpu": "-1"}, [
        'overhead.limits[cpu]: Invalid value: "-1": must be greater than or equal to 0'
    ]),
    ("RuntimeClass", {"scheduling.tolerations": [{"key": "a", "operator": "Exists"}] * 2}, [
        'scheduling.tolerations[1]: Duplicate value: {"key":"a","operator":"Exists"}'
    ]),
    ("Lease", {"spec.leaseDurationSeconds": 0}, ["spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0"]),
    ("Lease", {"spec.leaseTransitions": -1}, [
        "spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0"
    ]),
    ("Lease", {"spec.preferredHolder": "two"}, [
        "spec.preferredHolder: Forbidden: may only be specified if `strategy` is defined"
    ]),
    ("Lease", {"spec.preferredHolder": "two", "spec.strategy": "OldestEmulationVersion"}, []),
    ("Lease", {"spec.strategy": "Mine"}, [
        'spec.strategy.strategy: Unsupported value: "Mine": supported values: "OldestEmulationVersion"'
    ]),
    ("Lease", {"spec": {}}, []),
    ("Event", {"type": "Odd"}, ['type: Invalid value: "": has invalid value: Odd']),
    ("Event", {"deprecatedCount": 3}, ['count: Invalid value: "": needs to be unset']),
    ("Event", {"deprecatedSource": {"host": "a"}}, ['source: Invalid value: "": needs to be unset']),
    ("Event", {"regarding.namespace": ""}, [
        'involvedObject.namespace: Invalid value: "": does not match event.namespace'
    ]),
    ("Event", {"regarding.namespace": "", "metadata.namespace": "default"}, []),
    ("Event", {"action": ""}, ["action: Required value"]),
    ("Event", {"reason": "r" * 129}, ['reason: Invalid value: "": can have at most 128 characters']),
    ("Event", {"note": "n" * 1025}, ['message: Invalid value: "": can have at most 1024 characters']),
    ("Event", {"series": {"count": 1}}, [
        'series.count: Invalid value: "": should be at least 2', "series.lastObservedTime: Required value"
    ]),
    ("Event", {"eventTime": ""}, ["eventTime: Required value"]),
    ("FlowSchema", {"spec.matchingPrecedence": 1}, [
        "spec.matchingPrecedence: Invalid value: 1: only the schema named 'exempt' may have matchingPrecedence 1"
    ]),
    ("FlowSchema", {"spec.matchingPrecedence": 10001}, [
        "spec.matchingPrecedence: Invalid value: 10001: must not be greater than 10000"
    ]),
    ("FlowSchema", {"spec.priorityLevelConfiguration": {}}, [
        "spec.priorityLevelConfiguration.name: Required value: must reference a priority level"
    ]),
    ("FlowSchema", {"spec.distinguisherMethod": {"type": "ByMood"}}, [
        'spec.distinguisherMethod.type: Unsupported value: {"type":"ByMood"}: supported values: "ByNamespace", "ByUser"'
    ]),
    ("FlowSchema", {"spec.rules.0.subjects": []}, [
        f"{RULE}.subjects: Required value: subjects must contain at least one value"
    ]),
    ("FlowSchema", {"spec.rules.0.subjects.0": {"kind": "Pod"}}, [
        f'{RULE}.subjects[0].kind: Unsupported value: "Pod": supported values: "Group", "ServiceAccount", "User"'
    ]),
    ("FlowSchema", {"spec.rules.0.subjects.0.user": {"name": "a"}}, [
        f"{RULE}.subjects[0].user: Forbidden: user is forbidden when subject kind is not 'User'"
    ]),
    ("FlowSchema", {"spec.rules.0.subjects.0": {"kind": "User"}}, [
        f"{RULE}.subjects[0].user: Required value: user is required when subject kind is 'User'"
    ]),
    ("FlowSchema", {"spec.rules.0.subjects.0.serviceAccount.namespace": ""}, [
        f"{RULE}.subjects[0].serviceAccount.namespace: Required value: must specify namespace for service account"
    ]),
    ("FlowSchema", {"spec.rules.0.resourceRules.0.verbs": ["*", "get"]}, [
        f"{RULE}.resourceRules[0].verbs: Invalid value: [\"*\",\"get\"]: if '*' is present, must not specify other verbs"
    ]),
    ("FlowSchema", {"spec.rules.0.resourceRules.0.namespaces": []}, [
        f"{RULE}.resourceRules[0].namespaces: Required value: "
        "resource rules that are not cluster scoped must supply at least one namespace"
    ]),
    ("FlowSchema", {"spec.rules.0.resourceRules.0.apiGroups": []}, [
        f"{RULE}.resourceRules[0].apiGroups: Required value: resource rules must supply at least one api group"
    ]),
    ("FlowSchema", {"spec.rules.0.nonResourceRules.0.nonResourceURLs": ["/a*"]}, [
        f'{RULE}.nonResourceRules[0].nonResourceURLs[0]: Invalid value: "/a*": wildcard can only do suffix matching'
    ]),
    ("FlowSchema", {"spec.rules.0.nonResourceRules.0.nonResourceURLs": ["a"]}, [
        f'{RULE}.nonResourceRules[0].nonResourceURLs[0]: Invalid value: "a": must start with slash'
    ]),
    ("PriorityLevelConfiguration", {"spec.type": "Some"}, [
        'spec.type: Unsupported value: "Some": supported values: "Exempt", "Limited"'
    ]),
    ("PriorityLevelConfiguration", {"spec.exempt": {}}, [
        "spec.exempt: Forbidden: must be nil if the type is Limited"
    ]),
    ("PriorityLevelConfiguration", {"spec.limited.lendablePercent": 101}, [
        "spec.limited.lendablePercent: Invalid value: 101: must be between 0 and 100, inclusive"
    ]),
    ("PriorityLevelConfiguration", {"spec.limited.borrowingLimitPercent": -1}, [
        "spec.limited.borrowingLimitPercent: Invalid value: -1: if specified, must be a non-negative integer"
    ]),
    ("PriorityLevelConfiguration", {"spec.limited.limitResponse": {"type": "Reject", "queuing": {}}}, [
        "spec.limited.limitResponse.queuing: Forbidden: must be nil if limited.limitResponse.type is not Limited"
    ]),
    ("PriorityLevelConfiguration", {"spec.limited.limitResponse": {"type": "Queue"}}, [
        "spec.limited.limitResponse.queuing: Required value: must not be empty if limited.limitResponse.type is Limited"
    ]),
    ("PriorityLevelConfiguration", {"spec.limited.limitResponse.queuing": {"handSize": 9, "queues": 8}}, [
        "spec.limited.limitResponse.queuing.handSize: Invalid value: 9: should not be greater than queues (8)"
    ]),
    ("PriorityLevelConfiguration", {"spec.limited.limitResponse.queuing": {"handSize": 20, "queues": 1000}}, [
        "spec.limited.limitResponse.queuing.handSize: Invalid value: 20: "
        "required entropy bits of deckSize 1000 and handSize 20 should not be greater than 60"
    ]),
    ("PriorityLevelConfiguration", {"metadata.name": "exempt"}, [
        "spec.type: Invalid value: \"Limited\": must be 'Exempt' if and only if `name` is 'exempt'",
    ]),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "edits", "expected"), CASES)
def test_what_is_wrong_with_it(kinds: Any, kind: str, edits: dict[str, Any], expected: list[str]) -> None:
    found = kinds.faults(kind, edits)
    assert found[: len(expected)] == expected
    assert bool(found) == bool(expected)


def test_defaults(kinds: Any) -> None:
    assert kinds.created("PriorityClass")["preemptionPolicy"] == "PreemptLowerPriority"
    assert kinds.created("FlowSchema")["spec"]["matchingPrecedence"] == 1000
    limited = kinds.created("PriorityLevelConfiguration")["spec"]["limited"]
    assert (limited["nominalConcurrencyShares"], limited["lendablePercent"]) == (30, 0)
    assert limited["limitResponse"]["queuing"] == {"handSize": 8, "queues": 64, "queueLengthLimit": 50}


@pytest.mark.parametrize(
    ("kind", "edits", "expected"),
    [
        ("PriorityClass", {"value": 7}, ["value: Forbidden: may not be changed in an update."]),
        ("PriorityClass", {"preemptionPolicy": "Never"}, [
            'preemptionPolicy: Invalid value: "Never": field is immutable']),
        ("PriorityClass", {"description": "more", "globalDefault": True}, []),
        ("RuntimeClass", {"handler": "other"}, ['handler: Invalid value: "other": field is immutable']),
        ("Lease", {"spec.holderIdentity": "two", "spec.leaseTransitions": 1}, []),
        ("Event", {"note": "other"}, ['message: Invalid value: "other": field is immutable']),
        ("Event", {"regarding.name": "other"}, [
            'involvedObject: Invalid value: {"kind":"Pod","name":"other","namespace":"shop"}: field is immutable']),
        ("Event", {"series": {"count": 2, "lastObservedTime": "2030-01-02T03:04:05.000000Z"}}, []),
        ("FlowSchema", {"spec.matchingPrecedence": 7}, []),
    ],
)  # fmt: skip
def test_what_may_change(kinds: Any, kind: str, edits: dict[str, Any], expected: list[str]) -> None:
    assert kinds.update_faults(kind, edits) == expected


def test_conditions_of_flow_control_have_a_type_each(kinds: Any) -> None:
    status = {"conditions": [{"type": "A"}, {"type": "A"}, {}]}
    for kind in ("FlowSchema", "PriorityLevelConfiguration"):
        assert kinds.status_faults(kind, status) == [
            'status.conditions[1].type: Duplicate value: "A"',
            "status.conditions[2].type: Required value",
        ]


def test_events_are_selected_by_what_they_are_about(kinds: Any) -> None:
    event = kinds.created("Event")
    selectable = kinds.rules(event).selectable
    assert selectable["regarding.name"](event) == "web-1"
    assert selectable["reportingController"](event) == "shop.example/watcher"
    assert selectable["regarding.uid"](event) == ""


def test_deprecated_node_labels_are_warned_of(kinds: Any) -> None:
    (text,) = kinds.warnings("RuntimeClass", {"scheduling.nodeSelector": {"beta.kubernetes.io/os": "linux"}})
    assert text.startswith("scheduling.nodeSelector: ")


# --- what a cluster starts with


def test_bootstrap_objects_of_flow_control_are_valid_and_have_their_defaults(kinds: Any) -> None:
    made = bootstrap_flowcontrol.bootstrap_objects()
    assert len({(each["kind"], each["metadata"]["name"]) for each in made}) == len(made)
    levels = {each["metadata"]["name"] for each in made if each["kind"] == "PriorityLevelConfiguration"}
    for each in made:
        filled = kinds.edited(each, {})
        kinds.rules(each).default(filled)
        assert filled == each
        assert kinds.rules(each).validate_create(each) == [], each["metadata"]["name"]
        if each["kind"] == "FlowSchema":
            assert each["spec"]["priorityLevelConfiguration"]["name"] in levels


def test_bootstrap_levels_share_the_server_as_documented() -> None:
    shares = {
        each["metadata"]["name"]: each["spec"]["limited"]["nominalConcurrencyShares"]
        for each in bootstrap_flowcontrol.priority_levels()
        if each["spec"]["type"] == "Limited"
    }
    assert shares == {
        "system": 30, "node-high": 40, "leader-election": 10, "workload-high": 40, "workload-low": 100,
        "global-default": 20, "catch-all": 5,
    }  # fmt: skip
    precedence = {
        each["metadata"]["name"]: each["spec"]["matchingPrecedence"] for each in bootstrap_flowcontrol.flow_schemas()
    }
    assert precedence["exempt"] == 1
    assert precedence["service-accounts"] == 9000
    assert precedence["catch-all"] == 10000


def test_mandatory_objects_of_flow_control_are_fixed(kinds: Any) -> None:
    for each in bootstrap_flowcontrol.bootstrap_objects():
        name = each["metadata"]["name"]
        rules = kinds.rules(each)
        changed = kinds.edited(each, {"spec.more": True})
        fixed = [str(error) for error in rules.validate_update(changed, each) if "the fixed value" in str(error)]
        assert bool(fixed) == (name in bootstrap_flowcontrol.MANDATORY), name
    (exempt,) = (e for e in bootstrap_flowcontrol.priority_levels() if e["metadata"]["name"] == "exempt")
    lent = kinds.edited(exempt, {"spec.exempt.lendablePercent": 50})
    assert kinds.rules(exempt).validate_update(lent, exempt) == []


def test_system_priority_classes_are_valid() -> None:
    rules = rules_for("scheduling.k8s.io", "v1", "PriorityClass")
    assert [rules.validate_create(each) for each in priority_class.bootstrap_objects()] == [[], []]
