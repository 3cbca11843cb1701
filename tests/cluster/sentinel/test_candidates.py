"""A real gateway and a candidate that gets no share of the requests: testers, copies and a preview host reach it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from gateway_world import Instance, World, instances, route, world

from shoal.sentinel.inputs import POLICY_TYPE, ROUTE_TYPE
from shoal.testing.waiting import eventually

HOST, NEXT = "shop.example", "next.example"


def target(deployment: str) -> dict[str, Any]:
    return {"deployment": deployment, "namespace": "shop", "service": deployment.replace("_", "-")}


@asynccontextmanager
async def rolled(**rollout: Any) -> AsyncIterator[tuple[World, Instance, Instance]]:
    """A route whose requests go to ``stable``; the candidate is ``dep_2``."""
    async with world() as up, instances("stable", "candidate") as (stable, candidate):
        await up.endpoints("dep_1", stable)
        await up.endpoints("dep_2", candidate)
        backends = [{**target("dep_1"), "weight": 10000}, {**target("dep_2"), "weight": 0}]
        await up.put(ROUTE_TYPE, {**route("web", HOST, backends=backends, path="/shop"), "rollout": rollout})
        await up.answers(HOST, "stable", "/shop")
        yield up, stable, candidate


async def asked(
    up: World, host: str = HOST, path: str = "/shop", method: str = "GET", **headers: str
) -> tuple[int, str]:
    found = await up.http.request(method, path, headers={"host": host, **headers})
    return found.status_code, found.text


async def test_testers_reach_the_candidate_by_header_or_cookie_and_all_others_do_not() -> None:
    testers = [
        {"header": {"name": "X-Beta", "value": "v2"}, "target": target("dep_2")},
        {"cookie": {"name": "beta", "value": "a.b+1"}, "target": target("dep_2")},
    ]
    async with rolled(testers=testers) as (up, _, candidate):
        await up.answers(HOST, "stable", "/shop/deep")
        for method in ("GET", "PUT", "POST"):
            assert await asked(up, method=method, **{"x-beta": "v2"}) == (200, "candidate")
        for cookie in ("beta=a.b+1", "a=1; beta=a.b+1", "beta=a.b+1; z=2", "a=1; beta=a.b+1; z=2", "a=1;beta=a.b+1"):
            assert await asked(up, cookie=cookie) == (200, "candidate"), cookie
        for cookie in ("beta=aXb+1", "beta=a.b+12", "xbeta=a.b+1", "a=beta=a.b+1", "beta=a.bb1"):
            assert await asked(up, cookie=cookie) == (200, "stable"), cookie
        assert await asked(up, **{"x-beta": "v1"}) == (200, "stable")
        assert (await asked(up, path="/else", **{"x-beta": "v2"}))[0] == 404
        spec = {"environment": "env_1", "firewall": {"paths": ["/shop/secret"]}}
        about = {"name": "wall", "namespace": "sentinel", "labels": {"shoal.dev/environment": "env_1"}}
        wall = {"apiVersion": POLICY_TYPE.api_version, "kind": POLICY_TYPE.kind, "metadata": about, "spec": spec}
        await up.put(POLICY_TYPE, wall)

        async def refused() -> bool:
            return (await asked(up, path="/shop/secret", **{"x-beta": "v2"}))[0] == 403

        await eventually(refused)
        await up.endpoints("dep_2")

        async def empty() -> bool:
            status, text = await asked(up, **{"x-beta": "v2"})
            return status == 503 and "error" in text

        await eventually(empty)
        assert await asked(up) == (200, "stable"), "users are not concerned"


async def test_copies_reach_the_candidate_with_a_host_that_shows_them_and_are_not_counted_as_requests() -> None:
    async with rolled(mirrors=[{**target("dep_2"), "percent": 100}]) as (up, stable, candidate):
        before = candidate.requests, stable.requests
        for _ in range(20):
            assert await asked(up) == (200, "stable")
        await eventually(lambda: candidate.requests >= before[0] + 20)
        assert stable.requests == before[1] + 20
        assert f"host: {HOST}-shadow".encode() in candidate.heads[-1].lower()


async def test_a_share_of_copies_is_copied() -> None:
    async with rolled(mirrors=[{**target("dep_2"), "percent": 25}]) as (up, _, candidate):
        before = candidate.requests
        await asyncio.gather(*(asked(up) for _ in range(400)))
        await eventually(lambda: candidate.requests > before + 40)
        assert candidate.requests < before + 200


async def test_a_preview_host_leads_to_the_candidate_under_the_paths_of_the_route() -> None:
    async with rolled(previews=[{"host": NEXT, "target": target("dep_2")}]) as (up, _, candidate):
        await up.answers(NEXT, "candidate", "/shop/deep")
        assert await asked(up, NEXT, "/shop", "POST") == (200, "candidate")
        assert (await asked(up, NEXT, "/else"))[0] == 404
        assert await asked(up) == (200, "stable")
        assert f"host: {NEXT}".encode() in candidate.heads[-1].lower()
        status = await eventually(lambda: up.status("web"))
        assert status is not None and status["accepted"]
        await up.put(ROUTE_TYPE, route("web", HOST, "dep_1", path="/shop"))

        async def gone() -> bool:
            return (await asked(up, NEXT))[0] == 404

        await eventually(gone)


async def test_a_rule_that_the_gateway_does_not_know_is_not_accepted_and_users_are_served() -> None:
    bad = {"header": {"name": "x y", "value": "1"}, "target": target("dep_2")}
    async with rolled(testers=[bad]) as (up, _, _candidate):

        async def named() -> bool:
            status = await up.status("web")
            return status is not None and not status["accepted"] and "testers" in status["message"]

        await eventually(named)
        assert await asked(up) == (200, "stable")
