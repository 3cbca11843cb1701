"""``shoal store copy`` on clusters that run: clients go on reading, lose no write, and find everything in the new place."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from cluster_client import Client

from shoal.testing.databases import shared_postgres
from shoal.testing.servers import ServerProcess, local_server, start_server_process
from shoal.testing.waiting import eventually

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "shoal", "store", *words]


def store(*words: str) -> str:
    done = subprocess.run(command(*words), capture_output=True, text=True, timeout=60, env=dict(os.environ))
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextmanager
def serving(directory: Path, *flags: str) -> Iterator[tuple[ServerProcess, Client]]:
    server = start_server_process(directory, "--port", "0", *flags)
    client = Client(server)
    try:
        yield server, client
    finally:
        client.close()
        server.process.terminate()
        assert server.process.wait(timeout=20) == 0


def fill(client: Client) -> None:
    for number in range(20):
        client.ok("POST", CONFIGMAPS, {"metadata": {"name": f"c{number}"}, "data": {"n": "0"}})
    client.ok("PUT", f"{CONFIGMAPS}/c1", {"metadata": {"name": "c1"}, "data": {"n": "1"}})
    client.ok("DELETE", f"{CONFIGMAPS}/c2")
    client.ok("POST", LEASES, {"metadata": {"name": "l"}, "spec": {"holderIdentity": "me", "leaseTransitions": 3}})


def items(found: Any) -> list[Any]:
    return [item for item in found["items"] if item["metadata"]["name"] != "kube-root-ca.crt"]


def check_refused(status: int, answer: Any, said: str) -> None:
    assert (status, answer["reason"]) == (503, "ServiceUnavailable")
    assert answer["message"].startswith(f"the store is read-only: {said}")
    assert answer["details"]["retryAfterSeconds"] == 5


@pytest.mark.chaos
def test_a_cluster_moves_to_postgresql_and_back_while_it_is_read(tmp_path: Path) -> None:
    postgres = shared_postgres().create_database()
    with serving(tmp_path / "a") as (_, client):
        fill(client)
        before = items(client.ok("GET", CONFIGMAPS))
        revision = client.ok("GET", CONFIGMAPS)["metadata"]["resourceVersion"]
        assert f"at revision {revision}, digest " in store("copy", str(tmp_path / "a"), postgres)
        check_refused(*client.call("POST", CONFIGMAPS, {"metadata": {"name": "late"}}), "it was moved to postgresql://")
        assert items(client.ok("GET", CONFIGMAPS)) == before
        assert client.watch(f"{CONFIGMAPS}?watch=1&resourceVersion={revision}") == []

    with serving(tmp_path / "a", "--store", postgres) as (_, client):
        assert items(client.ok("GET", CONFIGMAPS)) == before
        check_clients_go_on(client, before[0], revision)
        last = items(client.ok("GET", CONFIGMAPS))
        store("copy", postgres, str(tmp_path / "a"), "--force")
        check_refused(*client.call("POST", CONFIGMAPS, {"metadata": {"name": "late"}}), "it was moved to sqlite:///")
    with serving(tmp_path / "a") as (_, client):
        assert items(client.ok("GET", CONFIGMAPS)) == last
        client.ok("POST", CONFIGMAPS, {"metadata": {"name": "late"}})


def check_clients_go_on(client: Client, known: Any, revision: str) -> None:
    """What clients remember of the old place is good in the new one."""
    path = f"{CONFIGMAPS}/{known['metadata']['name']}"
    changed = client.ok("PUT", path, {**known, "data": {"n": "2"}})
    assert int(changed["metadata"]["resourceVersion"]) > int(revision)
    assert client.call("PUT", path, {**known, "data": {"n": "3"}})[0] == 409
    watching = f"{CONFIGMAPS}?watch=1&fieldSelector=metadata.name%3D{known['metadata']['name']}&resourceVersion="
    assert [event["object"] for event in client.watch(f"{watching}{revision}")] == [changed]
    (gone,) = client.watch(f"{watching}{int(revision) - 1}")
    assert gone["object"]["code"] == 410


def test_a_moved_store_can_be_started_and_read_and_thawed_while_it_runs(tmp_path: Path) -> None:
    with serving(tmp_path / "a") as (_, client):
        fill(client)
        before = items(client.ok("GET", CONFIGMAPS))
    store("copy", str(tmp_path / "a"), f"sqlite:///{tmp_path}/b.db")
    with serving(tmp_path / "a") as (_, client):
        assert items(client.ok("GET", CONFIGMAPS)) == before
        check_refused(*client.call("DELETE", f"{CONFIGMAPS}/c1"), f"it was moved to sqlite:///{tmp_path}/b.db")
        assert "it refused them because it was moved to" in store("thaw", str(tmp_path / "a"))
        client.ok("DELETE", f"{CONFIGMAPS}/c1")


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
async def test_the_source_of_a_stopped_copy_accepts_writes_again(tmp_path: Path, how: signal.Signals) -> None:
    """It is held where everything is frozen, by a lock on what it wants to write to."""
    postgres = shared_postgres().create_database()
    with serving(tmp_path / "a") as (_, client):
        fill(client)
        made = iter(range(100_000))

        def answer() -> tuple[int, Any]:
            return client.call("POST", CONFIGMAPS, {"metadata": {"name": f"w{next(made)}"}})

        async with asyncio.timeout(60):
            async with local_server(postgres):  # makes the tables
                pass
            lock = await asyncpg.connect(postgres)
            try:
                async with lock.transaction():
                    await lock.fetch("SELECT 1 FROM shoal.counter FOR UPDATE")
                    copying = await asyncio.create_subprocess_exec(
                        *command("copy", str(tmp_path / "a"), postgres, "--force"), stderr=subprocess.DEVNULL
                    )
                    await eventually(lambda: asyncio.to_thread(lambda: answer()[0] == 503))
                    check_refused(*answer(), "it is being copied to postgresql://")
                    copying.send_signal(how)
                    assert await copying.wait() == (-9 if how is signal.SIGKILL else 130)
            finally:
                await lock.close()
        await eventually(lambda: asyncio.to_thread(lambda: answer()[0] == 201))
    with serving(tmp_path / "a") as (_, client):
        client.ok("POST", CONFIGMAPS, {"metadata": {"name": "after-a-restart"}})
