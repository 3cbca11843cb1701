"""A short round of the faults of `shoal.testing.faults` on one server, drawn from its seed: what is acknowledged is there.
``tests/chaos`` does it for longer, to all parts."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from cluster_client import GONE, Client

from shoal.testing.disks import tear
from shoal.testing.faults import Faults
from shoal.testing.faulty_process import ProcessFaults
from shoal.testing.servers import ServerProcess, start_server_process
from shoal.testing.tally import TALLY
from shoal.testing.waiting import eventually_blocking

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
BATCH = 30


def write(server: ServerProcess, known: dict[str, int], round_: int) -> int:
    """Write until a server refuses or is gone, at most a batch; returns the status of the last answer, 0 if it is gone."""
    client = Client(server)
    try:
        for number in range(BATCH):
            name = f"c{round_}-{number}"
            status, answer = client.call("POST", CONFIGMAPS, {"metadata": {"name": name}, "data": {"n": name}})
            if status != 201:
                return status
            known[name] = int(answer["metadata"]["resourceVersion"])
        return 201
    except GONE:
        return 0
    finally:
        client.close()


def check(server: ServerProcess, known: dict[str, int]) -> None:
    client = Client(server)
    try:
        items = client.ok("GET", CONFIGMAPS)["items"]
    finally:
        client.close()
    stored = {each["metadata"]["name"]: int(each["metadata"]["resourceVersion"]) for each in items}
    assert {name: revision for name, revision in known.items() if stored.get(name) != revision} == {}
    TALLY.checked += len(known)


def test_whatever_becomes_of_process_disk_and_clock_what_was_acknowledged_is_there(
    tmp_path: Path, faults: Faults, faulty_process: ProcessFaults
) -> None:
    folder, known = tmp_path / "state", dict[str, int]()
    start = partial(start_server_process, folder, "--port", "0", program=faulty_process.program)

    def killed(server: ServerProcess, round_: int) -> None:
        assert write(server, known, round_) == 201
        faults.kill(server.process.pid)
        server.process.wait()

    def torn(server: ServerProcess, round_: int) -> None:
        killed(server, round_)
        faults.story.append(f"{tear(folder / 'store.db-wal', faults.random)} bytes after the end of the log")

    def clock_jumps(server: ServerProcess, round_: int) -> None:
        faulty_process.skew_s = faults.choose((-7200.0, 3600.0, 86_400.0))
        faults.story.append(f"the clock is wrong by {faulty_process.skew_s} s")
        assert write(server, known, round_) == 201
        killed(server, 100 + round_)

    def fsync_fails(server: ServerProcess, round_: int) -> None:
        assert write(server, known, round_) == 201
        faulty_process.fail_fsync()
        faults.story.append("fsync fails")
        eventually_blocking(lambda: faulty_process.fsync_fails, what="fsync that fails")
        assert write(server, known, 200 + round_) in (0, 500, 503)
        assert eventually_blocking(server.process.poll, until=lambda code: code is not None, timeout_s=20) == 70
        faulty_process.heal()

    for round_, fault in enumerate(faults.order((killed, torn, clock_jumps, fsync_fails))):
        server = start()
        try:
            check(server, known)
            fault(server, round_)
        finally:
            server.process.kill()
            server.process.wait()
    server = start()
    check(server, known)
    server.kill()
    assert len(known) >= 4 * BATCH


@pytest.mark.parametrize("skew_s", [-3600.0, 3600.0])
def test_the_clock_of_a_faulty_process_is_seen_in_what_it_writes(
    tmp_path: Path, faulty_process: ProcessFaults, skew_s: float
) -> None:
    server = start_server_process(tmp_path / "state", "--port", "0", program=faulty_process.program)
    client = Client(server)
    try:
        before = client.ok("POST", CONFIGMAPS, {"metadata": {"name": "before"}})["metadata"]["creationTimestamp"]
        faulty_process.skew_s = skew_s
        after = client.ok("POST", CONFIGMAPS, {"metadata": {"name": "after"}})["metadata"]["creationTimestamp"]
        assert (after < before) == (skew_s < 0) and after != before
    finally:
        client.close()
        server.kill()
