"""Watchers of every sort, under writers of every sort: each sees all of what it asked for, once and in order."""

from __future__ import annotations

import asyncio
import time
from random import Random

from watch_mirror import PARTIAL, SELECTIONS, TABLE, Mirror, prepare, server_with, settle, storm, write

from shoal.apiserver.context import ServerConfig
from shoal.store import RingLimits
from shoal.testing.servers import LocalServer, take


def mirrors_of(server: LocalServer, seed: int) -> list[Mirror]:
    """Each selection four ways: steady, restless, as tables, as metadata."""
    random = Random(seed)
    made = []
    for target in SELECTIONS:
        made.append(Mirror(server, target))
        made.append(Mirror(server, target, restless=random.randrange(1, 12)))
        made.append(Mirror(server, target, TABLE, restless=random.choice((0, 5))))
        made.append(Mirror(server, target, PARTIAL, slow_s=random.choice((0.0, 0.002)), restless=random.choice((0, 7))))
    return made


async def test_every_watcher_rebuilds_exactly_what_a_list_shows() -> None:
    async with server_with(config=ServerConfig(ca_certificate="x", bookmark_every_s=0.5)) as server:
        await prepare(server)
        mirrors = mirrors_of(server, 1)
        await storm(server, mirrors, writers=8, writes=60, seed=1)
        assert sum(mirror.events for mirror in mirrors) > 1000
        assert sum(mirror.resumes for mirror in mirrors) > 50
        assert all(mirror.relists == 1 for mirror in mirrors), (
            "the history was long enough: no watcher had to list again"
        )


async def test_watchers_that_fall_behind_a_short_history_get_410_and_recover() -> None:
    """Slow and restless clients against a history of a few events: 410, a new list, and the right state in the end."""

    limits = RingLimits(max_events=16, max_bytes=1 << 20)
    async with server_with(limits) as server:
        await prepare(server)
        mirrors = mirrors_of(server, 2) + [Mirror(server, t, slow_s=0.01, restless=3, away_s=0.03) for t in SELECTIONS]
        await storm(server, mirrors, writers=8, writes=40, seed=2, padding=30_000)
        assert any(mirror.relists > 1 for mirror in mirrors)


async def test_a_client_that_never_reads_does_not_delay_others_and_gets_410() -> None:
    limits = RingLimits(max_events=64, max_bytes=4 << 20)
    async with server_with(limits) as server:
        await prepare(server)
        stuck = await server.transport.stream("GET", "/api/v1/pods?watch=1")
        mirror = Mirror(server, "/api/v1/pods")
        task = asyncio.create_task(mirror.run())
        await write(server, Random(3), 400, padding=100_000)
        await settle([mirror], [task])
        task.cancel()
        text = b"".join([chunk async for chunk in stuck.chunks()])
        assert text.endswith(b"}\n") and b'"code":410' in text.splitlines()[-1], text[-300:]
        assert len(text) < 3 << 20, "it was held back, not fed without limit"


async def test_a_watch_from_before_the_history_gets_410_inside_the_stream() -> None:
    async with server_with(RingLimits(max_events=8)) as server:
        await prepare(server)
        await write(server, Random(4), 100)
        async with server.watch("/api/v1/pods?watch=1&resourceVersion=1") as events:
            (event,) = await take(events, 1)
            assert event["type"] == "ERROR" and event["object"]["code"] == 410
            assert [e async for e in events] == []


async def test_bookmarks_come_to_quiet_watches_and_carry_the_newest_revision() -> None:
    async with server_with(config=ServerConfig(ca_certificate="x", bookmark_every_s=0.1)) as server:
        await prepare(server)
        target = "/apis/apps/v1/deployments?watch=1&allowWatchBookmarks=true&resourceVersion=1"
        async with server.watch(target) as events:
            await write(server, Random(5), 30)  # of another kind
            newest = server.store.revision
            async with asyncio.timeout(30):
                async for event in events:
                    assert event["type"] == "BOOKMARK" and event["object"]["kind"] == "Deployment"
                    if int(event["object"]["metadata"]["resourceVersion"]) == newest:
                        break


async def test_a_timeout_ends_the_stream_on_time_and_whole() -> None:
    async with server_with() as server:
        await prepare(server)
        began = time.monotonic()
        async with server.watch("/api/v1/pods?watch=1&timeoutSeconds=1&allowWatchBookmarks=true") as events:
            found = [event async for event in events]
        assert 0.9 < time.monotonic() - began < 5
        assert found[-1]["type"] == "BOOKMARK"
