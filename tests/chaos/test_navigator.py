"""Edge, manager and API server, each killed at any moment, over and over, while the cluster changes: in the end the
manager holds exactly what the cluster has."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from random import Random

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "cluster" / "navigator_edge"))

from navigator_processes import Processes, Writer, fill
from tests.chaos.rounds import ROUNDS

from shoal.base.tasks import cancel_all
from shoal.testing.tally import TALLY

KILLS = 4 * ROUNDS
VICTIMS = ("edge", "manager", "server")


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("victims", "name"),
    [
        (("edge",), "same"),  # the same edge may return at once
        (("edge",), ""),  # another one has to wait for the grace period
        (("manager",), "same"),
        (("server",), "same"),
        (VICTIMS, ""),
    ],
)
async def test_killing_at_any_moment_converges(tmp_path: Path, victims: tuple[str, ...], name: str) -> None:
    processes = Processes(tmp_path, edge_name=name)
    random = Random(f"{victims} {name}")

    try:
        await processes.start()
        async with processes.client() as client:
            await fill(client)
        writing = asyncio.create_task(Writer(processes, random.random).run(), name="writer")
        try:
            for _ in range(KILLS):
                kill, start = processes.victims[random.choice(victims)]
                await asyncio.sleep(random.random() * 1.5)
                await asyncio.to_thread(kill)
                TALLY.faults += 1
                await asyncio.sleep(random.random())
                await asyncio.to_thread(start)
        finally:
            await cancel_all(writing)
        await processes.converged(timeout_s=90)
    finally:
        processes.stop()
