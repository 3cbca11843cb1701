"""A gateway's pod that is silent leaves its Service while another one serves; pods of an earlier version stay in it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import orjson
import pytest
from krane_world import World, custom, sentinel, world

from shoal.base.tasks import cancel_all
from shoal.client import Scope
from shoal.krane import rbac
from shoal.krane.labels import SERVING
from shoal.kube.objects import Obj
from shoal.sentinel.stats import belonging
from shoal.testing.waiting import eventually

ROUTE = orjson.dumps({"environment": "env_1", "host": "shop.example"})
NAME = "sentinel-eu-x"
IN_GATEWAYS = Scope(namespace="sentinel")


async def pods_of(up: World) -> dict[str, Obj]:
    return {pod["metadata"]["name"]: pod for pod in (await up.of("pods").list(IN_GATEWAYS)).items}


async def led_to(up: World) -> set[str]:
    """The pods that the gateway's Service leads to."""
    slices = (await up.of("endpointslices", "discovery.k8s.io").list(IN_GATEWAYS)).items
    return {each["targetRef"]["name"] for one in slices for each in one.get("endpoints") or ()}


@asynccontextmanager
async def writing(up: World, writers: set[str]) -> AsyncIterator[None]:
    """Pods write their counters while they are in ``writers``, as gateways do."""
    owner = await up.get("configmaps", name=f"peers-{NAME}", namespace="sentinel")
    about = {"name": f"stats-{NAME}", "namespace": "sentinel", **belonging(owner)}
    data = {name: orjson.dumps({"v": 1, "at": 0, "deployments": {}}).decode() for name in writers}
    await up.of("configmaps").create({"metadata": about, "data": data})

    async def write() -> None:
        at = 0
        while True:
            at += 1
            new = {name: orjson.dumps({"v": 1, "at": at, "deployments": {}}).decode() for name in writers}
            await up.of("configmaps").patch(f"stats-{NAME}", {"data": new}, "sentinel")
            await asyncio.sleep(0.1)

    task = asyncio.create_task(write(), name="counters")
    try:
        yield
    finally:
        await cancel_all(task)


async def judge(up: World, *pods: str) -> None:
    """These pods have taken the route as it is now."""
    routes = await up.admin.by_kind("SentinelRoute")
    generation = (await routes.get("shop-x", "sentinel"))["metadata"]["generation"]
    entries = [{"name": name, "accepted": True, "generation": generation} for name in pods]
    await routes.patch("shop-x", {"status": {"gateways": entries}}, "sentinel", subresource="status")


async def test_a_silent_pod_leaves_its_service_is_named_and_not_waited_for_until_it_is_heard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, seconds in (
        ("silence.STALE_S", 3.0),
        ("silence.LOOK_S", 0.1),
        ("serving.LOOK_S", 0.1),
        ("serving.DRAIN_S", 3.0),
    ):
        monkeypatch.setattr(f"shoal.krane.sentinels.{name}", seconds)
    async with world() as up:
        await up.apply(sentinel(1, replicas=2), custom("route/rt_1", 2, "shop-x", ROUTE))
        await eventually(lambda: up.gateway() and up.gateway().available_replicas == 2)
        good, silent = sorted(await pods_of(up))
        writers = {good, silent}
        async with writing(up, writers):
            await judge(up, good)
            await eventually(lambda: up.gateway("route/rt_1").waiting == [silent])

            async def both() -> bool:
                return await led_to(up) == {good, silent}

            await eventually(both)
            writers.remove(silent)
            await eventually(lambda: up.gateway().taken_out == [silent])
            assert up.gateway().stale == [silent]
            assert up.gateway("route/rt_1").waiting == [silent], "its connections go on for a while"

            async def left() -> bool:
                return await led_to(up) == {good}

            await eventually(left)
            await eventually(lambda: up.gateway("route/rt_1").waiting == [])
            writers.add(silent)
            await asyncio.sleep(1.0)
            assert await led_to(up) == {good}, "its routes are old"
            await judge(up, good, silent)
            await eventually(lambda: up.gateway().taken_out == [] and up.gateway().stale == [])

            async def back() -> bool:
                return await led_to(up) == {good, silent}

            await eventually(back)
            writers.clear()
            await eventually(lambda: up.gateway().stale == [good, silent])
            assert up.gateway().taken_out == [] and await led_to(up) == {good, silent}, "never the last ones"


async def as_of_an_earlier_version(up: World) -> None:
    """The Service leads to all pods, and these have no label."""
    for name in await pods_of(up):
        await up.of("pods").patch(name, {"metadata": {"labels": {SERVING: None}}}, "sentinel")
    await up.of("services").patch(NAME, {"spec": {"selector": {SERVING: None}}}, "sentinel")
    await eventually(lambda: any("selector" in field for field in up.gateway().drift))


async def selector_of(up: World) -> dict[str, str]:
    found: dict[str, str] = (await up.get("services", name=NAME, namespace="sentinel"))["spec"]["selector"]
    return found


async def test_pods_of_an_earlier_version_get_the_label_before_their_service_demands_it() -> None:
    async with world() as up:
        await up.apply(sentinel(1, replicas=2))
        await eventually(lambda: up.gateway() and up.gateway().available_replicas == 2)
        await as_of_an_earlier_version(up)
        before = set(await pods_of(up))
        await up.apply(sentinel(2, replicas=2))
        assert SERVING in await selector_of(up)
        found = await pods_of(up)
        assert {found[name]["metadata"]["labels"].get(SERVING) for name in before & set(found)} == {"true"}


async def test_without_the_right_to_label_pods_the_service_leads_to_all_of_them() -> None:
    manifests = [
        {**each, "rules": [rule for rule in each["rules"] if rule["resources"] != ["pods"]]}
        if each["kind"] == "ClusterRole" and each["metadata"]["name"] == "shoal-krane-sentinel"
        else each
        for each in rbac.manifests()
    ]
    async with world(manifests=manifests) as up:
        await up.apply(sentinel(1, replicas=2))
        await eventually(lambda: up.gateway() and up.gateway().available_replicas == 2)
        await as_of_an_earlier_version(up)
        await up.apply(sentinel(2, replicas=2))
        assert SERVING not in await selector_of(up)
