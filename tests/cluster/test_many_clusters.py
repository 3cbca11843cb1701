"""Several whole clusters in one process: each works, and none sees another."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from shoal.client import builtin
from shoal.testing.clusters import EmbeddedCluster, clusters, embedded_cluster
from shoal.testing.waiting import eventually
from shoal.testing.workloads import deployment

CLUSTERS, NODES = 20, 2


@pytest.mark.chaos
@pytest.mark.timeout(120)
async def test_twenty_clusters_in_one_process_work_side_by_side(tmp_path: Path) -> None:
    async def bring_up(cluster: EmbeddedCluster, replicas: int) -> None:
        resource = cluster.client.of(builtin("deployments", "apps"))
        await resource.create(deployment("web", replicas))

        async def available() -> bool:
            status = (await resource.get("web", "default")).get("status") or {}
            return bool(status.get("availableReplicas") == replicas)

        await eventually(available, timeout_s=60)
        pods = (await cluster.client.of(builtin("pods")).list()).items
        assert len(pods) == replicas
        assert {pod["spec"]["nodeName"] for pod in pods} <= {"node-1", "node-2"}

    async with clusters(tmp_path, CLUSTERS, nodes=NODES) as up:
        assert len({cluster.config.port for cluster in up}) == CLUSTERS
        await asyncio.gather(*(bring_up(cluster, at % 4 + 1) for at, cluster in enumerate(up)))


async def test_the_nodes_of_a_cluster_that_is_ready_are_registered(tmp_path: Path) -> None:
    async with embedded_cluster(tmp_path, nodes=200) as cluster:
        assert len((await cluster.client.of(builtin("nodes")).list()).items) == 200
