"""The ShardConfig of the documentation with the sample controller on an embedded cluster: from two shards to three and
back. tests/chaos goes to ten."""

from __future__ import annotations

from pathlib import Path

from example_trial import cluster, trial


async def test_the_example_adds_a_shard_under_load_and_removes_one_without_load(tmp_path: Path) -> None:
    async def main(kubeconfig: str) -> None:
        async with trial(
            tmp_path, kubeconfig, maxShards=3, sustainedFor="1s", cooldown="1s", heartbeatInterval="500ms"
        ) as made:
            for _ in range(24):
                await made.sites.make()
            async with made.sites.written(1, 30.0):
                await made.settled(3, timeout_s=60.0)
                made.sites.per_s = 1.0
                await made.settled(2, timeout_s=60.0)

    with cluster(tmp_path) as server:
        await main(server.kubeconfig)
