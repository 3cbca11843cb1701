"""Checks that all kinds share, mainly of metadata."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.kube.kinds import GENERIC, checks, rules_for
from shoal.kube.kinds.checks import validate_metadata, validate_metadata_update
from shoal.kube.objects import Obj
from shoal.kube.resources import BUILTIN, Resource

META: Obj = {"name": "a", "namespace": "b"}
OWNER: Obj = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u"}


def faults(metadata: Obj, **options: Any) -> list[str]:
    options = {"namespaced": True, **options}
    return [str(error) for error in validate_metadata({"metadata": metadata}, **options)]


@pytest.mark.parametrize(
    "metadata",
    [
        META,
        {**META, "generateName": "a-"},
        {**META, "labels": {"a": "", "x.io/B": "c"}, "annotations": {"X.io/a": "anything at all", "b": ""}},
        {**META, "ownerReferences": [OWNER, {**OWNER, "controller": True}]},
        {**META, "finalizers": ["orphan", "x.io/y"]},
        {**META, "annotations": {"a": "x" * (256 * 1024 - 1)}},
    ],
)
def test_good_metadata(metadata: Obj) -> None:
    assert faults(metadata) == []


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({"namespace": "b"}, ["metadata.name: Required value: name or generateName is required"]),
        ({"name": "a"}, ["metadata.namespace: Required value"]),
        ({"name": "a", "namespace": "x.y"}, ['metadata.namespace: Invalid value: "x.y": must not contain dots']),
        ({**META, "generation": -1}, ["metadata.generation: Invalid value: -1: must be greater than or equal to 0"]),
        ({**META, "annotations": {"a": "x" * 256 * 1024}}, ["metadata.annotations: Too long: may not be more than 262144 bytes"]),
        ({**META, "annotations": {"a/b/c": ""}}, ['metadata.annotations: Invalid value: "a/b/c": a valid label key']),
        ({**META, "labels": {"": "x"}}, ['metadata.labels: Invalid value: "": name part must be non-empty', "metadata.labels: "]),
        ({**META, "ownerReferences": [{}]}, [
            "metadata.ownerReferences[0].apiVersion: Required value: must not be empty",
            "metadata.ownerReferences[0].kind: Required value: must not be empty",
            "metadata.ownerReferences[0].name: Required value: must not be empty",
            "metadata.ownerReferences[0].uid: Required value: must not be empty"]),
        ({**META, "ownerReferences": [{**OWNER, "apiVersion": "a/b/c"}]}, [
            'metadata.ownerReferences[0].apiVersion: Invalid value: "a/b/c": must be <group>/<version> or <version>']),
        ({**META, "ownerReferences": [{**OWNER, "apiVersion": "v1", "kind": "Event"}]}, ["metadata.ownerReferences[0]: Invalid value"]),
        ({**META, "finalizers": ["mine"]}, [
            'metadata.finalizers[0]: Invalid value: "mine": name is neither a standard finalizer name nor is it fully qualified']),
        ({**META, "finalizers": ["orphan", "foregroundDeletion"]}, ["metadata.finalizers: Invalid value"]),
    ],
)  # fmt: skip
def test_bad_metadata(metadata: Obj, expected: list[str]) -> None:
    found = faults(metadata)
    assert len(found) == len(expected)
    assert all(text.startswith(start) for text, start in zip(found, expected, strict=True))


def test_two_controllers_are_one_too_many() -> None:
    owners = [{**OWNER, "controller": True}, {**OWNER, "name": "s", "controller": True}]
    found = faults({**META, "ownerReferences": owners})
    assert len(found) == 1
    assert found[0].endswith(
        'Only one reference can have Controller set to true. Found "true" in references for ReplicaSet/r and ReplicaSet/s'
    )


def test_cluster_scoped_objects_have_no_namespace() -> None:
    assert faults(META, namespaced=False) == ["metadata.namespace: Forbidden: not allowed on this type"]
    assert faults({"name": "a"}, namespaced=False) == []


def test_custom_resources_may_have_plain_finalizers() -> None:
    assert faults({**META, "finalizers": ["mine"]}, qualified_finalizers=False) == []


def test_names_follow_the_rule_of_their_kind() -> None:
    assert faults({**META, "name": "a:b"}, name_errors=checks.path_segment_name) == []
    assert faults({**META, "name": "a/b"}, name_errors=checks.path_segment_name) == [
        "metadata.name: Invalid value: \"a/b\": may not contain '/'"
    ]
    assert faults({**META, "name": "a.b"}, name_errors=checks.label_name) == [
        'metadata.name: Invalid value: "a.b": must not contain dots'
    ]
    assert faults({**META, "generateName": "A-a-"}, name_errors=checks.label_name)[0].startswith(
        "metadata.generateName: "
    )


@pytest.mark.parametrize("resource", BUILTIN, ids=lambda each: each.qualified)
def test_the_name_of_every_kind_has_an_upper_bound_that_the_store_can_index(resource: Resource) -> None:
    rules = rules_for(resource.group, resource.version, resource.kind)
    for name in ("a" * 2100, "é" * 1050):
        found = faults(
            {"name": name, **({"namespace": "n" * 63} if resource.namespaced else {})},
            namespaced=resource.namespaced, name_errors=rules.name_errors,
        )  # fmt: skip
        assert found and all(text.startswith("metadata.name: ") for text in found)


def test_long_names_within_the_bound_are_accepted() -> None:
    assert faults({**META, "name": "a:" + "é" * 1023}, name_errors=checks.path_segment_name) == []
    assert faults({**META, "name": "a:b" + "é" * 1023}, name_errors=checks.path_segment_name)[0].endswith(
        "must be no more than 2048 bytes"
    )


STORED: Obj = {
    **META,
    "uid": "u",
    "creationTimestamp": "2024-01-01T00:00:00Z",
    "generation": 2,
    "finalizers": ["x.io/y"],
}


def changes(metadata: Obj, old: Obj) -> list[str]:
    return [str(error) for error in validate_metadata_update({"metadata": metadata}, {"metadata": old})]


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        (STORED, []),
        ({**STORED, "labels": {"a": "b"}, "finalizers": []}, []),
        ({**STORED, "name": "z"}, ['metadata.name: Invalid value: "z": field is immutable']),
        ({**STORED, "namespace": "z"}, ['metadata.namespace: Invalid value: "z": field is immutable']),
        ({**STORED, "uid": "z"}, ['metadata.uid: Invalid value: "z": field is immutable']),
        ({**STORED, "creationTimestamp": "2025-01-01T00:00:00Z"}, ["metadata.creationTimestamp: Invalid value"]),
        ({**STORED, "generation": 1}, ["metadata.generation: Invalid value: 1: must not be decremented"]),
        ({**STORED, "labels": {"a": "b c"}}, ['metadata.labels: Invalid value: "b c"']),
    ],
)
def test_updates_of_metadata(metadata: Obj, expected: list[str]) -> None:
    found = changes(metadata, STORED)
    assert len(found) == len(expected)
    assert all(text.startswith(start) for text, start in zip(found, expected, strict=True))


def test_no_finalizers_come_while_an_object_goes() -> None:
    going = {**STORED, "deletionTimestamp": "2024-01-02T00:00:00Z"}
    assert changes({**going, "finalizers": []}, going) == []
    assert changes({**going, "finalizers": ["x.io/y", "x.io/z"]}, going) == [
        "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new "
        'finalizers []string{"x.io/z"}'
    ]


def errors_of(check: Any, *arguments: Any) -> list[str]:
    found: list[Any] = []
    check(*arguments, "f", found)
    return [str(error) for error in found]


@pytest.mark.parametrize(
    ("check", "arguments", "expected"),
    [
        (checks.check_port_or_name, (80,), []),
        (checks.check_port_or_name, ("http",), []),
        (checks.check_port_or_name, (0,), ["f: Invalid value: 0: must be between 1 and 65535, inclusive"]),
        (checks.check_int_or_percent, ("25%",), []),
        (checks.check_int_or_percent, ("25",), ["f: Invalid value: \"25\": a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')"]),
        (checks.check_int_or_percent, (-1,), ["f: Invalid value: -1: must be greater than or equal to 0"]),
        (checks.check_not_above_100_percent, ("101%",), ['f: Invalid value: "101%": must not be greater than 100%']),
        (checks.check_not_above_100_percent, (101,), []),
        (checks.check_enum, ("x", {"a"}), ['f: Unsupported value: "x": supported values: "a"']),
        (checks.check_required_enum, ("", {"a"}), ["f: Required value"]),
        (checks.check_ip, ("1.2.3.04",), ['f: Invalid value: "1.2.3.04": must not have leading 0s']),
        (checks.check_label_selector, ({"matchExpressions": [{"key": "a", "operator": "In"}]},), [
            "f.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'"]),
        (checks.check_positive_quantity, ("0",), ['f: Invalid value: "0": must be greater than zero']),
    ],
)  # fmt: skip
def test_single_checks(check: Any, arguments: tuple[Any, ...], expected: list[str]) -> None:
    assert errors_of(check, *arguments) == expected


def test_conditions() -> None:
    good = {"type": "Ready", "status": "True", "reason": "Fine", "lastTransitionTime": "2024-01-01T00:00:00Z"}
    assert errors_of(checks.check_conditions, [good]) == []
    assert errors_of(checks.check_conditions, [good, good]) == ['f[1]: Duplicate value: "Ready"']
    assert errors_of(checks.check_conditions, [{"status": "Maybe"}]) == [
        "f[0].type: Required value: is required",
        'f[0].status: Unsupported value: "Maybe": supported values: "False", "True", "Unknown"',
        "f[0].lastTransitionTime: Required value",
        "f[0].reason: Required value",
    ]


# --- the registry


def test_every_core_kind_has_rules_and_unknown_kinds_are_generic() -> None:
    for resource in BUILTIN:
        if resource.group == "" and resource.kind != "ComponentStatus":
            assert rules_for(resource.group, resource.version, resource.kind) is not GENERIC, resource.kind
    assert rules_for("example.com", "v1", "Thing") is GENERIC
    assert rules_for("", "v2", "Pod") is GENERIC


def test_rules_are_looked_up_once() -> None:
    assert rules_for("", "v1", "Pod") is rules_for("", "v1", "Pod")
