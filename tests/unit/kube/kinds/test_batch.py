"""Job and CronJob: defaults, the generated selector, policies and immutability."""

from __future__ import annotations

from typing import Any

import pytest

UID = "0b7c0c4e-6d5c-4a49-9f0b-4a1f3f1d2c3b"
NEGATIVE = "must be greater than or equal to 0"
GENERATED = {
    "batch.kubernetes.io/controller-uid": UID,
    "batch.kubernetes.io/job-name": "import",
    "controller-uid": UID,
    "job-name": "import",
}


def test_a_job_gets_its_defaults(kinds: Any) -> None:
    spec = kinds.created("Job")["spec"]
    expected = {
        "completions": 1,
        "parallelism": 1,
        "backoffLimit": 6,
        "completionMode": "NonIndexed",
        "suspend": False,
        "podReplacementPolicy": "TerminatingOrFailed",
        "manualSelector": False,
    }
    assert {name: spec[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("edits", "expected"),
    [
        ({"spec.completions": 3}, (3, 1)),
        ({"spec.parallelism": 3}, (None, 3)),
        ({"spec.parallelism": 0}, (None, 0)),
        ({"spec.completions": 3, "spec.parallelism": 2}, (3, 2)),
    ],
)
def test_completions_stay_open_when_only_parallelism_is_given(
    kinds: Any, edits: dict[str, Any], expected: tuple[int | None, int]
) -> None:
    spec = kinds.created("Job", edits)["spec"]
    assert (spec.get("completions"), spec["parallelism"]) == expected


def test_a_limit_per_index_lifts_the_limit_of_the_whole(kinds: Any) -> None:
    edits = {"spec.completionMode": "Indexed", "spec.completions": 2, "spec.backoffLimitPerIndex": 1}
    assert kinds.created("Job", edits)["spec"]["backoffLimit"] == 2**31 - 1


def test_a_failure_policy_changes_when_pods_are_replaced(kinds: Any) -> None:
    rule = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}
    spec = kinds.created("Job", {"spec.podFailurePolicy": {"rules": [rule]}})["spec"]
    assert spec["podReplacementPolicy"] == "Failed"
    assert spec["podFailurePolicy"]["rules"][0]["onPodConditions"] == [{"type": "DisruptionTarget", "status": "True"}]


def test_a_job_selects_its_pods_by_its_uid(kinds: Any) -> None:
    made = kinds.created("Job")
    assert made["spec"]["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": UID}}
    assert made["spec"]["template"]["metadata"]["labels"] == GENERATED
    assert made["metadata"]["labels"] == GENERATED


def test_labels_of_a_job_are_its_own_when_it_has_any(kinds: Any) -> None:
    made = kinds.created("Job", {"metadata.labels": {"own": "1"}})
    assert made["metadata"]["labels"] == {"own": "1"}


def test_a_manual_selector_is_left_alone(kinds: Any) -> None:
    edits = {
        "spec.manualSelector": True,
        "spec.selector": {"matchLabels": {"mine": "1"}},
        "spec.template.metadata": {"labels": {"mine": "1"}},
    }
    made = kinds.created("Job", edits)
    assert made["spec"]["selector"] == {"matchLabels": {"mine": "1"}}
    assert made["spec"]["template"]["metadata"]["labels"] == {"mine": "1"}
    assert kinds.faults("Job", edits) == []


def test_a_selector_that_is_not_generated_is_refused(kinds: Any) -> None:
    found = kinds.faults("Job", {"spec.selector": {"matchLabels": {"mine": "1"}}})
    assert any("`selector` not auto-generated" in text for text in found)


def test_labels_that_belong_to_the_server_are_refused(kinds: Any) -> None:
    found = kinds.faults("Job", {"spec.template.metadata": {"labels": {"job-name": "other"}}})
    assert found == [
        'spec.template.metadata.labels[job-name]: Invalid value: {"job-name":"other",'
        f'"batch.kubernetes.io/job-name":"import","controller-uid":"{UID}",'
        f'"batch.kubernetes.io/controller-uid":"{UID}"}}: must be \'import\''
    ]


