"""DefaultTolerationSeconds, Priority and RuntimeClass: what new pods take over from the cluster."""

from __future__ import annotations

from typing import Any

import pytest
from builtin_steps import PODS, a_pod, denied

from shoal.apiserver.admission.builtin.runtime_class import merge_tolerations
from shoal.testing.servers import local_server

PRIORITY = "/apis/scheduling.k8s.io/v1/priorityclasses"
RUNTIME = "/apis/node.k8s.io/v1/runtimeclasses"
NOT_READY, UNREACHABLE = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"


def added(taint: str) -> dict[str, Any]:
    return {"key": taint, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        ([], [NOT_READY, UNREACHABLE]),
        ([{"key": NOT_READY, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}], [UNREACHABLE]),
        ([{"key": UNREACHABLE, "operator": "Exists"}], [NOT_READY]),
        ([{"key": NOT_READY, "operator": "Exists", "effect": "NoSchedule"}], [NOT_READY, UNREACHABLE]),
        ([{"operator": "Exists"}], []),
        ([{"operator": "Exists", "effect": "NoExecute"}], []),
        ([{"operator": "Exists", "effect": "NoSchedule"}], [NOT_READY, UNREACHABLE]),
    ],
)
async def test_pods_tolerate_a_lost_node_for_five_minutes(given: list[dict[str, Any]], missing: list[str]) -> None:
    async with local_server() as server:
        made = await server.post(PODS, a_pod(tolerations=given))
        assert (made["spec"].get("tolerations") or []) == given + [added(taint) for taint in missing]


async def test_without_classes_a_pod_has_priority_zero() -> None:
    async with local_server() as server:
        made = await server.post(PODS, a_pod())
        assert made["spec"]["priority"] == 0
        assert made["spec"]["preemptionPolicy"] == "PreemptLowerPriority"
        assert "priorityClassName" not in made["spec"]


async def test_a_class_gives_its_number_and_policy_and_the_default_class_its_name() -> None:
    async with local_server() as server:
        polite = {"metadata": {"name": "polite"}, "value": 7, "preemptionPolicy": "Never"}
        await server.post(PRIORITY, polite)
        made = await server.post(PODS, a_pod("a", priorityClassName="polite"))
        assert (made["spec"]["priority"], made["spec"]["preemptionPolicy"]) == (7, "Never")
        made = await server.post(PODS, a_pod("b", priorityClassName="system-node-critical"))
        assert made["spec"]["priority"] == 2_000_001_000
        await server.post(PRIORITY, {"metadata": {"name": "usual"}, "value": 3, "globalDefault": True})
        made = await server.post(PODS, a_pod("c"))
        assert (made["spec"]["priority"], made["spec"]["priorityClassName"]) == (3, "usual")
        await server.delete(f"{PRIORITY}/usual")
        assert (await server.post(PODS, a_pod("d")))["spec"]["priority"] == 0


@pytest.mark.parametrize(
    ("spec", "fault"),
    [
        ({"priorityClassName": "none"}, "no PriorityClass with name none was found"),
        (
            {"priority": 5},
            "the integer value of priority (5) must not be provided in pod spec; priority admission controller "
            "computed 0 from the given PriorityClass name",
        ),
        (
            {"preemptionPolicy": "Never"},
            "the string value of PreemptionPolicy (Never) must not be provided in pod spec; priority admission "
            "controller computed PreemptLowerPriority from the given PriorityClass name",
        ),
    ],
)
async def test_priorities_are_not_made_up(spec: dict[str, Any], fault: str) -> None:
    async with local_server() as server:
        assert denied(await server.call("POST", PODS, a_pod(**spec))) == f'pods "p" is forbidden: {fault}'
        await server.post(PODS, a_pod(priority=0, preemptionPolicy="PreemptLowerPriority"))  # what it would be anyway


async def test_an_update_that_leaves_the_priority_out_keeps_it() -> None:
    async with local_server() as server:
        made = await server.post(PODS, a_pod())
        del made["spec"]["priority"], made["spec"]["preemptionPolicy"]
        made["metadata"]["labels"] = {"a": "b"}
        updated = await server.put(f"{PODS}/p", made)
        assert (updated["spec"]["priority"], updated["spec"]["preemptionPolicy"]) == (0, "PreemptLowerPriority")


async def test_only_one_class_is_the_default() -> None:
    async with local_server() as server:
        first = await server.post(PRIORITY, {"metadata": {"name": "first"}, "value": 1, "globalDefault": True})
        text = "PriorityClass first is already marked as default. Only one default can exist"
        second = {"metadata": {"name": "second"}, "value": 2, "globalDefault": True}
        answer = await server.call("POST", PRIORITY, second)
        assert denied(answer) == f'priorityclasses.scheduling.k8s.io "second" is forbidden: {text}'
        await server.put(f"{PRIORITY}/first", first | {"description": "still the default"})
        await server.post(PRIORITY, second | {"globalDefault": False})
        body = {"globalDefault": True}
        merge = {"content-type": "application/merge-patch+json"}
        assert text in denied(await server.call("PATCH", f"{PRIORITY}/second", body, merge))


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
