"""What two real gateways of different regions count: users where they come in, peers and copies apart from them."""

from __future__ import annotations

import base64
from typing import Any

import orjson
from certificates_under_test import Authority
from gateway_world import LABELS, World, gateway, instances, route, world

from shoal.app.ports import any_free
from shoal.client import builtin
from shoal.sentinel.inputs import ROUTE_TYPE
from shoal.sentinel.model import TlsSecret
from shoal.testing.waiting import eventually

SECRETS = builtin("secrets")
MAPS = builtin("configmaps")
COPIES = {"deployment": "dep_2", "namespace": "shop", "service": "dep-2", "percent": 100}


def tls(secret: TlsSecret) -> dict[str, Any]:
    parts = {"tls.crt": secret.certificate, "tls.key": secret.key, "ca.crt": secret.authority}
    data = {name: base64.b64encode(text).decode() for name, text in parts.items()}
    about = {"name": "gateways", "namespace": "sentinel", "labels": LABELS}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": about, "type": "kubernetes.io/tls", "data": data}


def peers(region: str, port: int) -> dict[str, Any]:
    about = {"name": "peers-sentinel-eu", "namespace": "sentinel", "labels": LABELS}
    told = [{"region": region, "addresses": [f"127.0.0.1:{port}"], "distance": 1, "healthy": True}]
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": about,
        "data": {"peers.json": orjson.dumps(told).decode()},
    }


async def entry_of(up: World) -> dict[str, Any]:
    found = await up.client.of(MAPS).get("stats-sentinel-eu", "sentinel")
    return dict(orjson.loads(found["data"]["sentinel-eu-0"]))


def requests(entry: dict[str, Any], deployment: str, origin: str = "entry") -> tuple[int, int]:
    """How many, and of how many the time is known."""
    told = entry["deployments"].get(deployment) or {}
    part = told if origin == "entry" else told.get(origin) or {}
    return sum(part.get("codes") or ()), sum((part.get("times") or [])[1::2])


async def test_users_peers_and_copies_are_counted_apart() -> None:
    secret, near, far = (
        tls(Authority().secret("gateways", "sentinel.shoal")),
        any_free("127.0.0.1"),
        any_free("127.0.0.1"),
    )
    common = {"entry_secret": "gateways"}
    async with instances("stable", "copy") as (stable, copy):
        async with (
            world((SECRETS, secret), (MAPS, peers("far", far)), region="near", entry_port=near, **common) as here,
            world((SECRETS, secret), (MAPS, peers("near", near)), region="far", entry_port=far, **common) as there,
        ):
            shown = route("shop", "shop.example", "dep_1", mirror=COPIES)
            for up in (here, there):
                await up.put(ROUTE_TYPE, shown)
            await there.endpoints("dep_1", stable)
            await here.endpoints("dep_2", copy)
            await here.answers("shop.example", "stable")

            async def copied() -> bool:  # the gateway may know the route before the instances of the copy
                await here.get("shop.example")
                return copy.requests >= 1

            await eventually(copied)
            before, copies = await settled(here, there), copy.requests
            assert before["here entry"] > 0
            for _ in range(20):
                assert (await here.get("shop.example")).text == "stable"
            for _ in range(5):
                assert (await there.get("shop.example")).text == "stable"
            await eventually(lambda: copy.requests >= copies + 20)

            async def counted() -> bool:
                now = await counts(here, there)
                return now == {
                    "here entry": before["here entry"] + 20, "here peer": 0, "there entry": before["there entry"] + 5,
                    "there peer": before["there peer"] + 20, "copies as users": 0, "copies": before["copies"] + 20,
                }  # fmt: skip

            await eventually(counted, explain=lambda: repr((before, here.gateway.stats.entry())))
            first, second = await entry_of(here), await entry_of(there)
            copied_here = requests(first, "dep_2", "mirror")
            assert copied_here[0] == copied_here[1] == copy.requests, "each copy, with its time"
            assert requests(first, "dep_1")[0] == requests(first, "dep_1")[1] >= 21, "each has a time"
            assert 0 <= second["at"] - first["since"] < 600


async def test_what_a_gateway_counted_until_it_ends_is_written() -> None:
    async with world() as up, instances("one") as (one,):
        await up.route("shop", "shop.example", "dep_1")
        await up.endpoints("dep_1", one)
        async with gateway(up.client, pod="sentinel-eu-1", stats_s=600.0) as ending:
            await ending.answers("shop.example", "one")
            seen = one.requests
            for _ in range(7):
                await ending.get("shop.example")
            assert one.requests == seen + 7
        found = await up.client.of(MAPS).get("stats-sentinel-eu", "sentinel")
        last = orjson.loads(found["data"]["sentinel-eu-1"])
        assert requests(last, "dep_1")[0] == requests(last, "dep_1")[1] >= 8


async def settled(here: World, there: World) -> dict[str, int]:
    """The counts, once all requests so far are in them."""
    last: dict[str, int] = {}

    async def is_same() -> bool:
        nonlocal last
        before, last = last, await counts(here, there)
        return before == last and last["here entry"] > 0

    await eventually(is_same, every_s=1.0)
    return last


async def counts(here: World, there: World) -> dict[str, int]:
    first, second = await eventually(lambda: entry_of(here)), await eventually(lambda: entry_of(there))
    copies_as_users = sum(requests(one, "dep_2", origin)[0] for one in (first, second) for origin in ("entry", "peer"))
    return {
        "here entry": requests(first, "dep_1")[0], "here peer": requests(first, "dep_1", "peer")[0],
        "there entry": requests(second, "dep_1")[0], "there peer": requests(second, "dep_1", "peer")[0],
        "copies as users": copies_as_users, "copies": requests(first, "dep_2", "mirror")[0],
    }  # fmt: skip
