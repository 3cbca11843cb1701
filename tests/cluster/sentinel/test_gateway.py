"""A gateway with a real Envoy and a real API server: changes of the cluster reach Envoy and stay in effect."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
from collections import Counter

import httpx
import orjson
from gateway_world import SLICES, Instance, World, endpoint_slice, instances, route, steady_load, world

from shoal.client import builtin
from shoal.sentinel.inputs import ROUTE_TYPE
from shoal.testing.traces import collector
from shoal.testing.waiting import eventually


async def serve(up: World, *found: Instance, name: str = "web", host: str = "shop.example") -> None:
    """A route to one deployment, whose instances answer."""
    await up.route(name, host, "dep_1")
    await up.endpoints("dep_1", *found)
    await up.answers(host, found[0].name)


async def test_a_route_and_its_endpoints_make_traffic_flow() -> None:
    async with world() as up, instances("one") as (one,):
        assert (await up.get("shop.example")).status_code == 404
        await serve(up, one)
        assert (await up.get("elsewhere.example")).status_code == 404
        status = await eventually(lambda: up.status("web"))
        assert status == {"name": "sentinel-eu-0", "accepted": True, "generation": 1}
        await up.client.of(ROUTE_TYPE).delete("web", "sentinel")

        async def gone() -> bool:
            return (await up.get("shop.example")).status_code == 404

        await eventually(gone)


async def test_endpoints_come_and_go_within_a_second_and_no_request_fails() -> None:
    async with world() as up, instances("one", "two") as (one, two):
        await serve(up, one)
        results: list[str] = []
        took_s: list[float] = []
        async with steady_load(up, "shop.example", results):
            for known, other in ((one, two), (two, one), (one, two)):
                began, start = time.monotonic(), len(results)
                await up.endpoints("dep_1", known, other)
                await eventually(lambda other=other, start=start: other.name in results[start:])
                took_s.append(time.monotonic() - began)
                await up.endpoints("dep_1", other)
                await eventually(lambda other=other: set(results[-50:]) == {other.name})
        assert not Counter(found for found in results if found.startswith("error"))
        assert min(took_s) < 1.0


async def test_weights_change_without_a_failed_request() -> None:
    async with world() as up, instances("one", "two") as (one, two):
        await serve(up, one)
        await up.endpoints("dep_2", two)
        results: list[str] = []
        async with steady_load(up, "shop.example", results):
            for first, second in ((100, 0), (50, 50), (0, 100)):
                backends = [
                    {"deployment": "dep_1", "namespace": "shop", "service": "dep-1", "weight": first},
                    {"deployment": "dep_2", "namespace": "shop", "service": "dep-2", "weight": second},
                ]
                await up.route("web", "shop.example", backends=backends)
                before = len(results)
                await eventually(lambda before=before: len(results) > before + 60)
            await up.route("web", "shop.example", "dep_2")
            await eventually(lambda: set(results[-50:]) == {"two"})
        assert not Counter(one for one in results if one.startswith("error"))


async def test_envoy_that_is_killed_comes_back_with_everything() -> None:
    async with world() as up, instances("one") as (one,):
        await serve(up, one)
        before = up.gateway.supervisor.pid
        assert before is not None
        os.kill(before, signal.SIGKILL)
        await eventually(lambda: up.gateway.supervisor.pid not in (None, before))
        await up.answers("shop.example", "one")
        await eventually(lambda: all(up.gateway.ready.values()))


async def test_a_deployment_whose_settings_change_is_not_interrupted() -> None:
    async with world() as up, instances("one") as (one,):
        await serve(up, one)
        results: list[str] = []
        async with steady_load(up, "shop.example", results):
            for number in (100, 200):
                await up.route("web", "shop.example", "dep_1", circuit={"connections": number})
                before = len(results)
                await eventually(lambda before=before: len(results) > before + 60)
            await up.route("sticky", "sticky.example", "dep_1", sticky={"cookie": "c", "ttl": 60})
            await up.answers("sticky.example", "one")
        assert not Counter(one for one in results if one.startswith("error"))


async def test_envoy_does_not_outlive_the_gateway() -> None:
    async def main() -> int:
        async with world() as up:
            pid = up.gateway.supervisor.pid
            assert pid is not None
            return pid

    pid = await main()
    assert not os.path.exists(f"/proc/{pid}")


async def test_without_the_api_server_traffic_goes_on_also_with_a_new_envoy() -> None:
    async with world() as up, instances("one") as (one,):
        await serve(up, one)
        assert up.transport is not None
        up.transport.cut()
        await eventually(lambda: up.transport is not None and up.transport.refused > 3)
        assert (await up.get("shop.example")).text == "one"
        before = up.gateway.supervisor.pid
        assert before is not None
        os.kill(before, signal.SIGKILL)
        await eventually(lambda: up.gateway.supervisor.pid not in (None, before))
        await up.answers("shop.example", "one")
        up.transport.mend()
        await up.route("later", "later.example", "dep_1")
        await up.answers("later.example", "one")


async def test_what_envoy_refuses_is_put_aside_with_its_reason_and_all_others_go_on() -> None:
    async with world() as up, instances("one") as (one,):
        await serve(up, one)
        await up.route("web", "shop.example", "dep_1", timeouts={"total": -5.0})
        await up.route("bad", "bad.example", "dep_1", timeouts={"total": -5.0})
        await up.route("good", "good.example", "dep_1")
        await up.answers("good.example", "one")
        assert (await up.get("shop.example")).text == "one"  # as it last was
        assert (await up.get("bad.example")).status_code == 503  # never was: closed
        for name, generation in (("web", 2), ("bad", 1)):
            found = await eventually(lambda name=name: refused(up, name))
            assert found["generation"] == generation
            assert found["message"].startswith("Envoy refuses it: ")
        assert (await eventually(lambda: up.status("good")))["accepted"]
        await up.route("bad", "bad.example", "dep_1")
        await up.answers("bad.example", "one")

        async def accepted() -> bool:
            found = await up.status("bad")
            return found == {"name": "sentinel-eu-0", "accepted": True, "generation": 2}

        await eventually(accepted)


async def test_a_bad_route_does_not_keep_a_new_gateway_from_serving_the_others() -> None:
    async with instances("one") as (one,):
        good = [(ROUTE_TYPE, route(f"good-{n}", f"good-{n}.example", "dep_1")) for n in range(6)]
        bad = (ROUTE_TYPE, route("bad", "bad.example", "dep_1", timeouts={"total": -5.0}))
        async with world((SLICES, endpoint_slice("dep_1", one)), *good[:3], bad, *good[3:]) as up:
            for number in range(6):  # at once: it is ready
                assert (await up.get(f"good-{number}.example")).text == "one"
            assert (await up.get("bad.example")).status_code == 503
            await eventually(lambda: refused(up, "bad"))


def peers_map() -> dict[str, object]:
    """As krane writes it."""
    labels = {"shoal.dev/sentinel": "snt_1", "app.kubernetes.io/component": "sentinel"}
    about = {"name": "peers-sentinel-eu", "namespace": "sentinel", "labels": labels}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": about, "data": {"peers.json": "[]"}}


async def refused(up: World, name: str) -> dict[str, object] | None:
    found = await up.status(name)
    return found if found is not None and not found["accepted"] else None


async def test_health_metrics_and_counters_describe_the_gateway() -> None:
    async with world() as up, instances("one") as (one,), httpx.AsyncClient() as http:
        await up.put(builtin("configmaps"), peers_map())
        await serve(up, one)
        base = f"http://127.0.0.1:{up.config.health_port}"
        assert (await http.get(f"{base}/livez")).status_code == 200
        assert (await http.get(f"{base}/readyz")).json()["ok"]
        assert (await http.get(f"{base}/other")).status_code == 404

        async def written() -> dict[str, object] | None:
            found = await up.client.of(builtin("configmaps")).get("stats-sentinel-eu", "sentinel")
            entry = orjson.loads(found["data"]["sentinel-eu-0"])
            stats = entry["deployments"].get("dep_1")
            return entry if stats and stats["codes"][1] and stats["times"] else None

        entry = await eventually(written)
        about = (await up.client.of(builtin("configmaps")).get("stats-sentinel-eu", "sentinel"))["metadata"]
        assert about["labels"] == {
            "shoal.dev/sentinel": "snt_1", "app.kubernetes.io/component": "sentinel-stats",
        }  # fmt: skip
        assert about["ownerReferences"][0]["name"] == "peers-sentinel-eu"
        assert entry["v"] == 2 and entry["region"] == "eu"
        stats = entry["deployments"]["dep_1"]
        assert (stats["healthy"], stats["total"]) == (1, 1)
        shown = (await http.get(f"http://127.0.0.1:{up.config.metrics_port}/metrics")).text
        assert 'shoal_sentinel_requests_total{code="2xx",deployment="dep_1",region="eu"}' in shown
        up.gateway.leave()
        assert (await http.get(f"{base}/readyz")).status_code == 503


async def test_counters_only_rise_when_envoy_is_started_anew() -> None:
    async with world() as up, instances("one") as (one,):
        await serve(up, one)
        for _ in range(5):
            await up.get("shop.example")
        stats = up.gateway.stats
        await eventually(lambda: stats.current().get("dep_1") and stats.current()["dep_1"].everything.codes[1] >= 5)
        before = up.gateway.supervisor.pid
        assert before is not None
        os.kill(before, signal.SIGKILL)
        await eventually(lambda: up.gateway.supervisor.pid not in (None, before))
        await up.answers("shop.example", "one")
        await eventually(lambda: stats.current()["dep_1"].everything.codes[1] >= 6)


async def test_requests_under_way_end_well_when_the_gateway_stops() -> None:
    async with world(drain_s=5.0) as up, instances("one") as (one,):
        await serve(up, one)
        one.delay_s = 1.0
        seen = one.requests
        slow = asyncio.create_task(up.get("shop.example"), name="slow")
        await eventually(lambda: one.requests > seen)
        up.gateway.leave()
        assert (await slow).text == "one"


async def test_traces_go_to_the_collector_and_the_context_to_the_instance() -> None:
    trace, parent = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
    headers = {"host": "shop.example", "traceparent": f"00-{trace}-{parent}-01"}
    with collector() as found:
        async with world(traces_url=found.url, traces_percent=100.0) as up, instances("one") as (one,):
            await serve(up, one)
            assert (await up.http.get("/", headers=headers)).status_code == 200
            (span,) = await eventually(lambda: [each for each in found.spans if each.trace == trace])
            assert (span.parent, span.service) == (parent, "shoal-sentinel")
            assert found.formats == {"application/x-protobuf"}
            assert f"traceparent: 00-{trace}-{span.id}-01".encode() in one.heads[-1]
            assert [each for each in found.spans if not each.parent], "those without a context begin a trace"


async def test_a_client_cannot_have_more_traced_than_the_percentage() -> None:
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    with collector() as found:
        async with world(traces_url=found.url, traces_percent=0.0) as up, instances("one") as (one,):
            await serve(up, one)
            headers = {"host": "shop.example", "traceparent": f"00-{trace}-00f067aa0ba902b7-01"}
            assert (await up.http.get("/", headers=headers)).status_code == 200
            assert re.search(rf"traceparent: 00-{trace}-[0-9a-f]{{16}}-00".encode(), one.heads[-1])
        assert not found.spans
