"""Servers that are killed, paused and starved, over and over, while clients write: acknowledged means stored."""

from __future__ import annotations

import os
import random
import signal
import time
from functools import partial
from pathlib import Path

import pytest
from tests.chaos.rounds import seeds
from tests.chaos.writers import Writer, check_stored

from shoal.testing.servers import start_server_process
from shoal.testing.tally import TALLY
from shoal.testing.waiting import eventually_blocking

pytestmark = pytest.mark.timeout(600)


@pytest.mark.parametrize("seed", seeds())
def test_many_kills_in_a_row_lose_nothing(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    acknowledged: dict[str, tuple[int, int]] = {}
    newest = 0
    for round_ in range(12):
        server = start_server_process(tmp_path / "state", "--port", "0")
        found = check_stored(server, acknowledged)
        assert found >= newest
        writers = [Writer(server, f"r{round_}w{n}", acknowledged) for n in range(6)]
        for writer in writers:
            writer.start()
        time.sleep(0.05 + chance.random() * 0.8)
        if chance.random() < 0.3:  # a pause, as a busy host makes them, then the end
            os.kill(server.process.pid, signal.SIGSTOP)
            time.sleep(chance.random() * 0.3)
            os.kill(server.process.pid, signal.SIGCONT)
            time.sleep(chance.random() * 0.1)
        server.kill()
        TALLY.faults += 1
        for writer in writers:
            writer.join()
        newest = max(newest, *(revision for _, revision in acknowledged.values()))
    assert len(acknowledged) > 100


def test_stops_under_load_are_clean_and_quick(tmp_path: Path) -> None:
    acknowledged: dict[str, tuple[int, int]] = {}
    for round_ in range(5):
        server = start_server_process(tmp_path / "state", "--port", "0")
        check_stored(server, acknowledged)
        writers = [Writer(server, f"r{round_}w{n}", acknowledged) for n in range(6)]
        for writer in writers:
            writer.start()
        enough = len(acknowledged) + len(writers)
        eventually_blocking(partial(len, acknowledged), until=enough.__le__, what="writes that are acknowledged")
        began = time.monotonic()
        server.process.terminate()
        assert server.process.wait(timeout=20) == 0
        assert time.monotonic() - began < 8
        for writer in writers:
            writer.join()
