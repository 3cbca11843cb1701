"""A canary under load whose control plane is killed and whose database fails over at every step."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from shoal.cli.rest import CannotReach, RequestRefused
from shoal.testing.failover import replicated_postgres
from shoal.testing.fleets import ENVIRONMENT, PROJECT, Api, Balancer, LocalFleet
from shoal.testing.load import RequestLoad
from shoal.testing.traffic import APP, HOST, demo_app, demo_route, gateway_address
from shoal.testing.waiting import eventually

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900), pytest.mark.xdist_group("rollouts")]

RATE = 50.0
STEPS: list[dict[str, Any]] = [
    {"weight": 25}, {"pause": "2s"}, {"header": {"name": "x-canary", "value": "1"}}, {"pause": "2s"}, {"weight": 50},
    {"pause": {}},
]  # fmt: skip
APPROVED_AT = len(STEPS) - 1
ROLLOUT = {"strategy": "canary", "steps": STEPS, "judge": False, "keep": "5s"}
_PATH = f"/projects/{PROJECT}/environments/{ENVIRONMENT}/apps/{APP}/rollout"


async def test_killed_control_planes_and_failovers_at_every_step_repeat_and_skip_none(tmp_path: Path) -> None:
    async with replicated_postgres() as postgres:
        with LocalFleet(tmp_path, database=await postgres.create_database()) as fleet:
            await asyncio.to_thread(lambda: fleet.start({"eu-1": "eu"}, flags=("--runtime", "process")))
            second = await asyncio.to_thread(fleet.add_control, "second")
            apis = [fleet.api, fleet.connect(second)]
            async with Balancer(fleet.control_port, second) as balancer:
                await asyncio.to_thread(lambda: fleet.start_agents([("eu-1", "default")], port=balancer.port))
                try:
                    await asyncio.to_thread(fleet.api.apply, demo_app("v1"), demo_route())
                    gateway = await asyncio.to_thread(gateway_address, fleet.api)
                    await eventually(lambda: asyncio.to_thread(_is_ready, fleet.api), timeout_s=120, explain=fleet.logs)
                    with RequestLoad(tmp_path / "load", gateway, HOST, rate=RATE) as load:
                        await asyncio.to_thread(fleet.api.put, demo_app("v2", rollout=ROLLOUT))
                        found, killed = await _to_its_end(fleet, apis, postgres.fail_over)
                        assert not [each for each in load.outcomes() if each.status != 200]
                finally:
                    await asyncio.to_thread(fleet.clusters["eu-1"].process.stop)  # if killed, it would leave its pods
            apis[1].close()
    assert found["outcome"] == "promoted", found["reason"]
    made = [(each["action"], each["step"]) for each in found["decisions"]]
    steps = [("step", at) for at in range(1, len(STEPS) + 1)]
    assert made == [("start", 0), *steps[:-1], ("approve", APPROVED_AT), steps[-1], ("promote", 6), ("end", 6)]
    pauses = {(at, "running") for at, step in enumerate(STEPS) if "pause" in step}
    assert pauses <= killed and (len(STEPS), "keeping") in killed


async def _to_its_end(
    fleet: LocalFleet, apis: list[Api], fail_over: Any
) -> tuple[dict[str, Any], set[tuple[int, str]]]:
    """Break both at each step that is seen, and approve; returns how the rollout ended and where it was broken."""
    killed: set[tuple[int, str]] = set()
    has_approved = False

    def look() -> dict[str, Any] | None:
        """Where it is, once something is to be done about it."""
        found = _rollout(apis)
        if found is None or found["revision"] == 1:
            return None
        waits = found["hold"] == "waits for approval" and not has_approved
        is_new = (found["step"], found["phase"]) not in killed
        return found if is_new or waits or found["phase"] == "ended" else None

    while True:
        found = dict(await eventually(lambda: asyncio.to_thread(look), timeout_s=180, explain=fleet.logs))
        at = (found["step"], found["phase"])
        if found["phase"] == "ended":
            return found, killed
        if at in killed:
            await asyncio.to_thread(apis[0].until_acknowledged, "POST", f"{_PATH}/resume", {"reason": "good"})
            has_approved = True
            continue
        killed.add(at)
        control = fleet.controls[len(killed) % 2]
        await asyncio.gather(asyncio.to_thread(control.kill), fail_over())
        await asyncio.to_thread(control.start)


def _rollout(apis: list[Api]) -> dict[str, Any] | None:
    for api in apis:
        try:
            return dict(api.get(_PATH))
        except (CannotReach, RequestRefused):
            continue
    return None


def _is_ready(api: Api) -> bool:
    return bool(api.app_status(APP)["state"] == "Ready")