INDEXED = {"spec.completionMode": "Indexed", "spec.completions": 3}
PER_INDEX = {**INDEXED, "spec.backoffLimitPerIndex": 1}


def failure(**rule: Any) -> dict[str, Any]:
    return {"spec.podFailurePolicy": {"rules": [rule]}}


def success(**rule: Any) -> dict[str, Any]:
    return {**INDEXED, "spec.successPolicy": {"rules": [rule]}}


RULE = "spec.podFailurePolicy.rules[0]"
CASES: list[tuple[dict[str, Any], list[str]]] = [
    ({"spec.parallelism": -1}, [f"spec.parallelism: Invalid value: -1: {NEGATIVE}"]),
    ({"spec.completions": -1}, [f"spec.completions: Invalid value: -1: {NEGATIVE}"]),
    ({"spec.activeDeadlineSeconds": -1}, [f"spec.activeDeadlineSeconds: Invalid value: -1: {NEGATIVE}"]),
    ({"spec.backoffLimit": -1}, [f"spec.backoffLimit: Invalid value: -1: {NEGATIVE}"]),
    ({"spec.ttlSecondsAfterFinished": -1}, [f"spec.ttlSecondsAfterFinished: Invalid value: -1: {NEGATIVE}"]),
    (
        {"spec.template.spec.restartPolicy": "Always"},
        ['spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"'],
    ),
    (
        {"spec.completionMode": "Some"},
        ['spec.completionMode: Unsupported value: "Some": supported values: "Indexed", "NonIndexed"'],
    ),
    (
        {"spec.completionMode": "Indexed", "spec.parallelism": 1},
        ["spec.completions: Required value: when completion mode is Indexed"],
    ),
    (
        {**INDEXED, "spec.parallelism": 100001},
        ["spec.parallelism: Invalid value: 100001: must be less than or equal to 100000 when completion mode is Indexed"],
    ),
    (
        {"spec.backoffLimitPerIndex": 1},
        ["spec.backoffLimitPerIndex: Invalid value: 1: requires indexed completion mode"],
    ),
    (
        {**INDEXED, "spec.maxFailedIndexes": 1},
        ["spec.backoffLimitPerIndex: Required value: when maxFailedIndexes is specified"],
    ),
    (
        {**PER_INDEX, "spec.maxFailedIndexes": 4},
        ["spec.maxFailedIndexes: Invalid value: 4: must be less than or equal to completions"],
    ),
    (
        {**PER_INDEX, "spec.completions": 100001},
        ["spec.maxFailedIndexes: Required value: must be specified when completions is above 100000"],
    ),
    ({**PER_INDEX, "spec.maxFailedIndexes": 2}, []),
    (
        {"spec.managedBy": "nobody"},
        ['spec.managedBy: Invalid value: "nobody": must be a domain-prefixed path (such as "acme.io/foo")'],
    ),
    ({"spec.managedBy": "shop.example/runner"}, []),
    ({"spec.managedBy": "shop.example/" + "r" * 60}, ["spec.managedBy: Too long: may not be more than 63 bytes"]),
    (
        {"spec.podReplacementPolicy": "Later"},
        ['spec.podReplacementPolicy: Unsupported value: "Later": supported values: "Failed", "TerminatingOrFailed"'],
    ),
    (failure(action="FailJob", onExitCodes={"operator": "In", "values": [1, 2]}), []),
    (failure(action="FailJob"), [f"{RULE}: Invalid value: specifying one of OnExitCodes and OnPodConditions is required"]),
    (
        failure(
            action="Count",
            onExitCodes={"operator": "In", "values": [1]},
            onPodConditions=[{"type": "DisruptionTarget", "status": "True"}],
        ),
        [f"{RULE}: Invalid value: specifying both OnExitCodes and OnPodConditions is not supported"],
    ),
    (
        failure(action="FailIndex", onExitCodes={"operator": "In", "values": [1]}),
        [f'{RULE}.action: Invalid value: "FailIndex": requires the backoffLimitPerIndex to be set'],
    ),
    (
        failure(onExitCodes={"operator": "In", "values": [1]}),
        [f'{RULE}.action: Required value: valid values: ["Count" "FailIndex" "FailJob" "Ignore"]'],
    ),
    (
        failure(action="Stop", onExitCodes={"operator": "In", "values": [1]}),
        [f'{RULE}.action: Unsupported value: "Stop": supported values: "Count", "FailIndex", "FailJob", "Ignore"'],
    ),
    (
        failure(action="Count", onExitCodes={"operator": "In", "values": []}),
        [f"{RULE}.onExitCodes.values: Invalid value: []: at least one value is required"],
    ),
    (
        failure(action="Count", onExitCodes={"operator": "In", "values": [0]}),
        [f"{RULE}.onExitCodes.values[0]: Invalid value: 0: must not be 0 for the In operator"],
    ),
    (
        failure(action="Count", onExitCodes={"operator": "NotIn", "values": [2, 1, 1]}),
        [
            f"{RULE}.onExitCodes.values[2]: Duplicate value: 1",
            f"{RULE}.onExitCodes.values: Invalid value: [2,1,1]: must be ordered",
        ],
    ),
    (
        failure(action="Count", onExitCodes={"operator": "NotIn", "values": [1], "containerName": "x"}),
        [
            f'{RULE}.onExitCodes.containerName: Invalid value: "x": '
            "must be one of the container or initContainer names in the pod template"
        ],
    ),
    (
        failure(action="Count", onPodConditions=[{"type": "DisruptionTarget", "status": "Maybe"}]),
        [
            f'{RULE}.onPodConditions[0].status: Unsupported value: "Maybe": '
            'supported values: "False", "True", "Unknown"'
        ],
    ),
    (
        {**failure(action="Count", onExitCodes={"operator": "In", "values": [1]}),
         "spec.template.spec.restartPolicy": "OnFailure"},
        [
            'spec.template.spec.restartPolicy: Invalid value: "OnFailure": '
            'only "Never" is supported when podFailurePolicy is specified'
        ],
    ),
    (
        {"spec.successPolicy": {"rules": [{"succeededCount": 1}]}},
        ['spec.successPolicy: Invalid value: {"rules":[{"succeededCount":1}]}: requires indexed completion mode'],
    ),
    (
        {**INDEXED, "spec.successPolicy": {"rules": []}},
        [
            "spec.successPolicy.rules: Required value: "
            "at least one rules must be specified when the successPolicy is specified"
        ],
    ),
    (
        success(),
        [
            "spec.successPolicy.rules[0]: Required value: "
            "at least one of succeededCount or succeededIndexes must be specified"
        ],
    ),
    (
        success(succeededIndexes="5"),
        [
            'spec.successPolicy.rules[0].succeededIndexes: Invalid value: "5": '
            'error parsing succeededIndexes: too large index: "5"'
        ],
    ),
    (
        success(succeededIndexes="0-1", succeededCount=3),
        [
            "spec.successPolicy.rules[0].succeededCount: Invalid value: 3: must be less than or equal to 2 "
            "(the number of indexes in the specified succeededIndexes field)"
        ],
    ),
    (
        success(succeededCount=4),
        [
            "spec.successPolicy.rules[0].succeededCount: Invalid value: 4: must be less than or equal to 3 "
            "(the number of specified completions)"
        ],
    ),
    (success(succeededIndexes="0,2", succeededCount=1), []),
    (
        {**INDEXED, "metadata.name": "n" * 62},
        [
            f'metadata.name: Invalid value: "{"n" * 62}": '
            f"will not able to create pod with invalid DNS label: {'n' * 62}-2"
        ],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("edits", "expected"), CASES)
def test_what_is_wrong_with_a_job(kinds: Any, edits: dict[str, Any], expected: list[str]) -> None:
    assert kinds.faults("Job", edits) == expected


@pytest.mark.parametrize(
    ("before", "edits", "field"),
    [
        ({}, {"spec.completions": 2}, "spec.completions"),
        ({}, {"spec.completionMode": "Indexed"}, "spec.completionMode"),
        ({}, {"spec.managedBy": "a.example/b"}, "spec.managedBy"),
        (PER_INDEX, {"spec.backoffLimitPerIndex": 2}, "spec.backoffLimitPerIndex"),
        ({}, {"spec.template.spec.containers.0.image": "registry.example/other:1"}, "spec.template"),
        ({}, {"spec.template.spec.nodeSelector": {"a": "b"}}, "spec.template"),
    ],
)
def test_what_never_changes_in_a_job(kinds: Any, before: dict[str, Any], edits: dict[str, Any], field: str) -> None:
    (found,) = kinds.update_faults("Job", edits, before)
    assert found.startswith(f"{field}: Invalid value: ")
    assert found.endswith(": field is immutable")


@pytest.mark.parametrize(
    "edits",
    [{"spec.parallelism": 4}, {"spec.suspend": True}, {"spec.activeDeadlineSeconds": 9}, {"spec.backoffLimit": 2}],
)
def test_what_may_change_in_a_job(kinds: Any, edits: dict[str, Any]) -> None:
    assert kinds.update_faults("Job", edits) == []


def test_an_indexed_job_grows_only_with_its_parallelism(kinds: Any) -> None:
    before = {**INDEXED, "spec.parallelism": 3}
    assert kinds.update_faults("Job", {"spec.completions": 5, "spec.parallelism": 5}, before) == []
    assert kinds.update_faults("Job", {"spec.completions": 5}, before) == [
        "spec.completions: Invalid value: 5: can only be modified in tandem with spec.parallelism"
    ]


OPEN = {"spec.suspend": True}
NODES = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
    {"matchExpressions": [{"key": "a", "operator": "Exists"}]}]}}  # fmt: skip


