"""Several API servers on one PostgreSQL under all faults, in every order."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from several_servers import FAULTS, witness

from shoal.testing.databases import postgres_server, redis_server


@pytest.mark.timeout(900)
@pytest.mark.parametrize("with_redis", [True, False], ids=["with Redis", "without Redis"])
@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("seed", [1, 2])
async def test_nothing_is_lost_in_any_order_of_faults(tmp_path: Path, seed: int, count: int, with_redis: bool) -> None:
    faults = [*FAULTS, *FAULTS]
    Random(seed).shuffle(faults)
    with postgres_server() as postgres, redis_server() as redis:
        recorder = await witness(tmp_path, count, postgres, redis, faults, with_redis=with_redis)
    assert recorder.writes > 500
