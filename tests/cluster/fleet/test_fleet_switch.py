"""Two regions with real gateways and instances: a revision takes traffic in a region only where it is ready."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from shoal.client import Scope, builtin
from shoal.testing.fleets import ENVIRONMENT, PROJECT, LocalFleet, app_path
from shoal.testing.load import RequestLoad, RequestOutcome
from shoal.testing.traffic import (
    APP,
    HOST,
    demo_app,
    demo_fleet,
    eventually_in_traffic,
    gateway_address,
    supervisor_of,
)

pytestmark = [pytest.mark.timeout(400), pytest.mark.xdist_group("switch")]

RATE = 40.0
REGIONS = ("eu", "us")
CLUSTERS = {"eu-1": "eu", "us-1": "us"}
both = partial(demo_app, regions=REGIONS)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalFleet]:
    with demo_fleet(tmp_path_factory.mktemp("switch"), CLUSTERS) as fleet:
        for region in REGIONS:
            gateway_address(fleet.api, region)
        yield fleet


@pytest.fixture
def loads(fleet: LocalFleet, tmp_path: Path) -> Iterator[dict[str, RequestLoad]]:
    """Requests to both gateways, while v1 runs in both regions at first."""
    fleet.api.put(both("v1"))
    until_ready(fleet)
    addresses = {region: gateway_address(fleet.api, region) for region in REGIONS}
    with (
        RequestLoad(tmp_path / "eu", addresses["eu"], HOST, rate=RATE) as eu,
        RequestLoad(tmp_path / "us", addresses["us"], HOST, rate=RATE) as us,
    ):
        found = {"eu": eu, "us": us}
        for load in found.values():
            until_answers(load, {"v1"})
        yield found


def until_ready(fleet: LocalFleet) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        status = fleet.api.app_status(APP)
        return status if status["state"] == "Ready" and not status["others"] else None

    found: dict[str, Any] = eventually_in_traffic(look, what="the app ready in all regions")
    return found


def until_answers(load: RequestLoad, versions: set[str]) -> None:
    def look() -> bool:
        found = [one for one in load.outcomes()[-20:] if one.status == 200]
        return len(found) >= 20 and {one.version for one in found} == versions

    eventually_in_traffic(look, what=f"answers of {versions}")


def until_region(fleet: LocalFleet, region: str, state: str, reason: str) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        found = next(each for each in fleet.api.app_status(APP)["regions"] if each["region"] == region)
        return found if found["state"] == state and reason in (found["reason"], "") else None

    found: dict[str, Any] = eventually_in_traffic(look, what=f"{region}: {state} {reason}")
    return found


def bad(*loads: RequestLoad) -> Counter[tuple[int, str]]:
    outcomes: list[RequestOutcome] = [one for load in loads for one in load.outcomes()]
    return Counter((one.status, one.error) for one in outcomes if one.status != 200)


def test_a_bad_image_beside_a_region_without_instances_keeps_serving_at_both_gateways(
    fleet: LocalFleet, loads: dict[str, RequestLoad]
) -> None:
    empty = [{"region": "eu", "replicas": 0}, {"region": "us", "replicas": 2}]
    fleet.api.put(both("v1", topology=empty))
    until_ready(fleet)
    fleet.api.put({**both("v1", topology=empty), "spec": {**both("v1", topology=empty)["spec"], "image": "no/such:1"}})
    failing = until_region(fleet, "us", "Failing", "")
    assert "revision" in failing["message"] and "keeps serving" in failing["message"]
    for load in loads.values():
        seen = len(load.outcomes())
        eventually_in_traffic(lambda load=load, seen=seen: len(load.outcomes()) > seen + 2 * RATE, what="requests")
        until_answers(load, {"v1"})
    assert not bad(*loads.values())
    fleet.api.put(both("v2", topology=empty))
    until_ready(fleet)
    for load in loads.values():
        until_answers(load, {"v2"})
    assert not bad(*loads.values()), "a region without instances follows without a failed request"


def test_a_region_that_fails_keeps_its_version_while_the_other_moves_and_catches_up(
    fleet: LocalFleet, loads: dict[str, RequestLoad]
) -> None:
    broken = [{"region": "eu", "replicas": 2}, {"region": "us", "replicas": 2, "overrides": {"image": "no/such:1"}}]
    fleet.api.put(both("v2", topology=broken))
    until_answers(loads["eu"], {"v2"})
    until_region(fleet, "us", "Failing", "")
    until_answers(loads["us"], {"v1"})
    eventually_in_traffic(lambda: fleet.api.app_status(APP)["state"] == "Degraded", what="eu done")
    assert fleet.api.app_status(APP)["others"], "the old revision in us"
    fleet.api.put(both("v2"))
    until_ready(fleet)
    until_answers(loads["us"], {"v2"})
    assert not bad(*loads.values())


def test_a_gateway_that_does_not_answer_keeps_the_old_instances_until_it_is_forgotten(
    fleet: LocalFleet, loads: dict[str, RequestLoad]
) -> None:
    sentinels = f"/projects/{PROJECT}/environments/{ENVIRONMENT}/sentinels"
    name = next(one["metadata"]["name"] for one in fleet.api.get(sentinels)["items"] if one["spec"]["region"] == "eu")
    (pod,) = gateway_pods(fleet, "eu-1")
    supervisor = supervisor_of(pod)
    os.kill(supervisor, signal.SIGSTOP)
    try:
        fleet.api.put(both("v2"))
        until_answers(loads["us"], {"v2"})
        held = until_region(fleet, "eu", "Progressing", "GatewayBehind")
        assert pod in held["message"]
        seen = len(loads["eu"].outcomes())
        eventually_in_traffic(lambda: len(loads["eu"].outcomes()) > seen + 4 * RATE, what="requests meanwhile")
        until_answers(loads["eu"], {"v1"})
        assert not bad(*loads.values())
        forgotten = fleet.api.request("POST", f"{sentinels}/{name}/forget").body
        assert forgotten["pods"] == [pod]
        until_ready(fleet)
    finally:
        os.kill(supervisor, signal.SIGCONT)
    until_answers(loads["eu"], {"v2"})


@pytest.mark.chaos  # a minute; the agent's part of it: tests/cluster/krane/test_silent_gateways.py
def test_a_silent_gateway_beside_another_leaves_its_service_and_is_no_longer_waited_for(
    fleet: LocalFleet, tmp_path: Path
) -> None:
    fleet.api.put(both("v1"))
    until_ready(fleet)
    scale_gateway(fleet, 2)
    pod = eventually_in_traffic(lambda: pods[0] if len(pods := counting_pods(fleet, "eu-1")) == 2 else "", what="two")
    address = gateway_address(fleet.api, "eu")
    supervisor = supervisor_of(pod)
    os.kill(supervisor, signal.SIGSTOP)
    try:
        fleet.api.put(both("v2"))
        eventually_in_traffic(
            lambda: pod in until_region(fleet, "eu", "Progressing", "GatewayBehind")["message"], what="it is waited for"
        )
        eventually_in_traffic(lambda: f"taken out of its Service: {pod}" in gateway_reason(fleet), what="it is named")
        with RequestLoad(tmp_path / "eu", address, HOST, rate=RATE) as load:  # new connections
            until_ready(fleet)
            until_answers(load, {"v2"})
        assert not bad(load)
    finally:
        with contextlib.suppress(ProcessLookupError):  # its container was started again meanwhile
            os.kill(supervisor, signal.SIGCONT)
    eventually_in_traffic(lambda: gateway_reason(fleet) == "", what="it is put back")
    scale_gateway(fleet, 1)
    eventually_in_traffic(lambda: len(gateway_pods(fleet, "eu-1")) == 1, what="one gateway again")


def gateway_reason(fleet: LocalFleet) -> str:
    found = next(each for each in fleet.api.get("/status")["gateways"] if each["region"] == "eu")
    return str(found["reason"])


def scale_gateway(fleet: LocalFleet, replicas: int) -> None:
    found = fleet.api.get(f"/projects/{PROJECT}/environments/{ENVIRONMENT}/sentinels")["items"]
    spec = next(one for one in found if one["spec"]["region"] == "eu")
    about = {"name": spec["metadata"]["name"], "project": PROJECT, "environment": ENVIRONMENT}
    wanted = {**spec["spec"], "replicas": replicas}
    fleet.api.apply({"apiVersion": "shoal.dev/v1", "kind": "Sentinel", "metadata": about, "spec": wanted})


def gateway_pods(fleet: LocalFleet, cluster: str) -> list[str]:
    async def read() -> list[str]:
        async with fleet.clusters[cluster].client() as client:
            pods = (await client.of(builtin("pods")).list()).items
        return [pod["metadata"]["name"] for pod in pods if pod["metadata"]["namespace"] == "sentinel"]

    return asyncio.run(read())


def counting_pods(fleet: LocalFleet, cluster: str) -> list[str]:
    """The gateways' pods that have written their counters: others cannot be told from pods that begin."""

    async def read() -> set[str]:
        async with fleet.clusters[cluster].client() as client:
            maps = (await client.of(builtin("configmaps")).list(Scope(namespace="sentinel"))).items
        stats = [one for one in maps if one["metadata"]["name"].startswith("stats-")]
        return {pod for one in stats for pod in one.get("data") or {}}

    return sorted(asyncio.run(read()) & set(gateway_pods(fleet, cluster)))


