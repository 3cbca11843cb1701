"""Deployment, ReplicaSet, StatefulSet, DaemonSet and ControllerRevision."""

from __future__ import annotations

from typing import Any

import pytest

NEGATIVE = "must be greater than or equal to 0"
WORKLOADS = ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet")


def test_a_deployment_gets_its_defaults(kinds: Any) -> None:
    spec = kinds.created("Deployment")["spec"]
    assert spec["replicas"] == 1
    assert spec["strategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"},
    }
    assert (spec["revisionHistoryLimit"], spec["progressDeadlineSeconds"]) == (10, 600)
    assert spec["template"]["spec"]["restartPolicy"] == "Always"


def test_recreate_gets_no_rolling_update(kinds: Any) -> None:
    spec = kinds.created("Deployment", {"spec.strategy": {"type": "Recreate"}})["spec"]
    assert spec["strategy"] == {"type": "Recreate"}


def test_zero_replicas_are_kept(kinds: Any) -> None:
    for kind in ("Deployment", "ReplicaSet", "StatefulSet"):
        assert kinds.created(kind, {"spec.replicas": 0})["spec"]["replicas"] == 0


def test_a_stateful_set_gets_its_defaults(kinds: Any) -> None:
    spec = kinds.created("StatefulSet")["spec"]
    assert spec["podManagementPolicy"] == "OrderedReady"
    assert spec["updateStrategy"] == {"type": "RollingUpdate", "rollingUpdate": {"partition": 0, "maxUnavailable": 1}}
    assert spec["persistentVolumeClaimRetentionPolicy"] == {"whenDeleted": "Retain", "whenScaled": "Retain"}
    assert (spec["replicas"], spec["revisionHistoryLimit"]) == (1, 10)
    claim = spec["volumeClaimTemplates"][0]
    assert (claim["apiVersion"], claim["kind"]) == ("v1", "PersistentVolumeClaim")
    assert claim["spec"]["volumeMode"] == "Filesystem"
    assert claim["status"] == {"phase": "Pending"}


def test_a_rolling_update_named_by_the_user_gets_no_details(kinds: Any) -> None:
    spec = kinds.created("StatefulSet", {"spec.updateStrategy": {"type": "RollingUpdate"}})["spec"]
    assert spec["updateStrategy"] == {"type": "RollingUpdate"}


def test_a_daemon_set_gets_its_defaults(kinds: Any) -> None:
    made = kinds.created("DaemonSet")
    assert made["spec"]["updateStrategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0},
    }
    assert made["spec"]["revisionHistoryLimit"] == 10
    assert made["metadata"]["annotations"] == {"deprecated.daemonset.template.generation": "1"}


def test_a_changed_template_raises_the_template_generation_of_a_daemon_set(kinds: Any) -> None:
    old = kinds.created("DaemonSet")
    rules = kinds.rules(old)
    for edits, expected in (({}, "1"), ({"spec.minReadySeconds": 3}, "1"), ({"spec.template.spec.priority": 1}, "2")):
        new = kinds.edited(old, edits)
        rules.prepare_update(new, old)
        assert new["metadata"]["annotations"]["deprecated.daemonset.template.generation"] == expected


NO_MATCH = '{path}: Invalid value: {{"app":"x"}}: `selector` does not match template `labels`'

