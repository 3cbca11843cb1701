"""StorageVersionMigration: what it may name, and how its status goes on."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from shoal.kube.objects import Obj

KIND = "StorageVersionMigration"


def a_condition(kind: str, status: str = "True") -> Obj:
    return {"type": kind, "status": status, "reason": "R", "lastTransitionTime": "2026-01-01T00:00:00Z"}


@pytest.mark.parametrize(
    ("edits", "fault"),
    [
        ({"spec.resource.resource": ""}, "spec.resource.resource: Required value: resource is required to be set"),
        ({"spec.resource.resource": "Pods"}, 'spec.resource.resource: Invalid value: "Pods": a DNS-1035 label must'),
        ({"spec.resource.group": "a_b"}, 'spec.resource.group: Invalid value: "a_b": a lowercase RFC 1123 subdomain'),
    ],
)
def test_what_is_wrong_with_a_resource(kinds: SimpleNamespace, edits: Obj, fault: str) -> None:
    found = kinds.faults(KIND, edits)
    assert len(found) == 1 and found[0].startswith(fault), found


def test_the_example_and_the_core_group_are_valid_and_the_spec_stays(kinds: SimpleNamespace) -> None:
    assert kinds.faults(KIND) == kinds.faults(KIND, {"spec.resource.group": kinds.ABSENT}) == []
    assert "field is immutable" in kinds.update_faults(KIND, {"spec.resource.resource": "others"})[0]


@pytest.mark.parametrize(
    ("before", "after", "fault"),
    [
        ({}, {"resourceVersion": "x"}, "resource version is not a well formed decimal number"),
        ({"resourceVersion": "5"}, {"resourceVersion": "6"}, "status.resourceVersion: "),
        ({}, {"conditions": [a_condition("Succeeded"), a_condition("Failed")]}, "cannot be true at the same time"),
        ({"conditions": [a_condition("Succeeded")]}, {}, "Success condition cannot be set to false once it is true"),
        ({"conditions": [a_condition("Failed")]}, {}, "Failed condition cannot be set to false once it is true"),
    ],
)
def test_a_status_goes_only_forward(kinds: SimpleNamespace, before: Obj, after: Obj, fault: str) -> None:
    found = kinds.status_faults(KIND, after, before)
    assert len(found) == 1 and fault in found[0], found


def test_a_migration_that_runs_may_succeed(kinds: SimpleNamespace) -> None:
    before = {"resourceVersion": "5", "conditions": [a_condition("Running")]}
    assert kinds.status_faults(KIND, {**before, "conditions": [a_condition("Succeeded")]}, before) == []