@pytest.mark.parametrize(
    "edits",
    [
        {"spec.template.spec.nodeSelector": {"a": "b"}},
        {"spec.template.spec.tolerations": [{"key": "a", "operator": "Exists"}]},
        {"spec.template.spec.affinity": {"nodeAffinity": NODES}},
        {"spec.template.spec.schedulingGates": [{"name": "shop.example/wait"}]},
        {"spec.template.metadata.annotations": {"a": "b"}},
        {"spec.template.spec.containers.0.resources": {"requests": {"cpu": "1"}}},
    ],
)
def test_a_suspended_job_may_still_be_placed_and_sized(kinds: Any, edits: dict[str, Any]) -> None:
    assert kinds.update_faults("Job", edits, OPEN) == []
    running = kinds.update_faults("Job", edits)
    assert [text.partition(":")[0] for text in running] == ["spec.template"]


def test_a_suspended_job_may_not_become_another(kinds: Any) -> None:
    (found,) = kinds.update_faults("Job", {"spec.template.spec.containers.0.image": "registry.example/x:1"}, OPEN)
    assert found.startswith("spec.template.spec: Invalid value: ")


def test_the_template_of_a_suspended_job_that_ran_is_immutable_until_its_status_shows_the_suspension(
    kinds: Any,
) -> None:
    edits = {"spec.template.spec.nodeSelector": {"a": "b"}}
    started = {**OPEN, "status": {"startTime": "2030-01-01T00:00:00Z"}}
    assert len(kinds.update_faults("Job", edits, started)) == 1
    suspended = [{"type": "Suspended", "status": "True"}]
    halted = {**OPEN, "status": {"startTime": "2030-01-01T00:00:00Z", "conditions": suspended}}
    assert kinds.update_faults("Job", edits, halted) == []


