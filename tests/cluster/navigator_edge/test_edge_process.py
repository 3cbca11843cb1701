"""The edge as a process, with the real manager: it reports, and recovers when any of the processes is killed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

import orjson
from navigator_processes import Processes, Writer, fill

from shoal.base.tasks import cancel_all
from shoal.testing.waiting import eventually


async def test_killing_edge_manager_and_api_server_amidst_changes_converges(tmp_path: Path) -> None:
    processes = Processes(tmp_path, edge_name="edge-of-east")

    try:
        await processes.start()
        async with processes.client() as client:
            await fill(client)
        await processes.converged()
        writer = Writer(processes, Random(11).random)
        writing = asyncio.create_task(writer.run(), name="writer")
        try:
            await eventually(lambda: writer.written > 10, timeout_s=30)
            victims = processes.victims.values()
            await asyncio.gather(*(asyncio.to_thread(kill) for kill, _ in victims))
            await asyncio.gather(*(asyncio.to_thread(start) for _, start in victims))
            before = writer.written
            await eventually(lambda: writer.written > before + 10, timeout_s=30)
        finally:
            await cancel_all(writing)
        await processes.converged()
        assert processes.edge.ask("/livez")[0] == 200

        async def ready() -> bool:
            return (await asyncio.to_thread(processes.edge.ask, "/readyz"))[0] == 200

        await eventually(ready, timeout_s=30)
        status = orjson.loads(processes.edge.ask("/status")[1])
        assert status["manager"]["state"] == "connected" and status["kinds"]["pods"]["state"] == "synced"
        metrics = processes.edge.ask("/metrics")[1].decode()
        assert 'shoal_edge_rows{kind="namespaces"}' in metrics and "shoal_edge_connected 1.0" in metrics
        assert processes.edge.stop() == 0
    finally:
        processes.stop()
