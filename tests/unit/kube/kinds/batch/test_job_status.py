"""Allowed changes of a job's status."""

from __future__ import annotations

from typing import Any

import pytest

T1, T2, T3 = "2030-01-01T00:00:00Z", "2030-01-01T00:01:00Z", "2030-01-01T00:02:00Z"
INDEXED = {"spec.completionMode": "Indexed", "spec.completions": 5}


def conditions(*names: str) -> list[dict[str, str]]:
    return [{"type": name, "status": "True"} for name in names]


DONE = {
    "startTime": T1,
    "completionTime": T2,
    "conditions": conditions("SuccessCriteriaMet", "Complete"),
    "succeeded": 1,
}
BROKEN = {"startTime": T1, "conditions": conditions("FailureTarget", "Failed"), "failed": 1}
SET = "status.conditions: Invalid value: cannot "


def test_a_job_may_start_run_and_finish(kinds: Any) -> None:
    running = {"startTime": T1, "active": 2, "ready": 1}
    assert kinds.status_faults("Job", running) == []
    assert kinds.status_faults("Job", DONE, running) == []
    assert kinds.status_faults("Job", BROKEN, running) == []
    assert kinds.status_faults("Job", DONE, DONE) == []


CASES: list[tuple[dict[str, Any], dict[str, Any], list[str]]] = [
    ({"active": -1}, {}, ["status.active: Invalid value: -1: must be greater than or equal to 0"]),
    ({"active": 1, "ready": 2}, {}, ["status.ready: Invalid value: 2: cannot set more ready pods than active"]),
    ({"failed": 1}, {"failed": 2}, ["status.failed: Invalid value: 1: cannot decrease the failed counter"]),
    ({"succeeded": 1}, {"succeeded": 2}, ["status.succeeded: Invalid value: 1: cannot decrease the succeeded counter"]),
    (
        {"uncountedTerminatedPods": {"succeeded": ["a"], "failed": ["a", ""]}},
        {},
        [
            'status.uncountedTerminatedPods.failed[0]: Duplicate value: "a"',
            'status.uncountedTerminatedPods.failed[1]: Invalid value: "": must not be empty',
        ],
    ),
    ({**DONE, "active": 1}, {}, ["status.active: Invalid value: 1: active>0 is invalid for finished job"]),
    (
        {**DONE, "terminating": 1},
        {},
        ["status.terminating: Invalid value: 1: terminating>0 is invalid for finished job"],
    ),
    (
        {**DONE, "uncountedTerminatedPods": {"failed": ["a"]}},
        {},
        ['status.uncountedTerminatedPods: Invalid value: {"failed":["a"]}: must be empty for finished job'],
    ),
    (
        {key: value for key, value in DONE.items() if key != "startTime"},
        {},
        ["status.startTime: Required value: startTime is required for finished job"],
    ),
    (
        {key: value for key, value in DONE.items() if key != "completionTime"},
        {},
        ["status.completionTime: Required value: completionTime is required for Complete jobs"],
    ),
    (
        {"startTime": T1, "completionTime": T2},
        {},
        [
            f'status.completionTime: Invalid value: "{T2}": '
            "cannot set completionTime when there is no Complete=True condition"
        ],
    ),
    (
        {**DONE, "startTime": T3},
        {},
        [f'status.completionTime: Invalid value: "{T2}": must be equal to or after `startTime`'],
    ),
    ({**DONE, "completionTime": T3}, DONE, [f'status.completionTime: Invalid value: "{T3}": field is immutable']),
    (
        {"startTime": T2},
        {"startTime": T1},
        [f'status.startTime: Invalid value: "{T2}": field is immutable for unsuspended job once set'],
    ),
    (
        {**DONE, "conditions": conditions("Complete")},
        {},
        [f"{SET}set Complete=True condition without the SuccessCriteriaMet=true condition"],
    ),
    (
        {**BROKEN, "conditions": conditions("Failed")},
        {},
        [f"{SET}set Failed=True condition without the FailureTarget=true condition"],
    ),
    (
        {**DONE, "conditions": conditions("SuccessCriteriaMet", "Complete", "Failed", "FailureTarget")},
        {},
        [
            f"{SET}set Complete=True and Failed=true conditions",
            f"{SET}set Complete=True and FailureTarget=true conditions",
            f"{SET}set SuccessCriteriaMet=True and Failed=true conditions",
            f"{SET}set SuccessCriteriaMet=True and FailureTarget=true conditions",
        ],
    ),
    (
        {**BROKEN, "conditions": []},
        BROKEN,
        [f"{SET}disable the terminal Failed=True condition", f"{SET}disable the terminal FailureTarget=True condition"],
    ),
    (
        {"conditions": []},
        {"conditions": conditions("SuccessCriteriaMet")},
        [f"{SET}disable the SuccessCriteriaMet=True condition"],
    ),
    (
        {"completedIndexes": "0"},
        {},
        [
            'status.completedIndexes: Invalid value: "0": '
            "cannot set non-empty completedIndexes when non-indexed completion mode"
        ],
    ),
    (
        {"failedIndexes": "0"},
        {},
        [
            'status.failedIndexes: Invalid value: "0": cannot set non-null failedIndexes when backoffLimitPerIndex is null'
        ],
    ),
]


@pytest.mark.parametrize(("status", "before", "expected"), CASES)
def test_what_a_status_may_not_become(
    kinds: Any, status: dict[str, Any], before: dict[str, Any], expected: list[str]
) -> None:
    assert kinds.status_faults("Job", status, before) == expected


def test_indexes_are_checked_against_the_completions(kinds: Any) -> None:
    per_index = {**INDEXED, "spec.backoffLimitPerIndex": 1}
    assert kinds.status_faults("Job", {"completedIndexes": "0-3"}, {}, INDEXED) == []
    assert kinds.status_faults("Job", {"completedIndexes": "0-9"}, {}, INDEXED) == [
        'status.completedIndexes: Invalid value: "0-9": error parsing completedIndexes: too large index: "9"'
    ]
    assert kinds.status_faults("Job", {"completedIndexes": "0-2", "failedIndexes": "2,4"}, {}, per_index) == [
        'status.failedIndexes: Invalid value: "2,4": failedIndexes and completedIndexes overlap at index: 2'
    ]


def test_an_elastic_job_may_lose_successes(kinds: Any) -> None:
    elastic = {**INDEXED, "spec.parallelism": 5}
    assert kinds.status_faults("Job", {"succeeded": 1}, {"succeeded": 2}, elastic) == []


def test_a_suspended_job_starts_anew(kinds: Any) -> None:
    suspended = {"spec.suspend": True}
    assert kinds.status_faults("Job", {}, {"startTime": T1}, suspended) == []
    resumed = {"startTime": T2, "conditions": [{"type": "Suspended", "status": "False"}]}
    assert kinds.status_faults("Job", resumed, {"startTime": T1, "conditions": conditions("Suspended")}) == []


def test_a_job_with_a_success_policy_needs_its_criteria_met(kinds: Any) -> None:
    spec = {**INDEXED, "spec.successPolicy": {"rules": [{"succeededCount": 1}]}}
    found = kinds.status_faults("Job", {**DONE, "conditions": conditions("Complete")}, {}, spec)
    assert f"{SET}set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True" in found


def test_an_old_status_that_broke_the_rules_may_still_be_updated(kinds: Any) -> None:
    legacy = {"startTime": T1, "completionTime": T2, "conditions": conditions("Complete"), "succeeded": 1}
    assert kinds.status_faults("Job", {**legacy, "succeeded": 2}, legacy) == []