def test_an_autoscaled_app_is_replaced_by_as_many_instances_as_it_has(
    fleet: LocalFleet, loads: dict[str, RequestLoad]
) -> None:
    scaled = {"autoscaling": {"min": 1, "max": 5}}
    fleet.api.put(both("v1", **scaled))
    until_ready(fleet)
    name = deployments(fleet, "eu-1")[0]["metadata"]["name"]
    scale(fleet, "eu-1", name, 3)
    eventually_in_traffic(lambda: instances(fleet, "eu") == {3}, what="three instances")
    fleet.api.put(both("v2", **scaled))
    until_ready(fleet)
    (only,) = deployments(fleet, "eu-1")
    assert only["spec"]["replicas"] == 3
    for load in loads.values():
        until_answers(load, {"v2"})
    assert not bad(*loads.values())


def instances(fleet: LocalFleet, region: str) -> set[int]:
    status = fleet.api.app_status(APP)
    return {each["reported"]["ready"] for each in status["regions"] if each["region"] == region}


def deployments(fleet: LocalFleet, cluster: str) -> list[dict[str, Any]]:
    async def read() -> list[dict[str, Any]]:
        async with fleet.clusters[cluster].client() as client:
            found = (await client.of(builtin("deployments", "apps")).list()).items
        return [each for each in found if each["metadata"]["name"].startswith(f"{APP}-")]

    return asyncio.run(read())


