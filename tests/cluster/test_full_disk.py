"""A disk that takes no more: the server refuses writes and goes on reading, or ends when it cannot know what was
written; nothing that it acknowledged is lost."""

from __future__ import annotations

import itertools
import os
import resource
import subprocess
import sys
from pathlib import Path

from cluster_client import GONE, Client

from shoal.testing.disks import SmallDisk
from shoal.testing.servers import ServerProcess, start_server_process

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"


def start_with_file_limit(directory: Path, limit_bytes: int) -> ServerProcess:
    """A server of which no file can grow beyond ``limit_bytes``: writes fail as they do on a full disk."""
    command = [sys.executable, "-m", "shoal", "cluster", "start", "--dir", str(directory), "--components", "apiserver"]
    process = subprocess.Popen(
        [*command, "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=dict(os.environ),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, limit_bytes)),
    )  # fmt: skip
    assert process.stdout is not None
    line = process.stdout.readline().decode()
    process.stdout.close()
    assert line.startswith("ready "), line
    return ServerProcess(process, line.split()[1], directory)


def write_until_refused(server: ServerProcess, size: int) -> tuple[dict[str, int], bool]:
    """Create and update objects until the server is gone or answers 5xx; what it acknowledged."""
    client, acknowledged = Client(server), dict[str, int]()
    try:
        for number in range(20_000):
            key = f"c{number % 50}"
            body = {"metadata": {"name": key}, "data": {"n": str(number), "fill": "x" * size}}
            method, path = ("POST", CONFIGMAPS) if number < 50 else ("PUT", f"{CONFIGMAPS}/{key}")
            status, _ = client.call(method, path, body)
            if status >= 500:
                return acknowledged, True
            assert status in (200, 201)
            acknowledged[key] = number
    except GONE:
        return acknowledged, True
    finally:
        client.close()
    return acknowledged, False


def check_nothing_lost(directory: Path, acknowledged: dict[str, int]) -> None:
    server = start_server_process(directory, "--port", "0")
    client = Client(server)
    try:
        items = client.ok("GET", CONFIGMAPS)["items"]
        stored = {item["metadata"]["name"]: int(item["data"]["n"]) for item in items if "n" in item.get("data", {})}
        assert {key: n for key, n in acknowledged.items() if stored.get(key, -1) < n} == {}
        assert client.call("POST", CONFIGMAPS, {"metadata": {"name": "again"}})[0] == 201
    finally:
        client.close()
        server.kill()


def test_a_file_that_cannot_grow_ends_the_server_and_loses_nothing(tmp_path: Path) -> None:
    directory = tmp_path / "state"
    server = start_with_file_limit(directory, 4 << 20)
    acknowledged, refused = write_until_refused(server, 20_000)
    assert refused and acknowledged
    assert server.process.wait(timeout=20) == 70, "a server that cannot write must not go on as if it could"
    check_nothing_lost(directory, acknowledged)


def test_a_full_file_system_refuses_writes_keeps_reads_and_watches_and_recovers(full_disk: SmallDisk) -> None:
    server = start_server_process(full_disk.path / "state", "--port", "0")
    client = Client(server)
    try:
        names = []
        for number in itertools.count():
            body = {"metadata": {"name": f"c{number}"}, "data": {"n": str(number), "fill": "x" * 100_000}}
            status, answer = client.call("POST", CONFIGMAPS, body)
            if status != 201:
                break
            names.append(f"c{number}")
        assert (status, answer["reason"]) == (503, "ServiceUnavailable"), answer
        assert "the disk is full" in answer["message"] and answer["details"]["retryAfterSeconds"] > 0
        assert sorted(each["metadata"]["name"] for each in client.ok("GET", CONFIGMAPS)["items"] if each["metadata"]["name"] in names) == sorted(names)  # fmt: skip
        revision = client.ok("GET", f"{CONFIGMAPS}/c0")["metadata"]["resourceVersion"]
        assert [event["object"]["metadata"]["name"] for event in client.watch(f"{CONFIGMAPS}?watch=1&resourceVersion={revision}")] == names[1:]  # fmt: skip
        assert client.call("POST", CONFIGMAPS, body)[0] == 503, "and it goes on answering"
        full_disk.resize(64)
        assert client.call("POST", CONFIGMAPS, body)[0] == 201
        assert server.process.poll() is None
    finally:
        client.close()
        server.kill()
    check_nothing_lost(full_disk.path / "state", {name: int(name[1:]) for name in names})
