"""The documents' example of a ShardConfig with the sample controller on an embedded cluster: from two shards to ten and
back, by the manager's own decisions, while Websites are written all the time."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "cluster" / "sharding"))

from example_trial import cluster, trial

SITES = 400
WRITERS, EACH_PER_S = 3, 25.0  # ten workers publish 40 pages a second
ONE_WAY_S = 420.0


@pytest.mark.alone
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("anyio_backend", [("asyncio", {"use_uvloop": True})], ids=["uvloop"])
async def test_the_example_goes_from_two_shards_to_ten_and_back(tmp_path: Path) -> None:
    async def main(kubeconfig: str) -> None:
        # decisions after seconds instead of minutes; all else is the example's, or the default
        async with trial(tmp_path, kubeconfig, sustainedFor="6s", cooldown="8s") as made:
            for _ in range(SITES):
                await made.sites.make()
            async with made.sites.written(WRITERS, EACH_PER_S):
                await made.settled(10, timeout_s=ONE_WAY_S)
                await made.decides("AtMaximum", timeout_s=60.0)
                made.sites.per_s = 1.0  # the load is gone, the writing is not
                await made.settled(2, timeout_s=ONE_WAY_S)
        ups = [after for before, after in zip(made.course.sizes, made.course.sizes[1:], strict=False) if after > before]
        assert max(made.course.sizes) == 10
        assert len(ups) >= 3  # at most twice as many at a time

    with cluster(tmp_path) as server:
        await main(server.kubeconfig)
