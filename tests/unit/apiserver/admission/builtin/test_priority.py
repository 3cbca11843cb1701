"""Priority: the priority and preemption policy of new pods, and one default class."""

from __future__ import annotations

from typing import Any

import pytest
from builtin_steps import PODS, a_pod, denied

from shoal.testing.servers import local_server

PRIORITY = "/apis/scheduling.k8s.io/v1/priorityclasses"


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
