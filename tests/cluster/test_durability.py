"""A server that is killed at any moment has lost nothing that it acknowledged."""

from __future__ import annotations

import random
import threading
from pathlib import Path

from cluster_client import GONE, Client

from shoal.testing.servers import ServerProcess, start_server_process

WRITERS = 8
ROUNDS = 3


def write_until_the_end(
    server: ServerProcess, name: str, acknowledged: dict[str, int], enough: threading.Event
) -> None:
    """Create and update objects as fast as possible, noting each value only after its acknowledgement."""
    client = Client(server)
    path = "/api/v1/namespaces/default/configmaps"
    try:
        for number in range(100_000):
            key = f"{name}-{number % 20}"
            body = {"metadata": {"name": key}, "data": {"n": str(number)}}
            if number < 20:
                status, _ = client.call("POST", path, body)
            else:
                status, _ = client.call("PUT", f"{path}/{key}", body)
            if status in (200, 201):
                acknowledged[key] = number
            if sum(acknowledged.values()) > 5000:
                enough.set()
    except GONE:
        pass
    finally:
        client.close()


def test_kill_9_under_load_loses_no_acknowledged_write(tmp_path: Path) -> None:
    chance = random.Random(7)
    acknowledged: dict[str, int] = {}
    for round_ in range(ROUNDS):
        server = start_server_process(tmp_path / "state", "--port", "0")
        enough = threading.Event()
        writers = [
            threading.Thread(target=write_until_the_end, args=(server, f"r{round_}w{n}", acknowledged, enough))
            for n in range(WRITERS)
        ]
        for writer in writers:
            writer.start()
        assert enough.wait(60), "the writers did not begin"
        enough.clear()
        enough.wait(chance.random() * 0.2)  # not always at the same point of a commit
        server.kill()
        for writer in writers:
            writer.join()
    assert len(acknowledged) >= ROUNDS * WRITERS
    server = start_server_process(tmp_path / "state", "--port", "0")
    client = Client(server)
    try:
        _, listed = client.call("GET", "/api/v1/namespaces/default/configmaps")
        items = listed["items"]
        assert isinstance(items, list)
        stored = {item["metadata"]["name"]: int(item["data"]["n"]) for item in items if "n" in item.get("data", {})}
    finally:
        client.close()
        server.kill()
    lost = {key: (number, stored.get(key)) for key, number in acknowledged.items() if stored.get(key, -1) < number}
    assert not lost
