"""Long storms of writers and watchers, with plenty of history and with next to none."""

from __future__ import annotations

from random import Random

import pytest
from tests.chaos.rounds import seeds
from watch_mirror import PARTIAL, SELECTIONS, TABLE, Mirror, prepare, server_with, storm

from shoal.apiserver.context import ServerConfig
from shoal.store import RingLimits
from shoal.testing.servers import LocalServer
from shoal.testing.tally import TALLY

pytestmark = pytest.mark.timeout(600)


def crowd(server: LocalServer, random: Random, each: int) -> list[Mirror]:
    return [
        Mirror(
            server,
            target,
            random.choice(("", TABLE, PARTIAL)),
            restless=random.choice((0, 1, 3, 20)),
            slow_s=random.choice((0.0, 0.0, 0.001, 0.01)),
            away_s=random.choice((0.0, 0.0, 0.05)),
        )
        for target in SELECTIONS
        for _ in range(each)
    ]


@pytest.mark.parametrize("events", [50_000, 200, 12])
@pytest.mark.parametrize("seed", seeds(0))
async def test_all_watchers_agree_with_the_list_after_a_long_storm(seed: int, events: int) -> None:
    config = ServerConfig(ca_certificate="x", bookmark_every_s=0.3)
    async with server_with(RingLimits(max_events=events), config) as server:
        await prepare(server)
        mirrors = crowd(server, Random(seed), 12)
        await storm(server, mirrors, writers=20, writes=250, seed=seed, padding=Random(seed).choice((0, 2_000, 40_000)))
        seen = sum(mirror.events for mirror in mirrors)
        TALLY.checked += seen
        assert seen > 5000
