"""Whole clusters in this process: API server with TLS and SQLite, scheduler, controllers and simulated nodes.

    async with embedded_cluster(folder) as cluster:
        await cluster.client.of(builtin("deployments", "apps")).create(...)

    async with clusters(folder, 20, nodes=3) as many:
        ...

Each cluster is what ``shoal cluster start`` runs, with its own port, kubeconfig and directory.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from shoal.app.cluster import run_until
from shoal.app.config import ClusterConfig, ClusterOptions, opened_config
from shoal.base.clock import RealClock
from shoal.client import Client, connect, load


@dataclass(frozen=True, slots=True)
class EmbeddedCluster:
    """A running cluster, and a client with the administrator's rights that connects over the network."""

    config: ClusterConfig
    client: Client


@asynccontextmanager
async def clusters(folder: Path, count: int, *, nodes: int = 3) -> AsyncIterator[list[EmbeddedCluster]]:
    """Start ``count`` clusters, each in its own directory below ``folder``."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(embedded_cluster(folder / f"c{at}", nodes=nodes)) for at in range(count)]


@asynccontextmanager
async def embedded_cluster(folder: Path, *, nodes: int = 3, audit_log: str = "") -> AsyncIterator[EmbeddedCluster]:
    """Start one cluster in ``folder``; the block begins when it is ready. ``audit_log`` is the setting of that name."""
    options = ClusterOptions(dir=folder, port=0, nodes=nodes, runtime="simulated", audit_log=audit_log)
    with opened_config(options) as config:
        stop, ready = asyncio.Event(), asyncio.Event()
        running = asyncio.create_task(run_until(stop, config, ready.set), name=f"cluster/{folder.name}")
        waiting = asyncio.create_task(ready.wait(), name=f"cluster/{folder.name}/ready")
        try:
            await asyncio.wait({running, waiting}, return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                running.result()
            async with connect(load(config.kubeconfig_path), clock=RealClock()) as client:
                yield EmbeddedCluster(config, client)
        finally:
            waiting.cancel()
            stop.set()
            await running
