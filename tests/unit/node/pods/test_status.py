"""The status of a pod: phase, conditions, container statuses."""

from __future__ import annotations

import pytest
from pod_views import NOW, a_container, a_pod, a_view, conditions

from shoal.node.pod_failure import PodFailure
from shoal.node.pods.status import status_of
from shoal.node.runtime.model import Container, ContainerPhase


@pytest.mark.parametrize(
    "containers",
    [
        (a_container(),),
        (a_container(phase=ContainerPhase.EXITED),),
        (a_container(phase=ContainerPhase.EXITED, code=3),),
        (a_container(phase=ContainerPhase.EXITED, code=1), a_container(phase=ContainerPhase.EXITED, attempt=1)),
        (a_container(phase=ContainerPhase.EXITED, code=1), a_container(attempt=1)),
        (a_container(phase=ContainerPhase.EXITED, attempt=2),),
    ],
)
def test_a_status_is_the_same_when_nothing_has_changed(containers: tuple[Container, ...]) -> None:
    pod = a_pod(restartPolicy="Never")
    first = status_of(a_view(pod, *containers), {}, "process", NOW)
    second = status_of(a_view({**pod, "status": first}, *containers), {}, "process", NOW + 5)
    assert second == first
    assert status_of(a_view({**pod, "status": second}, *containers), {}, "process", NOW + 9) == first


@pytest.mark.parametrize(
    ("policy", "codes", "phase"),
    [
        ("Always", (0, 0), "Running"), ("OnFailure", (0, 0), "Succeeded"), ("OnFailure", (0, 1), "Running"),
        ("Never", (0, 0), "Succeeded"), ("Never", (0, 1), "Failed"),
    ],
)  # fmt: skip
def test_the_phase_of_a_pod_whose_containers_have_exited(policy: str, codes: tuple[int, int], phase: str) -> None:
    pod = a_pod("a", "b", restartPolicy=policy)
    view = a_view(
        pod, a_container("a", ContainerPhase.EXITED, codes[0]), a_container("b", ContainerPhase.EXITED, codes[1])
    )
    assert status_of(view, {}, "r", NOW)["phase"] == phase


def test_a_running_pod_is_ready_with_its_addresses() -> None:
    status = status_of(a_view(a_pod(), a_container()), {}, "r", NOW)
    assert status["phase"] == "Running"
    assert set(conditions(status).values()) == {"True"}
    assert (status["podIP"], status["hostIP"]) == ("10.0.0.9", "192.0.2.1")
    container = status["containerStatuses"][0]
    assert container["containerID"] == "r://c-0" and container["ready"] and container["started"]


def test_a_pod_with_running_init_containers_is_initializing() -> None:
    status = status_of(a_view(a_pod(inits=("init",)), a_container("init")), {}, "r", NOW)
    assert status["containerStatuses"][0]["state"] == {"waiting": {"reason": "PodInitializing"}}
    assert status["phase"] == "Pending"
    initialized = next(each for each in status["conditions"] if each["type"] == "Initialized")
    assert initialized["reason"] == "ContainersNotInitialized"
    assert initialized["message"] == "containers with incomplete status: [init]"


def test_conditions_of_other_owners_stay_and_times_change_only_with_the_value() -> None:
    pod = a_pod(readinessGates=[{"conditionType": "x/y"}])
    gate = {"type": "x/y", "status": "False", "lastTransitionTime": "2020-01-01T00:00:00Z"}
    pod["status"]["conditions"] = [gate]
    first = status_of(a_view(pod, a_container()), {}, "r", NOW)
    assert gate in first["conditions"]
    ready = next(each for each in first["conditions"] if each["type"] == "Ready")
    assert (ready["status"], ready["reason"]) == ("False", "ReadinessGatesNotReady")
    again = status_of(a_view(pod, a_container(), old=first), {}, "r", NOW + 100)
    assert again == first


def test_a_terminal_phase_never_changes() -> None:
    pod = a_pod()
    old = {**pod["status"], "phase": "Failed", "reason": "Evicted", "message": "low"}
    status = status_of(a_view(pod, a_container(), old=old), {}, "r", NOW)
    assert (status["phase"], status["reason"], status["message"]) == ("Failed", "Evicted", "low")


def test_a_rejected_pod_has_a_short_status() -> None:
    failure = PodFailure("OutOfcpu", "Pod was rejected: full", rejected=True)
    status = status_of(a_view(a_pod(), sandbox=None, failure=failure), {}, "r", NOW)
    assert status == {
        "qosClass": "BestEffort", "observedGeneration": 1, "phase": "Failed", "reason": "OutOfcpu",
        "message": "Pod was rejected: full",
    }  # fmt: skip
