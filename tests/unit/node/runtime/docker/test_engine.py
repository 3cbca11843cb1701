"""The client of the container engine, against a scripted server."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from scripted_engine import ScriptedAnswer, ScriptedEngine, engine_with, reply

from shoal.base.clock import FakeClock, RealClock
from shoal.node.runtime.docker.engine import Engine, EngineError, EngineGone

_NO_BODY = b"HTTP/1.1 204 No Content\r\n\r\n"


async def test_responses_are_read_by_length_by_chunks_and_until_the_connection_ends() -> None:
    answers: dict[str, bytes | ScriptedAnswer] = {
        "GET /counted": reply({"a": 1}),
        "GET /chunked": b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n{"a"\r\n3\r\n:2}\r\n0\r\n\r\n',
        "GET /ended": b'HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{"a":3}',
        "POST /nothing": _NO_BODY,
    }

    async with engine_with(answers) as (engine, server):
        assert [(await engine.json("GET", each))["a"] for each in ("counted", "chunked", "ended")] == [1, 2, 3]
        assert await engine.json("POST", "nothing", body={"x": 1}, query={"q": "a b"}) is None
        assert server.requests[-1] == "POST /nothing?q=a%20b"
        assert server.bodies[-1] == b'{"x":1}'


async def test_the_agreed_version_is_in_every_path() -> None:
    answers: dict[str, bytes | ScriptedAnswer] = {
        "GET /_ping": b"HTTP/1.1 200 OK\r\nApi-Version: 1.43\r\nContent-Length: 2\r\n\r\nOK",
        "GET /v1.43/info": reply({}),
    }

    async with engine_with(answers) as (engine, server):
        await engine.negotiate()
        assert not engine.podman
        assert await engine.json("GET", "info") == {}


async def test_a_newer_engine_is_asked_for_its_oldest_version() -> None:
    answers: dict[str, bytes | ScriptedAnswer] = {
        "GET /_ping": b"HTTP/1.1 200 OK\r\nApi-Version: 1.90\r\nContent-Length: 2\r\n\r\nOK",
        "GET /version": reply({"ApiVersion": "1.90", "MinAPIVersion": "1.60"}),
        "GET /v1.60/info": reply({}),
    }

    async with engine_with(answers) as (engine, server):
        await engine.negotiate()
        assert await engine.json("GET", "info") == {}


async def test_podman_is_recognised_by_its_header() -> None:
    head = b"HTTP/1.1 200 OK\r\nApi-Version: 1.41\r\nLibpod-Api-Version: 4.3.1\r\nContent-Length: 2\r\n\r\nOK"

    async with engine_with({"GET /_ping": head}) as (engine, server):
        await engine.negotiate()
        assert engine.podman


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n123",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n{}",
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc",
    ],
)
async def test_truncated_and_invalid_responses_are_failures(answer: bytes) -> None:
    async with engine_with({"GET": answer}) as (engine, server):
        with pytest.raises(EngineGone):
            await engine.json("GET", "x")


async def test_an_error_has_the_status_and_message_of_the_engine() -> None:
    async with engine_with({"GET": reply({"message": "no such thing"}, 404)}) as (engine, server):
        with pytest.raises(EngineError, match="no such thing") as caught:
            await engine.json("GET", "x")
        assert caught.value.status == 404 and caught.value.missing


async def test_a_request_without_a_response_times_out() -> None:
    async def silence(line: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    with TemporaryDirectory() as folder:
        path, clock = str(Path(folder) / "e.sock"), FakeClock()
        listening = await asyncio.start_unix_server(ScriptedEngine({"GET": silence}).serve, path)
        engine = Engine(path, clock=clock, request_s=60)
        asking = asyncio.create_task(engine.json("GET", "info"), name="asking")
        await clock.advance(61)
        with pytest.raises(EngineGone, match="no answer to GET /info in 60 s"):
            await asking
        listening.close()
        await listening.wait_closed()


async def test_an_error_names_a_socket_that_is_missing_or_refuses_connections(tmp_path: Path) -> None:
    gone, stale = str(tmp_path / "gone.sock"), str(tmp_path / "stale.sock")
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(stale)
    for path, words in (
        (gone, "no Docker socket at"),
        (stale, "connection refused: nothing listens on the Docker socket"),
    ):
        with pytest.raises(EngineGone, match=f"{words} {path}: start Docker.*podman system service"):
            await Engine(path, clock=RealClock(), request_s=1).json("GET", "info")


async def test_closing_ends_open_streams() -> None:
    async def endless(line: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n")
        await reader.read()

    async with engine_with({"GET": endless}) as (engine, server):
        async with engine.stream("GET", "events") as answer:
            assert await answer.read() == b"hi"
            waiting = asyncio.create_task(answer.read(), name="waiting")
            await asyncio.sleep(0)
            engine.close()
            with pytest.raises(EngineGone):
                await asyncio.wait_for(waiting, 10)