def test_successes_are_selectable(kinds: Any) -> None:
    field = kinds.rules(kinds.example("Job")).selectable["status.successful"]
    assert (field({}), field({"status": {"succeeded": 2}})) == ("0", "2")


def test_a_huge_indexed_job_is_warned_of(kinds: Any) -> None:
    edits = {**INDEXED, "spec.completions": 200_000, "spec.parallelism": 20_000}
    assert any("completedIndexes" in text for text in kinds.warnings("Job", edits))


# --- CronJob


def test_a_cron_job_gets_its_defaults(kinds: Any) -> None:
    spec = kinds.created("CronJob")["spec"]
    assert spec["concurrencyPolicy"] == "Allow"
    assert spec["suspend"] is False
    assert (spec["successfulJobsHistoryLimit"], spec["failedJobsHistoryLimit"]) == (3, 1)
    job = spec["jobTemplate"]["spec"]
    assert "completions" not in job
    assert job["template"]["spec"]["schedulerName"] == "default-scheduler"


JOB = "spec.jobTemplate.spec"
CRON_CASES: list[tuple[dict[str, Any], list[str]]] = [
    ({"spec.schedule": ""}, ["spec.schedule: Required value"]),
    ({"spec.schedule": "@hourly"}, []),
    ({"spec.schedule": "@every 90m"}, []),
    (
        {"spec.schedule": "* * *"},
        ['spec.schedule: Invalid value: "* * *": expected exactly 5 fields, found 3: [* * *]'],
    ),
    (
        {"spec.schedule": "60 * * * *"},
        ['spec.schedule: Invalid value: "60 * * * *": end of range (60) above maximum (59): 60'],
    ),
    (
        {"spec.schedule": "TZ=UTC 0 * * * *"},
        [
            'spec.schedule: Invalid value: "TZ=UTC 0 * * * *": '
            "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
        ],
    ),
    ({"spec.timeZone": ""}, ['spec.timeZone: Invalid value: "": timeZone must be nil or non-empty string']),
    (
        {"spec.timeZone": "Mars/Olympus"},
        ['spec.timeZone: Invalid value: "Mars/Olympus": unknown time zone Mars/Olympus'],
    ),
    ({"spec.timeZone": "../etc"}, ['spec.timeZone: Invalid value: "../etc": unknown time zone ../etc']),
    (
        {"spec.timeZone": "Local"},
        [
            'spec.timeZone: Invalid value: "Local": '
            "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"
        ],
    ),
    (
        {"spec.concurrencyPolicy": "Maybe"},
        ['spec.concurrencyPolicy: Unsupported value: "Maybe": supported values: "Allow", "Forbid", "Replace"'],
    ),
    ({"spec.startingDeadlineSeconds": -1}, [f"spec.startingDeadlineSeconds: Invalid value: -1: {NEGATIVE}"]),
    ({"spec.failedJobsHistoryLimit": -1}, [f"spec.failedJobsHistoryLimit: Invalid value: -1: {NEGATIVE}"]),
    (
        {f"{JOB}.selector": {"matchLabels": {"a": "b"}}},
        [f'{JOB}.selector: Invalid value: {{"matchLabels":{{"a":"b"}}}}: `selector` will be auto-generated'],
    ),
    (
        {f"{JOB}.manualSelector": True},
        [f'{JOB}.manualSelector: Unsupported value: true: supported values: "false", "nil"'],
    ),
    (
        {f"{JOB}.template.spec.restartPolicy": "Always"},
        [f'{JOB}.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"'],
    ),
    ({"metadata.name": "n" * 53}, [f'metadata.name: Invalid value: "{"n" * 53}": must be no more than 52 characters']),
]