def scale(fleet: LocalFleet, cluster: str, name: str, replicas: int) -> None:
    """As an autoscaler would."""

    async def write() -> None:
        async with fleet.clusters[cluster].client() as client:
            resource = client.of(builtin("deployments", "apps"))
            found = (await resource.list()).items
            namespace = next(each["metadata"]["namespace"] for each in found if each["metadata"]["name"] == name)
            await resource.patch(name, {"spec": {"replicas": replicas}}, namespace, subresource="scale")

    asyncio.run(write())


def test_a_region_without_room_for_one_more_says_so_and_keeps_its_version(
    fleet: LocalFleet, loads: dict[str, RequestLoad]
) -> None:
    fleet.api.put(both("v2", resources={"cpu": "1000", "memory": "64Mi"}))
    held = until_region(fleet, "eu", "Failing", "NoCapacity")
    assert "keeps serving" in held["message"]
    for load in loads.values():
        until_answers(load, {"v1"})
    fleet.api.put(both("v1"))
    status = until_ready(fleet)
    assert status["regions"][0]["weight"] == 100
    assert not bad(*loads.values())


def test_rollback_goes_back_without_a_failed_request(fleet: LocalFleet, loads: dict[str, RequestLoad]) -> None:
    fleet.api.put(both("v2"))
    until_ready(fleet)
    fleet.api.request("POST", f"{app_path(APP)}/rollback", {})
    until_ready(fleet)
    for load in loads.values():
        until_answers(load, {"v1"})
    revisions = fleet.api.get(f"{app_path(APP)}/deployments")["items"]
    assert [each["live"] for each in revisions[:2]] == [True, False]
    assert not bad(*loads.values())


def test_a_live_revision_that_answers_with_errors_is_marked_until_it_answers_again(
    fleet: LocalFleet, tmp_path: Path
) -> None:
    fleet.api.put(both("v1"))
    until_ready(fleet)
    addresses = {region: gateway_address(fleet.api, region) for region in REGIONS}
    with RequestLoad(tmp_path / "bad", addresses["eu"], HOST, rate=RATE, mix=("GET /status/500",)):
        eventually_in_traffic(lambda: fleet.api.app_status(APP)["state"] == "Broken", what="the mark")
    newest = fleet.api.get(f"{app_path(APP)}/deployments")["items"][0]
    assert newest["status"] == "broken" and newest["live"] and "requests with 5xx in" in newest["reason"]
    with (
        RequestLoad(tmp_path / "eu", addresses["eu"], HOST, rate=RATE) as eu,
        RequestLoad(tmp_path / "us", addresses["us"], HOST, rate=RATE) as us,
    ):
        for load in (eu, us):
            until_answers(load, {"v1"})
        until_ready(fleet)
    events = [each["reason"] for each in fleet.api.get(f"{app_path(APP)}/events")["items"]]
    assert [each for each in events if each in ("Failing", "Recovered")][-2:] == ["Failing", "Recovered"]
