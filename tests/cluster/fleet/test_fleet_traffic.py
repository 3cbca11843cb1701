"""A real gateway and real instances under load, while an app rolls, an instance is killed, and the control plane is down.

The rate is lower than the 500 requests/s of `make chaos`, since other tests share the machine.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.testing.fleets import LocalFleet
from shoal.testing.load import RequestLoad, RequestOutcome
from shoal.testing.traffic import HOST, demo_app, demo_fleet, eventually_in_traffic, gateway_address, kill, process_of

RATE = 150.0
SLOW_MS = 2000
MIX = ("GET /", "GET /", "POST /echo", "POST /slow?ms=400")


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalFleet]:
    with demo_fleet(tmp_path_factory.mktemp("traffic")) as fleet:
        yield fleet


@pytest.fixture(scope="module")
def address(fleet: LocalFleet) -> str:
    return gateway_address(fleet.api)


def bad(outcomes: list[RequestOutcome]) -> Counter[tuple[str, int, str]]:
    return Counter((one.asked, one.status, one.error) for one in outcomes if one.status != 200)


def test_an_app_rolls_to_a_new_version_under_load_and_no_request_fails(
    fleet: LocalFleet, address: str, tmp_path: Path
) -> None:
    with RequestLoad(tmp_path / "load", address, HOST, rate=RATE, mix=MIX) as load:
        eventually_in_traffic(lambda: len(load.outcomes()) > RATE, what="requests before the roll")
        fleet.api.put(demo_app("v2"))
        eventually_in_traffic(lambda: versions(load.outcomes()[-50:]) == {"v2"}, what="only the new version answering")
        eventually_in_traffic(lambda: not fleet.api.app_status("web")["others"], what="the end of the old version")
        eventually_in_traffic(lambda: versions(load.outcomes()[-50:]) == {"v2"}, what="requests after the roll")
    outcomes = load.outcomes()
    assert not bad(outcomes)
    assert versions(outcomes) == {"v1", "v2"}


def versions(outcomes: list[RequestOutcome]) -> set[str]:
    return {one.version for one in outcomes if one.version}


def test_no_request_fails_while_the_process_of_the_cluster_is_stopped_killed_and_started_again(
    fleet: LocalFleet, address: str, tmp_path: Path
) -> None:
    """Clients reach the gateway by the address of its Service."""
    cluster = fleet.clusters["eu-1"].process
    with RequestLoad(tmp_path / "load", address, HOST, rate=RATE, mix=MIX) as load:

        def answered(what: str) -> None:
            began = time.monotonic()
            eventually_in_traffic(lambda: sum(one.started > began for one in load.outcomes()) > RATE, what=what)

        answered("requests before")
        cluster.pause()
        answered("requests while it is stopped")
        cluster.resume()
        answered("requests after it goes on")
        cluster.kill()
        answered("requests while it is down")
        cluster.start()
        answered("requests after it is back")
    assert not bad(load.outcomes())
    eventually_in_traffic(lambda: fleet.api.app_status("web")["state"] == "Ready", what="the app ready again")


def test_after_the_death_of_an_instance_only_requests_that_may_not_be_retried_fail(
    fleet: LocalFleet, address: str, tmp_path: Path
) -> None:
    fleet.control.stop()  # for the whole test: traffic does not need it
    slow = (f"GET /slow?ms={SLOW_MS}", f"POST /slow?ms={SLOW_MS}")
    with (
        RequestLoad(tmp_path / "load", address, HOST, rate=RATE, mix=MIX) as load,
        RequestLoad(tmp_path / "slow", address, HOST, rate=10, mix=slow) as waiting,
    ):
        eventually_in_traffic(lambda: len(waiting.outcomes()) > 10, what="instances with requests under way")
        victim = load.outcomes()[-1].instance or load.outcomes()[-2].instance
        before = time.monotonic()
        dead = kill(process_of(victim))
        eventually_in_traffic(lambda: waiting.outcomes()[-1].started > dead, what="requests that began after the death")
        eventually_in_traffic(lambda: revived(load.outcomes(), victim, dead), what="the instance back")
    outcomes = [*load.outcomes(), *waiting.outcomes()]
    failed = [one for one in outcomes if one.status != 200]
    assert {(one.status, one.error) for one in failed} == {(502, "upstream_reset")}
    assert {one.asked.split()[0] for one in failed} == {"POST"}
    assert not [one for one in failed if one.started > dead or one.ended < before]
    again = [one for one in waiting.outcomes() if one.asked.startswith("GET") and one.started < dead < one.ended]
    assert any(one.ended - one.started > SLOW_MS / 1000 + 0.1 for one in again), "nothing was tried again"
    assert all(one.instance != victim for one in again if one.ended < dead + SLOW_MS / 1000)


def revived(outcomes: list[RequestOutcome], instance: str, dead: float) -> bool:
    return any(one.instance == instance and one.started > dead for one in outcomes)