@pytest.mark.parametrize(("edits", "expected"), CRON_CASES)
def test_what_is_wrong_with_a_cron_job(kinds: Any, edits: dict[str, Any], expected: list[str]) -> None:
    assert kinds.faults("CronJob", edits) == expected


def test_a_cron_job_may_change_and_keep_its_long_name(kinds: Any) -> None:
    before = {"metadata.name": "n" * 60}
    assert kinds.update_faults("CronJob", {"spec.schedule": "@daily", "spec.suspend": True}, before) == []


def test_a_zone_inside_the_schedule_is_kept_where_it_was(kinds: Any) -> None:
    before = {"spec.schedule": "CRON_TZ=UTC 0 * * * *", "spec.timeZone": kinds.ABSENT}
    assert kinds.update_faults("CronJob", {"spec.suspend": True}, before) == []
    both = kinds.update_faults("CronJob", {"spec.timeZone": "UTC"}, before)
    assert [text.rpartition(": ")[2] for text in both] == [
        "cannot use both timeZone field and TZ or CRON_TZ in schedule"
    ]
    assert any("use timeZone instead" in text for text in kinds.warnings("CronJob", before))


def test_a_field_written_out_as_false_is_no_change(kinds: Any) -> None:
    assert kinds.update_faults("Job", {"spec.template.spec.hostNetwork": False}) == []
