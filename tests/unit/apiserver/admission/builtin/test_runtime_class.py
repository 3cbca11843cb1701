"""RuntimeClass: overhead, node selector and tolerations of a pod's runtime class."""

from __future__ import annotations

from typing import Any

import pytest
from builtin_steps import PODS, a_pod, denied

from shoal.apiserver.admission.builtin.runtime_class import merge_tolerations
from shoal.testing.servers import local_server

RUNTIME = "/apis/node.k8s.io/v1/runtimeclasses"
KATA = {
    "metadata": {"name": "kata"},
    "handler": "kata",
    "overhead": {"podFixed": {"cpu": "250m", "memory": "64Mi"}},
    "scheduling": {
        "nodeSelector": {"runtime": "kata"},
        "tolerations": [{"key": "kata", "operator": "Exists", "effect": "NoSchedule"}],
    },
}


async def test_a_pod_takes_over_the_cost_and_the_place_of_its_runtime() -> None:
    async with local_server() as server:
        await server.post(RUNTIME, KATA)
        made = await server.post(PODS, a_pod(runtimeClassName="kata", nodeSelector={"disk": "fast"}))
        assert made["spec"]["overhead"] == {"cpu": "250m", "memory": "64Mi"}
        assert made["spec"]["nodeSelector"] == {"disk": "fast", "runtime": "kata"}
        assert made["spec"]["tolerations"][-1] == KATA["scheduling"]["tolerations"][0]  # type: ignore[index]
        await server.post(PODS, a_pod("q", runtimeClassName="kata", overhead={"cpu": "0.25", "memory": "65536Ki"}))
        await server.patch(f"{RUNTIME}/kata", {"overhead": {"podFixed": {"cpu": "1"}}})
        made = await server.post(PODS, a_pod("r", runtimeClassName="kata", nodeSelector={"disk": "fast"}))
        assert made["spec"]["overhead"] == {"cpu": "1", "memory": "64Mi"}


@pytest.mark.parametrize(
    ("spec", "fault"),
    [
        ({"runtimeClassName": "none"}, 'pod rejected: RuntimeClass "none" not found'),
        (
            {"runtimeClassName": "kata", "overhead": {"cpu": "1"}},
            "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead",
        ),
        (
            {"overhead": {"cpu": "1"}},
            "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead",
        ),
        (
            {"runtimeClassName": "kata", "nodeSelector": {"runtime": "other"}},
            "conflict: runtimeClass.scheduling.nodeSelector[runtime] = kata; pod.spec.nodeSelector[runtime] = other",
        ),
    ],
)
async def test_pods_that_contradict_their_runtime_are_refused(spec: dict[str, Any], fault: str) -> None:
    async with local_server() as server:
        await server.post(RUNTIME, KATA)
        assert denied(await server.call("POST", PODS, a_pod(**spec))) == f'pods "p" is forbidden: {fault}'


ALL = {"operator": "Exists"}
KEY = {"key": "k", "operator": "Exists"}
EQUAL = {"key": "k", "operator": "Equal", "value": "v", "effect": "NoSchedule"}


def for_seconds(seconds: int | None) -> dict[str, Any]:
    made = {"key": "k", "operator": "Exists", "effect": "NoExecute"}
    return made if seconds is None else made | {"tolerationSeconds": seconds}


@pytest.mark.parametrize(
    ("first", "second", "merged"),
    [
        ([], [], []),
        ([KEY], [KEY], [KEY]),
        ([EQUAL], [KEY], [KEY]),
        ([KEY], [EQUAL], [KEY]),
        ([EQUAL, KEY], [ALL], [ALL]),
        ([EQUAL], [EQUAL | {"value": "w"}], [EQUAL, EQUAL | {"value": "w"}]),
        ([for_seconds(5)], [for_seconds(9)], [for_seconds(9)]),
        ([for_seconds(None)], [for_seconds(9)], [for_seconds(None)]),
        ([KEY | {"effect": "NoSchedule"}], [EQUAL | {"effect": "NoExecute"}],
         [KEY | {"effect": "NoSchedule"}, EQUAL | {"effect": "NoExecute"}]),
    ],
)  # fmt: skip
def test_tolerations_are_merged_without_what_others_cover(first: Any, second: Any, merged: Any) -> None:
    assert merge_tolerations(first, second) == merged
