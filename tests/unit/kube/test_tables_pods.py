"""The table of pods: every STATUS that kubectl can show, and the counts beside it."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.kube import tables
from shoal.kube.resources import BUILTIN
from shoal.kube.times import format_time

NOW = 1_700_000_000.0
POD = next(r for r in BUILTIN if r.kind == "Pod")


def ago(seconds: float) -> str:
    return format_time(NOW - seconds)


def pod(
    phase: str = "Running",
    *,
    containers: tuple[dict[str, Any], ...] = (),
    init: tuple[dict[str, Any], ...] = (),
    spec: dict[str, Any] | None = None,
    status: dict[str, Any] | None = None,
    metadata: dict[str, Any] | None = None,
) -> dict[str, Any]:
    return {
        "metadata": {"name": "web", "creationTimestamp": ago(300), **(metadata or {})},
        "spec": {
            "containers": [{"name": f"c{i}"} for i, _ in enumerate(containers)],
            "initContainers": [{"name": f"i{i}"} for i, _ in enumerate(init)],
            **(spec or {}),
        },
        "status": {
            "phase": phase,
            "containerStatuses": [{"name": f"c{i}", **c} for i, c in enumerate(containers)],
            "initContainerStatuses": [{"name": f"i{i}", **c} for i, c in enumerate(init)],
            **(status or {}),
        },
    }


def table_of(obj: dict[str, Any]) -> dict[str, Any]:
    return tables.list_table(POD, [obj], {}, "None", NOW)


def row(obj: dict[str, Any]) -> list[Any]:
    cells: list[Any] = table_of(obj)["rows"][0]["cells"]
    return cells


def shown(obj: dict[str, Any]) -> tuple[str, str, str]:
    table = table_of(obj)
    cells = dict(zip((c["name"] for c in table["columnDefinitions"]), row(obj), strict=True))
    return cells["Ready"], cells["Status"], cells["Restarts"]


RUNNING = {"ready": True, "state": {"running": {"startedAt": ago(60)}}}
DONE = {"ready": False, "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}
SIDECAR = {"initContainers": [{"name": "i0", "restartPolicy": "Always"}]}


def waiting(reason: str, **more: Any) -> dict[str, Any]:
    return {"ready": False, "state": {"waiting": {"reason": reason}}, **more}


def ended(code: int, reason: str = "", signal: int = 0) -> dict[str, Any]:
    return {"ready": False, "state": {"terminated": {"exitCode": code, "reason": reason, "signal": signal}}}


def condition(kind: str, value: str = "True", reason: str = "") -> dict[str, str]:
    return {"type": kind, "status": value, "reason": reason}


@pytest.mark.parametrize(
    ("obj", "expected"),
    [
        (pod("Pending", spec={"containers": [{"name": "c0"}]}), ("0/1", "Pending", "0")),
        (pod(containers=(RUNNING,)), ("1/1", "Running", "0")),
        (pod(containers=(RUNNING, RUNNING)), ("2/2", "Running", "0")),
        (pod("Failed", status={"reason": "Evicted"}, spec={"containers": [{"name": "c0"}]}), ("0/1", "Evicted", "0")),
        (
            pod("Pending", status={"conditions": [condition("PodScheduled", "False", "SchedulingGated")]}),
            ("0/0", "SchedulingGated", "0"),
        ),
        (pod("Pending", containers=(waiting("ContainerCreating"),)), ("0/1", "ContainerCreating", "0")),
        (pod("Pending", containers=(waiting("ErrImagePull"), RUNNING)), ("1/2", "ErrImagePull", "0")),
        (pod("Succeeded", containers=(DONE,)), ("0/1", "Completed", "0")),
        (pod("Failed", containers=(ended(1, "Error"),)), ("0/1", "Error", "0")),
        (pod("Failed", containers=(ended(137),)), ("0/1", "ExitCode:137", "0")),
        (pod("Failed", containers=(ended(0, signal=9),)), ("0/1", "Signal:9", "0")),
        (pod("Failed", containers=(ended(137, "OOMKilled"),)), ("0/1", "OOMKilled", "0")),
        # One container is done while another still runs.
        (
            pod(containers=(DONE, RUNNING), status={"conditions": [condition("Ready")]}),
            ("1/2", "Running", "0"),
        ),
        (
            pod(containers=(DONE, RUNNING), status={"conditions": [condition("Ready", "False")]}),
            ("1/2", "NotReady", "0"),
        ),
        (pod(containers=(DONE, ended(2, "Error"))), ("0/2", "Error", "0")),
        # Initialisation.
        (pod("Pending", init=(RUNNING,), containers=(waiting("PodInitializing"),)), ("0/1", "Init:0/1", "0")),
        (
            pod("Pending", init=(DONE, waiting("PodInitializing")), containers=(waiting("PodInitializing"),)),
            ("0/1", "Init:1/2", "0"),
        ),
        (pod("Pending", init=(waiting("ImagePullBackOff"),)), ("0/0", "Init:ImagePullBackOff", "0")),
        (pod("Pending", init=(ended(3),)), ("0/0", "Init:ExitCode:3", "0")),
        (pod("Pending", init=(ended(137, signal=9),)), ("0/0", "Init:Signal:9", "0")),
        (pod("Pending", init=(ended(1, "Error"),)), ("0/0", "Init:Error", "0")),
        (
            pod(init=(ended(1, "Error"),), containers=(RUNNING,), status={"conditions": [condition("Initialized")]}),
            ("1/1", "Init:Error", "0"),
        ),
        # A sidecar counts among the containers.
        (
            pod(init=({**RUNNING, "started": True},), containers=(RUNNING,), spec=SIDECAR | {"containers": [{}]}),
            ("2/2", "Running", "0"),
        ),
        (
            pod(init=({**RUNNING, "started": False},), spec=SIDECAR | {"containers": [{}]}),
            ("0/2", "Init:0/1", "0"),
        ),
        (
            pod(
                "Pending",
                init=({**RUNNING, "started": True}, RUNNING),
                spec={
                    "initContainers": [{"name": "i0", "restartPolicy": "Always"}, {"name": "i1"}],
                    "containers": [{}],
                },
            ),
            ("1/2", "Init:1/2", "0"),
        ),
        # Deletion.
        (pod(containers=(RUNNING,), metadata={"deletionTimestamp": ago(0)}), ("1/1", "Terminating", "0")),
        (pod("Succeeded", containers=(DONE,), metadata={"deletionTimestamp": ago(0)}), ("0/1", "Completed", "0")),
        (
            pod(containers=(RUNNING,), metadata={"deletionTimestamp": ago(0)}, status={"reason": "NodeLost"}),
            ("1/1", "Unknown", "0"),
        ),
        ({}, ("0/0", "", "0")),
    ],
)
def test_the_state_of_a_pod_in_one_word(obj: dict[str, Any], expected: tuple[str, str, str]) -> None:
    assert shown(obj) == expected


def test_restarts_are_summed_and_the_last_one_is_dated() -> None:
    def restarted(times: int, seconds: float) -> dict[str, Any]:
        return {**RUNNING, "restartCount": times, "lastState": {"terminated": {"finishedAt": ago(seconds)}}}

    assert shown(pod(containers=(restarted(2, 3600), restarted(3, 125))))[2] == "5 (2m5s ago)"
    assert shown(pod(containers=({**RUNNING, "restartCount": 4},)))[2] == "4"
    back_off = waiting("CrashLoopBackOff", restartCount=7, lastState={"terminated": {"finishedAt": ago(600)}})
    assert shown(pod(containers=(back_off,))) == ("0/1", "CrashLoopBackOff", "7 (10m ago)")


def test_restarts_of_init_containers_count_only_while_initialising_or_in_sidecars() -> None:
    failed = {**ended(1, "Error"), "restartCount": 3}
    assert shown(pod("Pending", init=(failed,)))[2] == "3"
    done = {**DONE, "restartCount": 3}
    assert shown(pod(init=(done,), containers=({**RUNNING, "restartCount": 1},)))[2] == "1"
    sidecar = {**RUNNING, "started": True, "restartCount": 3}
    obj = pod(init=(sidecar,), containers=({**RUNNING, "restartCount": 1},), spec=SIDECAR | {"containers": [{}]})
    assert shown(obj)[2] == "4"


def test_wide_columns_of_a_pod() -> None:
    obj = pod(
        containers=(RUNNING,),
        spec={"nodeName": "n1", "readinessGates": [{"conditionType": "a"}, {"conditionType": "b"}]},
        status={
            "podIPs": [{"ip": "10.1.2.3"}, {"ip": "fd00::1"}],
            "nominatedNodeName": "n2",
            "conditions": [condition("a"), condition("b", "False")],
        },
    )
    assert row(obj)[4:] == ["5m", "10.1.2.3", "n1", "n2", "1/2"]
    assert row(pod())[4:] == ["5m", "<none>", "<none>", "<none>", "<none>"]
    assert [c["priority"] for c in table_of(obj)["columnDefinitions"]] == [0, 0, 0, 0, 0, 1, 1, 1, 1]


def test_rows_of_finished_pods_say_so() -> None:
    table = tables.list_table(POD, [pod("Succeeded"), pod("Failed"), pod()], {}, "Metadata", NOW)
    reasons = [[c["reason"] for c in row.get("conditions", ())] for row in table["rows"]]
    assert reasons == [["Succeeded"], ["Failed"], []]
