"""The behaviour of a simulated pod, from annotations, its job and its command."""

from __future__ import annotations

from typing import Any

import pytest
from simulated_pods import a_pod

from shoal.node.simulated.config import FleetConfig
from shoal.node.simulated.model import Behaviour, behaviour_of, exit_code_of


def test_annotations_set_the_behaviour_of_a_pod_and_invalid_values_are_ignored() -> None:
    pod = a_pod()
    pod["metadata"]["annotations"] = {
        "simulated.shoal.dev/start-seconds": "2.5", "simulated.shoal.dev/exit-code": "7",
        "simulated.shoal.dev/run-seconds": "soon", "simulated.shoal.dev/ready-seconds": "-1",
        "simulated.shoal.dev/cpu": "250m", "simulated.shoal.dev/memory": "1Gi", "simulated.shoal.dev/stop-seconds": "nan",
    }  # fmt: skip
    found = behaviour_of(pod, Behaviour(ready_s=4), job_run_s=1)
    assert found == Behaviour(start_s=2.5, ready_s=4, exit_codes=(7,), cpu_milli=250, memory_bytes=2**30)


def test_pods_of_a_job_end_by_themselves() -> None:
    pod = a_pod()
    pod["metadata"]["ownerReferences"] = [{"kind": "Job", "name": "j", "controller": True}]
    assert behaviour_of(pod, Behaviour(), job_run_s=3).run_s == 3


@pytest.mark.parametrize(
    ("container", "expected"),
    [
        ({"image": "registry.example/pause:3.10"}, Behaviour()),
        ({"image": "pause@sha256:0"}, Behaviour()),
        ({"image": "example/pause-not"}, Behaviour(run_s=3)),
        ({"command": ["sleep", "300"]}, Behaviour(run_s=300)),
        ({"command": ["sleep"], "args": ["2m"]}, Behaviour(run_s=120)),
        ({"command": ["/bin/sleep", "infinity"]}, Behaviour()),
        ({"command": ["sleep", "soon"]}, Behaviour(run_s=3)),
        ({"command": ["sleep", "1", "2"]}, Behaviour(run_s=3)),
        ({"command": ["/bin/sh", "-c", "exit 7"]}, Behaviour(run_s=3, exit_codes=(7,))),
        ({"command": ["bash", "-c", "sleep 0.5"]}, Behaviour(run_s=0.5)),
        ({"command": ["sh", "-c", "exit $CODE"]}, Behaviour(run_s=3)),
        ({"command": ["sh", "-c", " "]}, Behaviour(run_s=3)),
        ({"command": ["false"]}, Behaviour(run_s=3, exit_codes=(1,))),
        ({"image": "pause", "command": ["report"]}, Behaviour(run_s=3)),
    ],
)
def test_pods_of_a_job_follow_commands_that_are_understood(container: Any, expected: Behaviour) -> None:
    pod = a_pod(containers=[{"name": "c", "image": "busybox", **container}])
    assert behaviour_of(pod, Behaviour(), job_run_s=3) == Behaviour()
    pod["metadata"]["ownerReferences"] = [{"kind": "Job", "name": "j", "controller": True}]
    assert behaviour_of(pod, Behaviour(), job_run_s=3) == expected
    pod["metadata"]["annotations"] = {"simulated.shoal.dev/run-seconds": "9"}
    assert behaviour_of(pod, Behaviour(), job_run_s=3).run_s == 9


def test_the_failure_rate_is_kept_over_many_pods_and_the_same_for_each() -> None:
    behaviour = Behaviour(failure_rate=0.25)
    codes = [exit_code_of(behaviour, f"uid-{n}", 0) for n in range(4000)]
    assert 0.22 < sum(codes) / len(codes) < 0.28
    assert codes == [exit_code_of(behaviour, f"uid-{n}", 0) for n in range(4000)]


def test_runs_exit_in_turn_and_the_last_code_repeats() -> None:
    behaviour = Behaviour(exit_codes=(3, 0))
    assert [exit_code_of(behaviour, "u", restarts) for restarts in range(4)] == [3, 0, 0, 0]


def test_annotations_of_an_index_hold_for_its_pods_alone() -> None:
    def of_index(index: str) -> Behaviour:
        pod = a_pod()
        pod["metadata"]["annotations"] = {
            "simulated.shoal.dev/exit-code": "0",
            "simulated.shoal.dev/index-1.exit-code": "1,2",
            "simulated.shoal.dev/index-1.run-seconds": "5",
            "batch.kubernetes.io/job-completion-index": index,
        }
        return behaviour_of(pod, Behaviour(), job_run_s=1)

    assert of_index("0") == Behaviour()
    assert of_index("1") == Behaviour(exit_codes=(1, 2), run_s=5)
    assert of_index("11") == Behaviour()


@pytest.mark.parametrize("text", ["", "x", "1,", "1,x"])
def test_invalid_exit_codes_are_ignored(text: str) -> None:
    pod = a_pod()
    pod["metadata"]["annotations"] = {"simulated.shoal.dev/exit-code": text}
    assert behaviour_of(pod, Behaviour(exit_codes=(4,)), job_run_s=1).exit_codes == (4,)


@pytest.mark.parametrize(("image", "missing"), [("a/b:404", True), ("foo:non-existent", True), ("a/b:1", False)])
def test_some_images_cannot_be_pulled(image: str, missing: bool) -> None:
    pod = a_pod(containers=[{"name": "c", "image": image}])
    found = behaviour_of(pod, Behaviour(), job_run_s=1, missing_images=FleetConfig().missing_images)
    assert found.image_error == missing
