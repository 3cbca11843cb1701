"""Memory and CPU of an idle agent."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from shoal.testing.fleets import LocalFleet, app
from shoal.testing.waiting import eventually_blocking

pytestmark = pytest.mark.timeout(300)  # enough for a busy machine

OBJECTS = 100
IDLE_S = 15.0
RESIDENT_MB = 60  # all of it, with the libraries that it shares with others
CPU_SHARE = 0.01
NAME = "eu-1-default"


@pytest.mark.chaos
@pytest.mark.alone
def test_an_idle_agent_with_a_hundred_objects_is_small_and_quiet(tmp_path: Path) -> None:
    with LocalFleet(tmp_path) as fleet:
        fleet.start({"eu-1": "eu"})
        fleet.start_agents([("eu-1", "default")], elect=True)  # as it is usually started
        agent = fleet.agents["eu-1", "default"]
        documents = [app(f"app{at}", {"eu": 1}, resources={"cpu": "10m", "memory": "8Mi"}) for at in range(OBJECTS)]
        for at in range(0, OBJECTS, 20):
            fleet.api.apply(*documents[at : at + 20])
        eventually_blocking(partial(all_ready, fleet), timeout_s=60, every_s=0.25, explain=fleet.logs)
        agent.stop()
        agent.start()  # begins with what it has on disk
        eventually_blocking(
            lambda: fleet.agent_status(NAME), until=is_quiet, timeout_s=60, every_s=0.25, explain=fleet.logs
        )
        fleet.agent_metric(NAME, "shoal_krane_leading")  # metrics are scraped too
        began, cpu_s = time.monotonic(), agent.cpu_s
        time.sleep(IDLE_S)
        share = (agent.cpu_s - cpu_s) / (time.monotonic() - began)
        resident_mb = agent.memory_mib * 2**20 / 1e6
        print(
            f"\nidle with {OBJECTS} objects: {resident_mb:.1f} MB resident (bar {RESIDENT_MB}), "
            f"{share * 100:.2f} % of a core (bar {CPU_SHARE * 100:.0f})"
        )
        assert resident_mb < RESIDENT_MB
        assert share < CPU_SHARE


def all_ready(fleet: LocalFleet) -> bool:
    return all(each["state"] == "Ready" for each in fleet.api.get("/status")["apps"])


def is_quiet(status: dict[str, Any]) -> bool:
    """Connected, with everything applied and reported."""
    parts = status["controllers"].values()
    return (
        len(parts) == 2
        and all(each["connection"] == "watching" and not each["buffered"] and not each["unreported"] for each in parts)
        and status["controllers"]["deployments"]["objects"] == OBJECTS
    )
