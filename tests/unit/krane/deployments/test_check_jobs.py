"""The Job of a rollout's check, and what the cluster's state of it means."""

from __future__ import annotations

from typing import Any

import pytest
from rendered_states import OWNER, full_state

from shoal.krane import labels
from shoal.krane.deployments.check_jobs import job_object, result_of
from shoal.krane.deployments.render import render
from shoal.krane.deployments.rendering import NEWEST, Rendering
from shoal.wire.fleet.v1 import cluster_pb as pb

STATE = full_state()
JOB = STATE.check_jobs[0]
S = pb.CheckJobState


def pod(**state: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p"}, "status": {"containerStatuses": [{"name": "check", "state": state}]}}


def live(*conditions: str, reason: str = "", message: str = "") -> dict[str, Any]:
    made = job_object(STATE, JOB, OWNER, Rendering(NEWEST))
    about = {"reason": reason, "message": message, "status": "True"}
    return {**made, "status": {"conditions": [{"type": each, **about} for each in conditions]}}


def test_a_job_runs_once_within_its_limits_and_cannot_be_taken_for_an_instance():
    made = job_object(STATE, JOB, OWNER, Rendering(NEWEST))
    spec, template = made["spec"], made["spec"]["template"]
    assert (spec["backoffLimit"], spec["activeDeadlineSeconds"]) == (0, 60)
    (container,) = template["spec"]["containers"]
    resources = container["resources"]
    assert (
        resources["limits"] == resources["requests"] == {"cpu": "100m", "memory": "128Mi", "ephemeral-storage": "10Mi"}
    )
    assert template["spec"]["restartPolicy"] == "Never" and not template["spec"]["automountServiceAccountToken"]
    assert "envFrom" not in container, "the app's secrets are not the check's"
    selector = render(STATE, OWNER, {}).root["spec"]["selector"]["matchLabels"]
    assert not selector.items() <= template["metadata"]["labels"].items()
    siblings = {labels.FLEET, labels.MANAGED_BY, labels.ENVIRONMENT}
    assert siblings <= template["metadata"]["labels"].keys(), "the policy of the app lets it in"


def test_a_job_knows_what_it_is_about_and_its_own_variables_win():
    job = pb.CheckJob(
        id="a", check="smoke", image="i", timeout_seconds=1, env={"SHOAL_REVISION": "9", "SHOAL_WEIGHT": "5"}
    )
    (container,) = job_object(STATE, job, OWNER, Rendering(NEWEST))["spec"]["template"]["spec"]["containers"]
    env = {each["name"]: each["value"] for each in container["env"]}
    assert env["SHOAL_CANDIDATE_HOST"] == "web-1-abc.shop-live.svc"
    assert (env["SHOAL_REVISION"], env["SHOAL_WEIGHT"], env["SHOAL_CHECK"], env["PORT"]) == ("1", "5", "smoke", "8080")


@pytest.mark.parametrize(
    ("job", "pods", "state", "code", "message"),
    [
        (live(), [], S.RUNNING, 0, ""),
        (live(), [pod(waiting={"reason": "ContainerCreating"})], S.RUNNING, 0, ""),
        (live(), [pod(waiting={"reason": "ErrImagePull", "message": "no such image"})], S.RUNNING, 0,
         "ErrImagePull: no such image"),
        (live("Complete"), [pod(terminated={"exitCode": 0, "reason": "Completed"})], S.SUCCEEDED, 0, ""),
        (live("Failed", reason="BackoffLimitExceeded"),
         [pod(terminated={"exitCode": 3, "reason": "Error", "message": "2 of 9 failed\n"})], S.FAILED, 3, "2 of 9 failed"),
        (live("Failed", reason="BackoffLimitExceeded"), [pod(terminated={"exitCode": 137, "reason": "OOMKilled"})],
         S.BROKEN, 0, "OOMKilled"),
        (live("Failed", reason="BackoffLimitExceeded", message="the limit"), [], S.BROKEN, 0, "the limit"),
        (live("Failed", reason="DeadlineExceeded"), [], S.TIMED_OUT, 0, "it took longer than 60 s: ErrImagePull"),
        (None, [], S.BROKEN, 0, "the Job was deleted in the cluster"),
    ],
)  # fmt: skip
def test_only_an_exit_code_of_its_program_is_a_failure(
    job: Any, pods: list[Any], state: pb.CheckJobState, code: int, message: str
):
    found = result_of("check-smoke-abc", job, pods, "ErrImagePull")
    assert (found.state, found.exit_code, found.message) == (state, code, message)


def test_of_many_lines_the_last_are_told():
    text = "\n".join(f"line {number}" for number in range(1000))
    found = result_of("a", live("Failed"), [pod(terminated={"exitCode": 1, "message": text})])
    assert found.message.endswith("line 999") and len(found.message) <= 900
