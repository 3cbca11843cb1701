"""The manager as a process: killed at any moment of a sync it converges, and a directory has one manager."""

from __future__ import annotations

import asyncio
import json
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Any

import orjson
import pytest

from shoal.base.clock import RealClock
from shoal.base.ids import Ids
from shoal.navigator.manager.sqlite import SqliteRows
from shoal.navigator.manager.tokens import EDGE, NavigatorTokens
from shoal.testing.managers import COMMAND, ManagerProcess, SimulatedEdge, edge_client, manager_process, transfer
from shoal.wire.navigator.v1 import navigator_pb as pb


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ManagerProcess]:
    with manager_process(tmp_path_factory.mktemp("manager"), "--port", "0", "--grace", "0.2") as process:
        yield process


def pods(count: int, version: int) -> dict[str, bytes]:
    return {
        f"default/p{number}": orjson.dumps(
            {"metadata": {"name": f"p{number}", "namespace": "default", "labels": {"v": str(version)}}}
        )
        for number in range(count)
    }


async def made_token(process: ManagerProcess, kind: str, cluster: str = "") -> str:
    """As a command makes it, without the time that a command takes."""

    rows = SqliteRows(process.folder / "navigator.db")
    await rows.open(manager=False)
    try:
        text, _ = await NavigatorTokens(rows, clock=RealClock(), new_id=Ids().new_uid).create(
            kind=kind, cluster=cluster
        )
        return text
    finally:
        await rows.close()


def ask(process: ManagerProcess, path: str, token: str = "", **headers: str) -> Any:
    return json.loads(page(process, path, token, **headers))


def page(process: ManagerProcess, path: str, token: str = "", **headers: str) -> bytes:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    sent |= {"Authorization": f"Bearer {token}"} if token else {}
    request = urllib.request.Request(f"{process.url}{path}", headers=sent)
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}),
        urllib.request.HTTPSHandler(context=ssl.create_default_context(cadata=process.ca.decode())),
    )
    with opener.open(request, timeout=20) as answer:
        found: bytes = answer.read()
        return found


def query(process: ManagerProcess, text: str) -> Any:
    return ask(process, f"/api/v1/query?q={urllib.request.quote(text)}", process.admin_token)


async def test_the_process_answers_requests_with_a_token_on_one_port(process: ManagerProcess) -> None:
    assert ask(process, "/readyz")["ok"] and ask(process, "/livez")["ok"]
    assert "items" in ask(process, "/api/v1/clusters", process.admin_token)
    for token in ("", "guessed", await made_token(process, EDGE, "nowhere")):
        with pytest.raises(urllib.error.HTTPError) as caught:
            ask(process, "/api/v1/clusters", token)
        assert caught.value.code == 401
        caught.value.close()


async def test_a_token_that_a_command_creates_reads_only_its_scopes(process: ManagerProcess) -> None:
    edges = {cluster: await made_token(process, EDGE, cluster) for cluster in ("seen", "hidden")}
    async with AsyncExitStack() as closing:
        for cluster, text in edges.items():
            edge = SimulatedEdge(edge_client(process.url, process.ca, closing), text, cluster)
            await edge.open()
            closing.push_async_callback(edge.close)
            await edge.sync("pods", pods(3, 1))
        create = ("create", "--kind", "viewer", "--scope", "cluster=seen,namespace=def*")
        text = (await asyncio.to_thread(process.token, *create)).strip()
        for token in ("", text):
            with pytest.raises(urllib.error.HTTPError, match="403") as caught:
                page(process, "/metrics", token, X_Forwarded_For="10.0.0.7")  # of all clusters, for another machine
            caught.value.close()
        assert b"shoal_" in page(process, "/metrics", process.admin_token, X_Forwarded_For="10.0.0.7")
        asked = f"/api/v1/query?q={urllib.request.quote('pods count by cluster')}"
        assert ask(process, asked, text)["items"] == [{"cluster": "seen", "count": 3}]
        assert [each["name"] for each in ask(process, "/api/v1/clusters", text)["items"]] == ["seen"]
        listed = json.loads(await asyncio.to_thread(process.token, "list", "-o", "json"))
        assert ["cluster=seen,namespace=def*"] in [each["scopes"] for each in listed]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--kind", "viewer"), "scope is missing"),
        (("--kind", "viewer", "--scope", "region=eu"), "cluster, namespace, workspace"),
        (("--cluster", "east", "--scope", "*"), "only for --kind viewer and admin"),
    ],
)
def test_a_token_without_a_valid_scope_is_not_created(
    process: ManagerProcess, arguments: tuple[str, ...], problem: str
) -> None:
    command = [*COMMAND, "token", "create", *arguments, "--dir", str(process.folder)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode != 0 and problem in " ".join(ran.stderr.split()), ran.stderr


def test_a_second_manager_in_the_same_directory_is_refused(process: ManagerProcess) -> None:
    command = [*COMMAND, "manager", "--dir", str(process.folder), "--port", "0"]
    second = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert second.returncode != 0 and "already in use" in second.stderr


async def test_a_manager_killed_in_the_middle_of_a_sync_converges(process: ManagerProcess) -> None:
    """After some chunks are stored, and with chunks on their way."""
    join = json.loads(process.token("create", "--cluster", "east", "--region", "eu"))
    assert join["url"] == process.url and join["region"] == "eu"

    rows: dict[str, bytes] = {}
    for round_, chunks_before in enumerate((9, 4)):
        async with AsyncExitStack() as closing:
            rows = pods(1000 - 100 * round_, round_)
            edge = SimulatedEdge(edge_client(process.url, process.ca, closing), join["token"], "east")
            await edge.open()
            assert edge.accepted is not None, edge.rejected
            for number, chunk in enumerate(transfer("pods", rows, sync=1, chunk_rows=100)):
                sequence = edge.send("state", chunk)
                if number + 1 == chunks_before:
                    if round_ != 1:
                        await edge.stored(sequence)
                    break
            process.kill()
            await edge.until(lambda edge=edge: edge.ended)  # type: ignore[misc]
            await edge.close()
        await asyncio.to_thread(process.start)
    async with AsyncExitStack() as closing:
        edge = SimulatedEdge(
            edge_client(process.url, process.ca, closing), join["token"], "east", rows={"pods": rows},
            metadata={"region": "eu"},
        )  # fmt: skip
        await edge.open()
        assert edge.accepted is not None and edge.accepted.epoch == 3
        await edge.sync("pods")
        await edge.sync("services")
        await edge.verify()
        assert edge.resyncs == []
        found = await asyncio.to_thread(query, process, "pods where region = 'eu' count by labels.v")
        assert found["items"] == [{"labels.v": "1", "count": len(rows)}], found
        await edge.close()


async def test_a_token_that_a_command_revokes_ends_the_stream(process: ManagerProcess) -> None:
    token = await made_token(process, EDGE, "west")
    listed = json.loads(process.token("list", "-o", "json"))
    (token_id,) = [one["id"] for one in listed if one["cluster"] == "west"]

    async with AsyncExitStack() as closing:
        edge = SimulatedEdge(edge_client(process.url, process.ca, closing), token, "west")
        await edge.open()
        assert edge.accepted is not None
        await asyncio.to_thread(process.token, "revoke", token_id)
        await edge.until(lambda: edge.ended)
        assert edge.rejected is not None and edge.rejected.code == pb.RejectionCode.BAD_TOKEN
        await edge.close()
    assert process.stop() == 0
