"""Traffic at 500 requests/s through a real gateway while its app rolls, with and without a control plane, and while
one instance after the other is killed."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.client import Scope, builtin
from shoal.testing.fleets import LocalFleet
from shoal.testing.load import RequestLoad, RequestOutcome
from shoal.testing.traffic import HOST, demo_app, demo_fleet, eventually_in_traffic, gateway_address, kill, process_of

pytestmark = pytest.mark.alone

RATE = 500.0
REPLICAS = 4
MIX = ("GET /", "POST /", "POST /echo", "GET /slow?ms=50", "POST /slow?ms=400")
DEPLOYMENTS = builtin("deployments", "apps")


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalFleet]:
    with demo_fleet(tmp_path_factory.mktemp("traffic")) as fleet:
        yield fleet


@pytest.fixture
def load(fleet: LocalFleet, tmp_path: Path) -> Iterator[RequestLoad]:
    with RequestLoad(tmp_path / "load", gateway_address(fleet.api), HOST, rate=RATE, mix=MIX) as load:
        eventually_in_traffic(lambda: len(load.outcomes()) > RATE, what="requests")
        yield load
    assert len(load.outcomes()) / _span_s(load.outcomes()) > RATE * 0.9, "the machine was too slow for the rate"


def _span_s(outcomes: list[RequestOutcome]) -> float:
    return max(one.started for one in outcomes) - min(one.started for one in outcomes)


def failed(outcomes: list[RequestOutcome]) -> Counter[tuple[str, int, str]]:
    return Counter((one.asked, one.status, one.error) for one in outcomes if one.status != 200)


def answering(load: RequestLoad, since: float) -> set[str]:
    return {one.instance for one in load.outcomes() if one.instance and one.started > since}


def test_versions_follow_each_other_and_no_request_fails(fleet: LocalFleet, load: RequestLoad) -> None:
    for tag in ("v2", "v1", "v2"):
        fleet.api.put(demo_app(tag, REPLICAS))
        eventually_in_traffic(
            lambda tag=tag: {one.version for one in load.outcomes()[-100:]} == {tag, ""},
            what=f"only {tag} answering",
        )
        eventually_in_traffic(lambda: not fleet.api.app_status("web")["others"], what="the end of the old version")
    seen = len(load.outcomes())
    eventually_in_traffic(lambda: len(load.outcomes()) > seen + RATE, what="requests after the last roll")
    assert not failed(load.outcomes())


async def test_pods_are_replaced_without_a_control_plane_and_no_request_fails(
    fleet: LocalFleet, load: RequestLoad
) -> None:
    since = time.monotonic() - 1
    old = answering(load, since)
    fleet.control.stop()
    try:
        await restart(fleet)
        eventually_in_traffic(
            lambda: len(answering(load, time.monotonic() - 2) - old) == len(old),
            what="new pods answering",
        )
        eventually_in_traffic(lambda: not answering(load, time.monotonic() - 2) & old, what="the end of the old pods")
        assert not failed(load.outcomes())
    finally:
        fleet.control.start()


async def restart(fleet: LocalFleet) -> None:
    """As ``kubectl rollout restart`` does."""
    async with fleet.clusters["eu-1"].client() as client:
        for found in (await client.of(DEPLOYMENTS).list(Scope(label_selector="shoal.dev/deployment"))).items:
            about = found["metadata"]
            if about["namespace"] != "sentinel":
                mark = {"kubectl.kubernetes.io/restartedAt": "now"}
                patch = {"spec": {"template": {"metadata": {"annotations": mark}}}}
                await client.of(DEPLOYMENTS).patch(about["name"], patch, about["namespace"])


def test_every_instance_is_killed_once_and_no_new_request_fails(fleet: LocalFleet, load: RequestLoad) -> None:
    for victim in sorted(answering(load, time.monotonic() - 1)):
        dead = kill(process_of(victim))
        eventually_in_traffic(
            lambda dead=dead, victim=victim: victim in answering(load, dead),
            what="the instance back",
        )
        found = [one for one in load.outcomes() if one.status != 200]
        assert {(one.asked.split()[0], one.status, one.error) for one in found} <= {("POST", 502, "upstream_reset")}
        assert not [one for one in found if one.started > dead]
