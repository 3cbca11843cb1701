"""Several API servers on one PostgreSQL under all faults, in every order."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from several_servers import FAULTS, witness
from tests.chaos.rounds import seeds

from shoal.testing.databases import postgres_server, redis_server


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("count", "with_redis"), [(3, True), (2, False)], ids=["three with Redis", "two without Redis"]
)
@pytest.mark.parametrize("seed", seeds())
async def test_nothing_is_lost_in_any_order_of_faults(tmp_path: Path, seed: int, count: int, with_redis: bool) -> None:
    faults = [*FAULTS, *FAULTS]
    Random(seed).shuffle(faults)
    with postgres_server() as postgres, redis_server() as redis:
        recorder = await witness(tmp_path, count, postgres, redis, faults, with_redis=with_redis)
    assert recorder.writes > 500
