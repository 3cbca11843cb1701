"""The API on a port, with TLS, as a control plane serves it."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx
from api_world import ENV, a_world, an_app

from shoal.app.pki import Pki
from shoal.app.ports import any_free
from shoal.base.asgi import Tls, serving
from shoal.base.clock import RealClock
from shoal.testing.waiting import eventually


async def test_requests_and_streams_over_tls(tmp_path: Path) -> None:
    async with asyncio.timeout(120):
        clock = RealClock()
        pki = Pki(tmp_path / "pki", now=clock.now())
        keys = pki.ensure_server(("localhost", "127.0.0.1"))
        port = any_free("127.0.0.1")
        async with a_world({"main": f"sqlite:///{tmp_path}/fleet.db"}) as world:
            await world.prepare()
            tls = Tls(keys.cert, keys.key)
            trusted = ssl.create_default_context(cafile=str(pki.ca_cert))
            async with (
                serving(world.api, host="127.0.0.1", port=port, clock=clock, tls=tls),
                httpx.AsyncClient(verify=trusted, base_url=f"https://127.0.0.1:{port}", trust_env=False) as http,
            ):
                assert (await http.get("/livez")).status_code == 200
                assert (await http.get("/metrics")).status_code == 200
                assert (await http.get("/api/v1")).status_code == 401
                headers = {"Authorization": f"Bearer {world.editor.token}"}
                made = await http.put(f"{ENV}/apps/web", json=an_app(), headers=headers)
                assert made.status_code == 201 and made.headers["etag"]
                large = await http.put(
                    f"{ENV}/apps/web", content=b" " * 2_000_000, headers={**headers, "Content-Type": "application/json"}
                )
                assert large.status_code == 413
                await follow(http, headers, world.happen)
                closed = b'shoal_control_api_streams{stream="events"} 0.0'
                await eventually(lambda: closed in world.metrics.render(), what="the server notices the lost client")


async def follow(http: httpx.AsyncClient, headers: dict[str, str], happen: Callable[[str], Awaitable[None]]) -> None:
    async with http.stream("GET", "/api/v1/events?follow=true", headers=headers) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        lines = stream.aiter_lines()
        assert await anext(lines) == ": open"
        await happen("OverTheWire")
        async for line in lines:
            if "OverTheWire" in line:
                break
