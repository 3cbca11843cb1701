"""The API server of a cluster away, and an agent with a token that does not work: both are told as what they are, and
the agent needs no restart."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest

from shoal.base.files import write_private
from shoal.cli.rest import RequestRefused
from shoal.testing.fleets import LocalFleet, app
from shoal.testing.proxy import TcpProxy
from shoal.testing.waiting import eventually

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]

WAIT_S = 60.0
NAME = "eu-1-default"


def health(fleet: LocalFleet) -> dict[str, str]:
    """What ``/readyz`` says; it answers 503 while the agent is not ready."""
    try:
        body: Any = fleet.agent_health(NAME)
    except RequestRefused as refused:
        body = refused.body
    checks: dict[str, str] = body["checks"]
    return checks


async def test_an_outage_of_a_clusters_api_is_told_and_survived_and_so_is_a_token_that_stops_working(
    tmp_path: Path,
) -> None:
    with LocalFleet(tmp_path) as fleet:
        await asyncio.to_thread(fleet.start, {"eu-1": "eu"})
        async with TcpProxy(fleet.clusters["eu-1"].port) as proxy:
            agent = await asyncio.to_thread(partial(fleet.new_agent, "eu-1", api_port=proxy.port, elect=True))
            fleet.standbys.append(agent)
            kubeconfig = fleet.folder / "agents" / NAME / "kubeconfig"
            good = orjson.loads(kubeconfig.read_bytes())
            bad = {**good, "users": [{**good["users"][0], "user": {"token": "no-longer-good"}}]}

            async def until(says: str, where: str = "cluster") -> None:
                def found(checks: dict[str, str]) -> bool:
                    return says in checks.get(where, "")

                await eventually(
                    lambda: asyncio.to_thread(health, fleet), until=found, timeout_s=WAIT_S, explain=fleet.logs
                )

            async def until_shown(state: str, ready: int) -> dict[str, Any]:
                def shown(status: dict[str, Any]) -> bool:
                    return [(each["state"], each["reported"]["ready"]) for each in status["regions"]] == [
                        (state, ready)
                    ]

                read = partial(asyncio.to_thread, fleet.api.app_status, "web")
                found: dict[str, Any] = await eventually(read, until=shown, timeout_s=WAIT_S, explain=fleet.logs)
                return found["regions"][0]

            # away at the start, then with a token that does not work
            write_private(kubeconfig, orjson.dumps(bad))
            proxy.refuse()
            await asyncio.to_thread(agent.start)
            await until("127.0.0.1")
            proxy.heal()
            await until("it refuses the credentials")
            write_private(kubeconfig, orjson.dumps(good))
            await until("ok", "deployments")
            await asyncio.to_thread(fleet.api.put, app("web", {"eu": 2}))
            await until_shown("Ready", 2)

            proxy.refuse()
            before = len(agent.log.read_text().splitlines())
            place = await until_shown("ClusterUnreachable", 2)
            assert "the agent is connected" in place["message"]
            assert health(fleet)["cluster"] != "ok"
            told = [orjson.loads(line) for line in agent.log.read_text().splitlines()[before:]]
            outage = [line["message"] for line in told if line["level"] in ("warning", "error")]
            assert outage.count("the cluster's API server cannot be used") == 1
            assert len(outage) <= 5, f"a line for every try: {outage}"
            proxy.heal()
            await until_shown("Ready", 2)
