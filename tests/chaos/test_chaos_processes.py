"""Servers that are killed, paused and starved, over and over, while clients write: acknowledged means stored."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from cluster_client import GONE, Client

from shoal.testing.servers import ServerProcess, start_server_process
from shoal.testing.waiting import eventually_blocking

pytestmark = pytest.mark.timeout(600)
CONFIGMAPS = "/api/v1/namespaces/default/configmaps"


class Writer(threading.Thread):
    """Writes its own objects over and over; knows what was acknowledged and at which revision."""

    def __init__(
        self, server: ServerProcess, name: str, acknowledged: dict[str, tuple[int, int]], *, spread: int = 10
    ) -> None:
        super().__init__()
        self.server, self.prefix, self.acknowledged = server, name, acknowledged
        self.spread = spread  # objects
        self.refused = 0

    def run(self) -> None:
        client = Client(self.server)
        try:
            for number in range(1_000_000):
                self._write(client, f"{self.prefix}-{number % self.spread}", number)
        except GONE:
            return
        finally:
            client.close()

    def _write(self, client: Client, key: str, number: int) -> None:
        body = {"metadata": {"name": key}, "data": {"n": str(number), "fill": "x" * 2000}}
        status, answer = client.call("PUT" if key in self.acknowledged else "POST", self._path(key), body)
        if status in (200, 201):
            revision = int(answer["metadata"]["resourceVersion"])
            known = self.acknowledged.get(key)
            assert known is None or revision > known[1], "revisions went backwards"
            self.acknowledged[key] = (number, revision)
        elif status == 409 and answer["reason"] == "AlreadyExists":
            self.acknowledged[key] = (-1, 0)  # stored by a request whose answer was lost
        else:
            self.refused += 1

    def _path(self, key: str) -> str:
        return f"{CONFIGMAPS}/{key}" if key in self.acknowledged else CONFIGMAPS


def check_stored(server: ServerProcess, acknowledged: dict[str, tuple[int, int]]) -> int:
    client = Client(server)
    listed = client.ok("GET", CONFIGMAPS)
    client.close()
    stored = {item["metadata"]["name"]: item for item in listed["items"]}
    for key, (number, revision) in acknowledged.items():
        assert key in stored, f"{key} was acknowledged and is gone"
        assert int(stored[key]["data"]["n"]) >= number
        assert int(stored[key]["metadata"]["resourceVersion"]) >= revision
    newest = int(listed["metadata"]["resourceVersion"])
    assert newest >= max((revision for _, revision in acknowledged.values()), default=0)
    return newest


@pytest.mark.parametrize("seed", range(3))
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


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of a few megabytes."""
    place = tmp_path / "disk"
    place.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(place)], capture_output=True, check=False
    )
    if made.returncode:
        pytest.skip("mounting a small file system is not allowed here")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_full_file_system_refuses_writes_under_load_and_loses_nothing(small_disk: Path) -> None:
    server = start_server_process(small_disk / "state", "--port", "0")
    acknowledged: dict[str, tuple[int, int]] = {}
    writers = [Writer(server, f"w{n}", acknowledged, spread=1000) for n in range(4)]
    for writer in writers:
        writer.start()

    def refused() -> int:
        return sum(writer.refused for writer in writers)

    eventually_blocking(refused, until=(100).__le__, timeout_s=300, what="writes that are refused")
    check_stored(server, dict(acknowledged))
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    known = len(acknowledged)
    eventually_blocking(partial(len, acknowledged), until=known.__lt__, what="writes that are accepted again")
    assert server.process.poll() is None
    server.kill()
    for writer in writers:
        writer.join()
    server = start_server_process(small_disk / "state", "--port", "0")
    check_stored(server, acknowledged)
    server.kill()
