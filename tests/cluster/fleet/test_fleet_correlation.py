"""The id of a request goes with its change: in the log lines of every process, and on the objects in the cluster."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest

from shoal.client import Scope, builtin
from shoal.testing.fleets import LocalFleet, app, app_path
from shoal.testing.waiting import eventually_blocking

pytestmark = [pytest.mark.xdist_group("fleet"), pytest.mark.timeout(300)]

ID = "deploy-7"


def messages(log: Path, correlation: str) -> set[str]:
    """What a process has logged about a request."""
    lines = [orjson.loads(line) for line in log.read_bytes().splitlines() if line.startswith(b"{")]
    return {line["message"] for line in lines if line.get("correlation") == correlation}


def objects(fleet: LocalFleet, plural: str, group: str = "") -> list[dict[str, Any]]:
    async def read() -> list[dict[str, Any]]:
        async with fleet.clusters["eu-1"].client() as client:
            found = (await client.of(builtin(plural, group)).list(Scope())).items
            return [each for each in found if each["metadata"]["namespace"].startswith("shop-")]

    return asyncio.run(read())


def ids(fleet: LocalFleet, plural: str, group: str = "") -> list[str]:
    found = objects(fleet, plural, group)
    return [(each["metadata"].get("annotations") or {}).get("shoal.dev/correlation-id", "") for each in found]


def test_one_id_is_in_the_logs_of_control_plane_relay_and_agent_and_on_the_objects(tmp_path: Path) -> None:
    with LocalFleet(tmp_path, log_level="info") as fleet:
        fleet.start({"eu-1": "eu"})
        relay = fleet.start_relay("eu-1")
        fleet.start_agents([("eu-1", "default")])
        fleet.watched_by("eu-1")
        reply = fleet.api.request("PUT", app_path("web"), app("web", {"eu": 1}), **{"X-Correlation-Id": ID})
        assert reply.headers["x-correlation-id"] == ID
        logs = {
            fleet.control.log: {"change committed", "change applied in a cluster"},
            relay.log: {"change passed on"},
            fleet.agents["eu-1", "default"].log: {"change applied"},
        }
        eventually_blocking(
            lambda: {log: messages(log, ID) for log in logs},
            until=lambda found: all(expected <= found[log] for log, expected in logs.items()),
            timeout_s=60,
            explain=fleet.logs,
        )
        steps = eventually_blocking(
            lambda: fleet.api.get(f"/events?correlation={ID}")["items"],
            until=lambda found: ("Ready", "App") in {(step["reason"], step["kind"]) for step in found},
            timeout_s=60,
        )
        way = [step["reason"] for step in steps if step["kind"] == "App" or step["cluster"] == "eu-1"]
        expected = ["Accepted", "Committed", "NewRevision", "Received", "Applied", "Reported", "Ready"]
        assert [reason for reason in dict.fromkeys(way) if reason in expected] == expected
        assert [step["at"] for step in steps] == sorted(step["at"] for step in steps)
        assert ids(fleet, "deployments", "apps") == ids(fleet, "services") == [ID]
        template = objects(fleet, "deployments", "apps")[0]["spec"]["template"]
        assert ID not in orjson.dumps([template, objects(fleet, "pods")]).decode()

        # the same again, by another request: nothing is written
        before = [each["metadata"]["resourceVersion"] for each in objects(fleet, "services")]
        fleet.api.request("PUT", app_path("web"), app("web", {"eu": 1}), **{"X-Correlation-Id": "again"})
        fleet.api.request("PUT", app_path("more"), app("more", {"eu": 1}), **{"X-Correlation-Id": "more"})
        eventually_blocking(lambda: set(ids(fleet, "services")), until={ID, "more"}.__eq__, timeout_s=60)
        after = [each["metadata"] for each in objects(fleet, "services")]
        assert [each["resourceVersion"] for each in after if each["resourceVersion"] in before] == before
        assert messages(fleet.control.log, "again") == set()


def test_the_id_survives_the_death_of_the_control_plane(tmp_path: Path) -> None:
    with LocalFleet(tmp_path) as fleet:
        fleet.start({"eu-1": "eu"})
        fleet.join_file("eu-1")
        fleet.api.request("PUT", app_path("web"), app("web", {"eu": 1}), **{"X-Correlation-Id": ID})
        fleet.control.kill()
        fleet.control.start()
        fleet.start_agents([("eu-1", "default")])
        eventually_blocking(lambda: ids(fleet, "deployments", "apps"), until=[ID].__eq__, timeout_s=60)
