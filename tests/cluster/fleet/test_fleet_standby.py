"""A standby takes over by the Lease and the epoch; the agent it replaced wakes up and changes nothing."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from shoal.testing.fleet_recorder import FleetRecorder, marker_of
from shoal.testing.fleets import LocalFleet, app
from shoal.testing.waiting import eventually

pytestmark = pytest.mark.timeout(300)  # enough for a busy machine

WAIT_S = 60.0
NAMES = ("first", "second")


def written_by_agents(obj: Any) -> tuple[str, str, int, str]:
    """The identity of a Deployment, and its specification: each revision of an app is a Deployment of its own."""
    about = obj["metadata"]
    return about["name"], about["uid"], about["generation"], marker_of(obj)


@pytest.mark.chaos
async def test_a_standby_takes_over_and_the_old_agent_changes_nothing_when_it_wakes_up(tmp_path: Path) -> None:
    with LocalFleet(tmp_path) as fleet:
        await asyncio.to_thread(fleet.start, {"eu-1": "eu"})
        agents = {
            name: await asyncio.to_thread(partial(fleet.new_agent, "eu-1", name=name, elect=True)) for name in NAMES
        }
        fleet.standbys += agents.values()
        await asyncio.gather(*(asyncio.to_thread(agent.start) for agent in agents.values()))
        async with FleetRecorder(fleet) as witness:

            async def change(marker: str) -> None:
                await asyncio.to_thread(fleet.api.put, app("web", {"eu": 1}, marker=marker))
                await witness.until(
                    lambda: [marker_of(obj) for obj in witness.of_app("web", "eu-1")] == [marker], timeout_s=60
                )

            def status(name: str) -> Any:
                return fleet.agent_status(name)

            await change("1")
            await witness.settled()
            leading = [name for name in NAMES if status(name)["leading"]]
            assert len(leading) == 1, "one acts and one stands by"
            old = leading[0]
            new = next(name for name in NAMES if name != old)
            epoch = status(old)["epoch"]

            agents[old].pause()
            await change("2")  # the old one has it in its socket and will read it; the new one applies it
            await eventually(
                lambda: asyncio.to_thread(lambda: status(new)["leading"] and status(new)["epoch"] > epoch),
                timeout_s=WAIT_S,
                explain=fleet.logs,
            )
            taken = status(new)["epoch"]
            await change("3")
            await witness.settled()
            deleted = len(witness.deleted)
            (third,) = witness.of_app("web", "eu-1")

            agents[old].resume()
            await eventually(
                lambda: asyncio.to_thread(lambda: not status(old)["leading"]), timeout_s=WAIT_S, explain=fleet.logs
            )
            assert [written_by_agents(obj) for obj in witness.of_app("web", "eu-1")] == [written_by_agents(third)]
            await change("4")
            await witness.settled()
            assert status(new)["epoch"] == taken and status(new)["leading"]
            (fourth,) = witness.of_app("web", "eu-1")
            assert fourth["metadata"]["generation"] == 1, "the old agent has acted"
            assert {each.name for each in witness.deleted[deleted:]} == {third["metadata"]["name"]}
