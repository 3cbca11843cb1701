"""The progress of a simulated pod: a function of its behaviour and the time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_pods import a_pod

from shoal.kube.times import format_time
from shoal.node.simulated import plan
from shoal.node.simulated.model import Behaviour, PodProgress, Stage

NOW = 1_700_000_000.0


def step_at(behaviour: Behaviour, after_s: float, **spec: Any) -> plan.PodStep:
    pod = a_pod(**spec)
    return plan.advance(plan.resume(pod, "10.0.0.1", NOW), behaviour, pod, NOW + after_s)


def status_at(behaviour: Behaviour, after_s: float, **spec: Any) -> dict[str, Any]:
    pod = a_pod(**spec)
    step = step_at(behaviour, after_s, **spec)
    return plan.status_of(step.progress, behaviour, pod, "172.16.0.1", NOW + after_s)


def test_a_pod_without_delays_runs_and_is_ready_at_once() -> None:
    status = status_at(Behaviour(), 0)
    assert status["phase"] == "Running"
    assert {each["type"]: each["status"] for each in status["conditions"]} == dict.fromkeys(
        ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"), "True"
    )
    assert status["podIPs"] == [{"ip": "10.0.0.1"}]
    assert step_at(Behaviour(), 0).due == plan.NEVER


@pytest.mark.parametrize(
    ("after_s", "phase", "ready", "due_s"),
    [(0, "Pending", "False", 3), (3, "Running", "False", 5), (5, "Running", "True", None)],
)
def test_start_and_readiness_take_their_time(after_s: float, phase: str, ready: str, due_s: float | None) -> None:
    behaviour = Behaviour(start_s=3, ready_s=2)
    status, step = status_at(behaviour, after_s), step_at(behaviour, after_s)
    assert status["phase"] == phase
    assert next(each for each in status["conditions"] if each["type"] == "Ready")["status"] == ready
    assert step.due == (plan.NEVER if due_s is None else NOW + due_s)


@pytest.mark.parametrize(
    ("policy", "code", "stage", "phase"),
    [
        ("Never", 0, Stage.FINISHED, "Succeeded"), ("Never", 3, Stage.FINISHED, "Failed"),
        ("OnFailure", 0, Stage.FINISHED, "Succeeded"), ("OnFailure", 3, Stage.RUNNING, "Running"),
        ("Always", 0, Stage.RUNNING, "Running"),
    ],
)  # fmt: skip
def test_an_exit_ends_the_pod_or_restarts_it_by_policy(policy: str, code: int, stage: Stage, phase: str) -> None:
    behaviour = Behaviour(run_s=10, exit_codes=(code,))
    assert step_at(behaviour, 10.5, restartPolicy=policy).progress.stage is stage
    status = status_at(behaviour, 10.5, restartPolicy=policy)
    assert status["phase"] == phase
    if stage is Stage.RUNNING:
        assert status["containerStatuses"][0]["restartCount"] == 1
        assert status["containerStatuses"][0]["lastState"]["terminated"]["exitCode"] == code


def test_restarts_wait_ten_seconds_and_twice_as_long_each_time_up_to_five_minutes() -> None:
    behaviour, pod = Behaviour(run_s=1, exit_codes=(1,)), a_pod()
    progress, now, waits = plan.resume(pod, "10.0.0.1", NOW), NOW, []
    while len(waits) < 8:
        step = plan.advance(progress, behaviour, pod, now)
        if step.progress.stage is Stage.BACKOFF:
            waits.append(step.due - step.progress.exited_at)
        progress, now = step.progress, step.due
    assert waits == [10, 20, 40, 80, 160, 300, 300, 300]


def test_a_long_run_resets_the_backoff() -> None:
    progress = PodProgress(
        uid="u", address="", stage=Stage.BACKOFF, restarts=7, started_at=NOW - 600, exited_at=NOW, since=NOW
    )
    assert plan.backoff_s(progress) == 0
    assert plan.backoff_s(replace(progress, started_at=NOW - 599)) == 300


def test_a_crash_loop_is_shown_with_the_last_exit() -> None:
    status = status_at(Behaviour(run_s=1, exit_codes=(2,)), 3)
    container = status["containerStatuses"][0]
    assert container["state"]["waiting"] == {
        "reason": "CrashLoopBackOff", "message": "back-off 10s restarting failed container=c"
    }  # fmt: skip
    assert container["lastState"]["terminated"]["exitCode"] == 2
    assert status["phase"] == "Running"


def test_the_deadline_of_a_pod_ends_it() -> None:
    step = step_at(Behaviour(), 4, activeDeadlineSeconds=5)
    assert step.due == NOW + 5
    status = status_at(Behaviour(), 5, activeDeadlineSeconds=5)
    assert (status["phase"], status["reason"]) == ("Failed", "DeadlineExceeded")


def test_a_pod_whose_image_is_missing_never_starts() -> None:
    status = status_at(Behaviour(image_error=True), 100)
    assert status["phase"] == "Pending"
    assert status["containerStatuses"][0]["state"]["waiting"]["reason"] == "ErrImagePull"


def test_readiness_gates_keep_a_pod_unready_until_they_open() -> None:
    pod = a_pod(readinessGates=[{"conditionType": "example.org/gate"}])
    progress = plan.advance(plan.resume(pod, "10.0.0.1", NOW), Behaviour(), pod, NOW).progress
    assert plan.summary(progress, Behaviour(), pod, NOW)[1] == "False"
    pod["status"]["conditions"] = [{"type": "example.org/gate", "status": "True"}]
    assert plan.summary(progress, Behaviour(), pod, NOW)[1] == "True"
    status = plan.status_of(progress, Behaviour(), pod, "172.16.0.1", NOW)
    assert {"type": "example.org/gate", "status": "True"} in status["conditions"]


behaviours = st.builds(
    Behaviour, start_s=st.floats(0, 20), ready_s=st.floats(0, 20), run_s=st.none() | st.floats(0, 700),
    exit_codes=st.tuples(st.integers(0, 3)), failure_rate=st.floats(0, 1), image_error=st.booleans(),
)  # fmt: skip


@given(behaviours, st.floats(0, 5000), st.sampled_from(["Always", "OnFailure", "Never"]))
@settings(max_examples=300)
def test_a_written_status_is_recognised_and_not_written_again(
    behaviour: Behaviour, after_s: float, policy: str
) -> None:
    pod = a_pod(restartPolicy=policy)
    now = NOW + after_s
    step = plan.advance(plan.resume(pod, "10.0.0.1", NOW), behaviour, pod, now)
    written = {**pod, "status": plan.status_of(step.progress, behaviour, pod, "172.16.0.1", now)}
    assert plan.summary_of(written["status"]) == plan.summary(step.progress, behaviour, written, now)
    assert step.due > now


@given(behaviours, st.floats(0, 5000), st.sampled_from(["Always", "OnFailure", "Never"]))
@settings(max_examples=200)
def test_a_restarted_fleet_continues_from_the_status_in_the_api(
    behaviour: Behaviour, after_s: float, policy: str
) -> None:
    pod = a_pod(restartPolicy=policy)
    now = NOW + after_s
    progress = plan.advance(plan.resume(pod, "10.0.0.1", NOW), behaviour, pod, now).progress
    written = {**pod, "status": plan.status_of(progress, behaviour, pod, "172.16.0.1", now)}
    found = plan.resume(written, "10.9.9.9", now)
    if progress.stage is not Stage.WAITING:
        assert (found.stage, found.restarts, found.address) == (progress.stage, progress.restarts, progress.address)


@pytest.mark.parametrize("phase", plan.TERMINAL)
def test_a_terminal_phase_never_changes(phase: str) -> None:
    pod = {**a_pod(), "status": {"phase": phase}}
    assert plan.resume(pod, "10.0.0.1", NOW).stage is Stage.FINISHED


def test_an_ephemeral_container_runs_from_when_it_is_seen_until_the_pod_ends() -> None:
    pod = a_pod(ephemeralContainers=[{"name": "debugger", "image": "busybox"}])
    progress = PodProgress(uid="u", address="10.0.0.1", stage=Stage.RUNNING, since=NOW, started_at=NOW, begun_at=NOW)
    first = plan.status_of(progress, Behaviour(), pod, "192.0.2.1", NOW + 5)
    (guest,) = first["ephemeralContainerStatuses"]
    assert guest["state"] == {"running": {"startedAt": format_time(NOW + 5)}}
    assert not guest["ready"]
    later = plan.status_of(progress, Behaviour(), {**pod, "status": first}, "192.0.2.1", NOW + 9)
    assert later["ephemeralContainerStatuses"] == [guest]
    ended = plan.status_of(
        plan.stopped(progress, NOW + 10), Behaviour(), {**pod, "status": later}, "192.0.2.1", NOW + 10
    )
    (guest,) = ended["ephemeralContainerStatuses"]
    assert guest["state"]["terminated"]["startedAt"] == format_time(NOW + 5)


def test_a_new_generation_is_written() -> None:
    pod = a_pod()
    progress = step_at(Behaviour(), 0).progress
    pod["status"] = plan.status_of(progress, Behaviour(), pod, "172.16.0.1", NOW)
    assert plan.summary_of(pod["status"]) == plan.summary(progress, Behaviour(), pod, NOW)
    pod["metadata"]["generation"] = 2
    assert plan.summary_of(pod["status"]) != plan.summary(progress, Behaviour(), pod, NOW)


def test_a_failure_has_an_event_with_its_reason() -> None:
    pod = {
        "metadata": {"name": "p", "namespace": "n", "uid": "u"},
        "spec": {"containers": [{"name": "c", "image": "i:1"}]},
    }
    crashed = PodProgress(uid="u", address="", stage=Stage.BACKOFF)
    expected = ("BackOff", "Back-off restarting failed container c in pod p_n(u)")
    assert plan.failure_event(crashed, Behaviour(), pod) == expected
    waiting = PodProgress(uid="u", address="")
    reason, message = plan.failure_event(waiting, Behaviour(image_error=True), pod) or ("", "")
    assert reason == "Failed" and 'failed to pull image "i:1"' in message
    assert plan.failure_event(waiting, Behaviour(), pod) is None