CASES: list[tuple[str, dict[str, Any], list[str]]] = [
    ("Deployment", {"spec.replicas": -1}, [f"spec.replicas: Invalid value: -1: {NEGATIVE}"]),
    ("Deployment", {"spec.minReadySeconds": -1}, [f"spec.minReadySeconds: Invalid value: -1: {NEGATIVE}"]),
    ("Deployment", {"spec.revisionHistoryLimit": -2}, [f"spec.revisionHistoryLimit: Invalid value: -2: {NEGATIVE}"]),
    (
        "Deployment",
        {"spec.progressDeadlineSeconds": 5, "spec.minReadySeconds": 5},
        ["spec.progressDeadlineSeconds: Invalid value: 5: must be greater than minReadySeconds"],
    ),
    (
        "Deployment",
        {"spec.template.metadata.labels": {"app": "x"}},
        [NO_MATCH.format(path="spec.template.metadata.labels")],
    ),
    (
        "Deployment",
        {"spec.selector": {}},
        ["spec.selector: Invalid value: {}: empty selector is invalid for deployment"],
    ),
    (
        "Deployment",
        {"spec.template.spec.restartPolicy": "Never"},
        ['spec.template.spec.restartPolicy: Unsupported value: "Never": supported values: "Always"'],
    ),
    (
        "Deployment",
        {"spec.template.spec.activeDeadlineSeconds": 5},
        ["spec.template.spec.activeDeadlineSeconds: Forbidden: activeDeadlineSeconds in ReplicaSet is not Supported"],
    ),
    (
        "Deployment",
        {"spec.strategy": {"type": "Recreate", "rollingUpdate": {}}},
        ["spec.strategy.rollingUpdate: Forbidden: may not be specified when strategy `type` is 'Recreate'"],
    ),
    (
        "Deployment",
        {"spec.strategy": {"type": "Slow"}},
        ['spec.strategy: Unsupported value: {"type":"Slow"}: supported values: "Recreate", "RollingUpdate"'],
    ),
    (
        "Deployment",
        {"spec.strategy.rollingUpdate": {"maxUnavailable": 0, "maxSurge": "0%"}},
        ["spec.strategy.rollingUpdate.maxUnavailable: Invalid value: 0: may not be 0 when `maxSurge` is 0"],
    ),
    (
        "Deployment",
        {"spec.strategy.rollingUpdate": {"maxUnavailable": "150%"}},
        ['spec.strategy.rollingUpdate.maxUnavailable: Invalid value: "150%": must not be greater than 100%'],
    ),
    ("Deployment", {"spec.strategy.rollingUpdate": {"maxSurge": "300%"}}, []),
    (
        "Deployment",
        {"spec.strategy.rollingUpdate": {"maxSurge": -1}},
        [f"spec.strategy.rollingUpdate.maxSurge: Invalid value: -1: {NEGATIVE}"],
    ),
    (
        "ReplicaSet",
        {"spec.template.metadata.labels": {"app": "x"}},
        [NO_MATCH.format(path="spec.template.metadata.labels")],
    ),
    (
        "ReplicaSet",
        {"spec.selector": {}},
        ["spec.selector: Invalid value: {}: empty selector is invalid for deployment"],
    ),
    ("ReplicaSet", {"spec.replicas": -1}, [f"spec.replicas: Invalid value: -1: {NEGATIVE}"]),
    (
        "StatefulSet",
        {"spec.podManagementPolicy": "Slow"},
        ["spec.podManagementPolicy: Invalid value: \"Slow\": must be 'OrderedReady' or 'Parallel'"],
    ),
    (
        "StatefulSet",
        {"spec.updateStrategy": {"type": "OnDelete", "rollingUpdate": {"partition": 1}}},
        [
            'spec.updateStrategy.rollingUpdate: Invalid value: {"partition":1}: '
            "only allowed for updateStrategy 'RollingUpdate'"
        ],
    ),
    (
        "StatefulSet",
        {"spec.updateStrategy": {"type": "Slow"}},
        ["spec.updateStrategy: Invalid value: {\"type\":\"Slow\"}: must be 'RollingUpdate' or 'OnDelete'"],
    ),
    (
        "StatefulSet",
        {"spec.updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "partition": -1}}},
        [
            f"spec.updateStrategy.rollingUpdate.partition: Invalid value: -1: {NEGATIVE}",
            "spec.updateStrategy.rollingUpdate.maxUnavailable: Invalid value: 0: cannot be 0",
        ],
    ),
    (
        "StatefulSet",
        {"spec.persistentVolumeClaimRetentionPolicy.whenScaled": "Keep"},
        [
            'spec.persistentVolumeClaimRetentionPolicy.whenScaled: Unsupported value: "Keep": '
            'supported values: "Delete", "Retain"'
        ],
    ),
    (
        "StatefulSet",
        {"spec.ordinals": {"start": -1}},
        [f"spec.ordinals.start: Invalid value: -1: {NEGATIVE}"],
    ),
    (
        "StatefulSet",
        {"spec.selector": {}},
        ["spec.selector: Invalid value: {}: empty selector is invalid for statefulset"],
    ),
    (
        "StatefulSet",
        {"spec.volumeClaimTemplates.0.spec.accessModes": []},
        ["spec.volumeClaimTemplates[0].spec.accessModes: Required value: at least 1 access mode is required"],
    ),
    (
        "StatefulSet",
        {"spec.template.spec.activeDeadlineSeconds": 1},
        ["spec.template.spec.activeDeadlineSeconds: Forbidden: activeDeadlineSeconds in StatefulSet is not Supported"],
    ),
    ("StatefulSet", {"spec.template.spec.hostname": "Not A Name"}, []),
    (
        "DaemonSet",
        {"spec.updateStrategy.rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}},
        [
            "spec.updateStrategy.rollingUpdate.maxSurge: Invalid value: 1: "
            "may not be set when maxUnavailable is non-zero"
        ],
    ),
    (
        "DaemonSet",
        {"spec.updateStrategy.rollingUpdate": {"maxSurge": 0, "maxUnavailable": 0}},
        ["spec.updateStrategy.rollingUpdate.maxUnavailable: Required value: cannot be 0 when maxSurge is 0"],
    ),
    (
        "DaemonSet",
        {"spec.updateStrategy": {"type": "Slow"}},
        ['spec.updateStrategy: Unsupported value: {"type":"Slow"}: supported values: "OnDelete", "RollingUpdate"'],
    ),
    ("DaemonSet", {"spec.updateStrategy": {"type": "OnDelete"}}, []),
    (
        "DaemonSet",
        {"spec.template.metadata.labels": {"app": "x"}},
        [NO_MATCH.format(path="spec.template.metadata.labels")],
    ),
    ("DaemonSet", {"spec.selector": {}}, ["spec.selector: Invalid value: {}: empty selector is invalid for daemonset"]),
    ("DaemonSet", {"spec.revisionHistoryLimit": -1}, [f"spec.revisionHistoryLimit: Invalid value: -1: {NEGATIVE}"]),
    ("ControllerRevision", {"revision": -1}, [f"revision: Invalid value: -1: {NEGATIVE}"]),
    ("ControllerRevision", {"data": []}, ["data: Required value: data must be a valid JSON object"]),
]


@pytest.mark.parametrize(("kind", "edits", "expected"), CASES)
def test_what_is_wrong_with_a_workload(kinds: Any, kind: str, edits: dict[str, Any], expected: list[str]) -> None:
    assert kinds.faults(kind, edits) == expected


@pytest.mark.parametrize("kind", WORKLOADS)
def test_a_selector_is_required(kinds: Any, kind: str) -> None:
    found = kinds.faults(kind, {"spec.selector": kinds.ABSENT})
    if kind == "DaemonSet":
        assert found[0].startswith("spec.template.metadata.labels: Invalid value: ")
    else:
        assert found == ["spec.selector: Required value"]


def test_data_of_a_revision_is_required(kinds: Any) -> None:
    assert kinds.faults("ControllerRevision", {"data": kinds.ABSENT}) == ["data: Required value: data is mandatory"]


@pytest.mark.parametrize("kind", WORKLOADS)
def test_a_selector_never_changes(kinds: Any, kind: str) -> None:
    found = kinds.update_faults(
        kind, {"spec.selector": {"matchLabels": {"new": "1"}}, "spec.template.metadata.labels": {"new": "1"}}
    )
    assert found == ['spec.selector: Invalid value: {"matchLabels":{"new":"1"}}: field is immutable']


@pytest.mark.parametrize("kind", WORKLOADS)
def test_an_empty_list_in_a_selector_is_no_change(kinds: Any, kind: str) -> None:
    assert kinds.update_faults(kind, {"spec.selector.matchExpressions": []}) == []


@pytest.mark.parametrize(
    "edits",
    [
        {"spec.serviceName": "other"},
        {"spec.podManagementPolicy": "Parallel"},
        {"spec.volumeClaimTemplates.0.spec.resources.requests.storage": "2Gi"},
    ],
)
def test_frozen_fields_of_a_stateful_set_are_reported_one_by_one(kinds: Any, edits: dict[str, Any]) -> None:
    (found,) = kinds.update_faults("StatefulSet", edits)
    field = ".".join(next(iter(edits)).split(".")[:2])
    assert found.startswith(f"{field}: Invalid value: ")
    assert found.endswith(": field is immutable")


@pytest.mark.parametrize(
    "edits",
    [
        {"spec.replicas": 4},
        {"spec.ordinals": {"start": 2}},
        {"spec.minReadySeconds": 4},
        {"spec.revisionHistoryLimit": 4},
        {"spec.updateStrategy": {"type": "OnDelete"}},
        {"spec.persistentVolumeClaimRetentionPolicy.whenDeleted": "Delete"},
        {"spec.template.spec.containers.0.image": "registry.example/db:2"},
    ],
)
def test_the_rest_of_a_stateful_set_may_change(kinds: Any, edits: dict[str, Any]) -> None:
    assert kinds.update_faults("StatefulSet", edits) == []


def test_a_claim_template_and_a_volume_of_one_name_are_the_same_volume(kinds: Any) -> None:
    assert kinds.faults("StatefulSet", {"spec.template.spec.volumes": [{"name": "data", "emptyDir": {}}]}) == []


def test_the_data_of_a_revision_never_changes(kinds: Any) -> None:
    assert kinds.update_faults("ControllerRevision", {"revision": 2}) == []
    assert kinds.update_faults("ControllerRevision", {"data.spec.more": 1}) == [
        'data: Invalid value: {"spec":{"template":{},"more":1}}: field is immutable'
    ]


@pytest.mark.parametrize(
    ("kind", "status", "before", "expected"),
    [
        (
            "Deployment",
            {"unavailableReplicas": -1},
            None,
            [f"status.unavailableReplicas: Invalid value: -1: {NEGATIVE}"],
        ),
        (
            "Deployment",
            {"replicas": 1, "readyReplicas": 2},
            None,
            ["status.readyReplicas: Invalid value: 2: cannot be greater than status.replicas"],
        ),
        (
            "Deployment",
            {"replicas": 2, "availableReplicas": 1},
            None,
            ["status.availableReplicas: Invalid value: 1: cannot be greater than readyReplicas"],
        ),
        (
            "Deployment",
            {"collisionCount": 1},
            {"collisionCount": 2},
            ["status.collisionCount: Invalid value: 1: cannot be decremented"],
        ),
        ("Deployment", {}, {"collisionCount": 2}, ["status.collisionCount: Invalid value: 0: cannot be decremented"]),
        (
            "ReplicaSet",
            {"replicas": 1, "fullyLabeledReplicas": 2},
            None,
            ["status.fullyLabeledReplicas: Invalid value: 2: cannot be greater than status.replicas"],
        ),
        (
            "StatefulSet",
            {"replicas": 1, "currentReplicas": 2},
            None,
            ["status.currentReplicas: Invalid value: 2: cannot be greater than status.replicas"],
        ),
        (
            "StatefulSet",
            {"replicas": 1, "availableReplicas": 1},
            None,
            ["status.availableReplicas: Invalid value: 1: cannot be greater than status.readyReplicas"],
        ),
        ("DaemonSet", {"numberReady": -1}, None, [f"status.numberReady: Invalid value: -1: {NEGATIVE}"]),
        ("DaemonSet", {"numberReady": 3}, None, []),
    ],
)
def test_what_a_status_may_not_say(
    kinds: Any, kind: str, status: dict[str, Any], before: dict[str, Any] | None, expected: list[str]
) -> None:
    assert kinds.status_faults(kind, status, before) == expected


def test_a_status_write_does_not_touch_the_labels_of_a_deployment(kinds: Any) -> None:
    old = kinds.created("Deployment", {"metadata.labels": {"kept": "1"}})
    new = kinds.edited(old, {"metadata.labels": {"changed": "1"}})
    kinds.rules(new).prepare_status(new, old)
    assert new["metadata"]["labels"] == {"kept": "1"}


def test_replicas_of_replica_sets_are_selectable(kinds: Any) -> None:
    field = kinds.rules(kinds.example("ReplicaSet")).selectable["status.replicas"]
    assert field({"metadata": {}}) == "0"
    assert field({"metadata": {}, "status": {"replicas": 3}}) == "3"


def test_names_that_make_poor_host_names_are_warned_of(kinds: Any) -> None:
    assert kinds.warnings("Deployment") == []
    (text,) = kinds.warnings("Deployment", {"metadata.name": "web.v2"})
    assert text.startswith("metadata.name: this is used in Pod names and hostnames, ")
    assert text.endswith("a DNS label is recommended: [must not contain dots]")


def test_a_stateful_set_is_named_by_one_label(kinds: Any) -> None:
    check = kinds.rules(kinds.example("StatefulSet")).name_errors
    assert check("db") == []
    assert check("db.v2") == ["must not contain dots"]


def test_a_negative_history_is_warned_of(kinds: Any) -> None:
    assert kinds.warnings("StatefulSet", {"spec.revisionHistoryLimit": -1}) == [
        "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended"
    ]
