"""API servers for tests: what a fake clock moves."""

from __future__ import annotations

from shoal.base.clock import FakeClock
from shoal.store import RingLimits
from shoal.testing.servers import local_server

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"


async def test_the_history_of_a_server_ages_by_its_clock() -> None:
    clock = FakeClock()
    async with local_server(clock=clock) as server:
        created = await server.post(CONFIGMAPS, {"metadata": {"name": "a"}, "data": {"text": "x" * 100_000}})
        await server.patch(f"{CONFIGMAPS}/a", {"data": {"text": ""}})
        assert server.store.history_bytes > 100_000
        since = f"{CONFIGMAPS}?watch=true&resourceVersion={created['metadata']['resourceVersion']}"
        async with server.watch(since) as events:
            assert (await anext(events))["type"] == "MODIFIED"

        await clock.advance(RingLimits().max_age_s * 1.1)
        await server.post(CONFIGMAPS, {"metadata": {"name": "b"}})  # history is trimmed with writes
        assert server.store.history_bytes < 100_000
        async with server.watch(since) as events:
            assert (await anext(events))["object"]["code"] == 410
