"""The edge and the manager as processes: the manager equals the cluster again after both and the API server were killed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

import orjson
import pytest
from navigator_processes import Processes, Writer, fill

from shoal.base.tasks import cancel_all
from shoal.testing.waiting import eventually


@pytest.mark.timeout(300)  # six processes start, one after the other on a busy machine
async def test_the_manager_equals_the_cluster_after_edge_manager_and_api_server_were_killed_amidst_changes(
    tmp_path: Path,
) -> None:
    processes = Processes(tmp_path, edge_name="edge-of-east")

    try:
        await processes.start()
        async with processes.client() as client:
            await fill(client)
        await processes.converged()
        writer = Writer(processes, Random(11).random)
        writing = asyncio.create_task(writer.run(), name="writer")
        try:
            await writer.progressed(10)
            victims = processes.victims.values()
            await asyncio.gather(*(asyncio.to_thread(kill) for kill, _ in victims))
            await asyncio.gather(*(asyncio.to_thread(start) for _, start in victims))
            await writer.progressed(10)
        finally:
            await cancel_all(writing)
        await processes.converged()

        def healthy() -> bool:
            """All in one look: the edge may lose its manager at any time while the machine is busy, and comes back."""
            assert processes.edge.ask("/livez")[0] == 200
            code, checks = processes.edge.ask("/readyz")
            assert code == 200, checks
            status = orjson.loads(processes.edge.ask("/status")[1])
            assert status["manager"]["state"] == "connected" and status["kinds"]["pods"]["state"] == "synced", status
            metrics = processes.edge.ask("/metrics")[1].decode()
            assert 'shoal_edge_rows{kind="namespaces"}' in metrics and "shoal_edge_connected 1.0" in metrics
            return True

        await eventually(lambda: asyncio.to_thread(healthy), timeout_s=60, every_s=0.1)
        assert processes.edge.stop() == 0
    finally:
        processes.stop()
