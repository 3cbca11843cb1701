"""The client of the engine, against a server that says what it is told to."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import orjson
import pytest

from shoal.base.clock import FakeClock, RealClock
from shoal.node.runtime.docker.engine import Engine, EngineError, EngineGone
from shoal.node.runtime.docker.session import open_attach, open_exec
from shoal.node.runtime.model import NoSuchContainer, OutputStream, SessionOptions, StartFailure

Answer = Callable[[str, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

_NO_BODY = b"HTTP/1.1 204 No Content\r\n\r\n"


def reply(body: object, status: int = 200) -> bytes:
    data = orjson.dumps(body)
    return f"HTTP/1.1 {status} X\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data


def frame(stream: int, data: bytes) -> bytes:
    return bytes((stream, 0, 0, 0)) + len(data).to_bytes(4) + data


class Server:
    """Answers by the first words of requests, and keeps what it was asked."""

    def __init__(self, answers: dict[str, bytes | Answer]) -> None:
        self.answers = answers
        self.requests: list[str] = []
        self.bodies: list[bytes] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            line = head.partition(" HTTP/")[0]
            self.requests.append(line)
            lengths = [each.split(":")[1] for each in head.lower().splitlines() if each.startswith("content-length:")]
            self.bodies.append(await reader.readexactly(int(lengths[0])) if lengths else b"")
            answer = next(found for key, found in self.answers.items() if line.startswith(key))
            if isinstance(answer, bytes):
                writer.write(answer)
            else:
                await answer(line, reader, writer)
        finally:
            writer.close()


@asynccontextmanager
async def engine_with(answers: dict[str, bytes | Answer]) -> AsyncIterator[tuple[Engine, Server]]:
    with TemporaryDirectory() as folder:
        server = Server(answers)
        path = str(Path(folder) / "e.sock")
        listening = await asyncio.start_unix_server(server.serve, path)
        engine = Engine(path, clock=RealClock(), request_s=10)
        try:
            yield engine, server
        finally:
            engine.close()
            listening.close()
            await listening.wait_closed()


# answers


async def test_answers_are_read_counted_chunked_and_to_the_end_of_the_connection() -> None:
    answers: dict[str, bytes | Answer] = {
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
    answers: dict[str, bytes | Answer] = {
        "GET /_ping": b"HTTP/1.1 200 OK\r\nApi-Version: 1.43\r\nContent-Length: 2\r\n\r\nOK",
        "GET /v1.43/info": reply({}),
    }

    async with engine_with(answers) as (engine, server):
        await engine.negotiate()
        assert not engine.podman
        assert await engine.json("GET", "info") == {}


async def test_an_engine_that_is_newer_is_asked_how_far_back_it_goes() -> None:
    answers: dict[str, bytes | Answer] = {
        "GET /_ping": b"HTTP/1.1 200 OK\r\nApi-Version: 1.90\r\nContent-Length: 2\r\n\r\nOK",
        "GET /version": reply({"ApiVersion": "1.90", "MinAPIVersion": "1.60"}),
        "GET /v1.60/info": reply({}),
    }

    async with engine_with(answers) as (engine, server):
        await engine.negotiate()
        assert await engine.json("GET", "info") == {}


async def test_podman_is_known_by_what_it_says() -> None:
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
async def test_half_an_answer_and_what_is_none_are_failures(answer: bytes) -> None:
    async with engine_with({"GET": answer}) as (engine, server):
        with pytest.raises(EngineGone):
            await engine.json("GET", "x")


async def test_a_refusal_has_its_status_and_words() -> None:
    async with engine_with({"GET": reply({"message": "no such thing"}, 404)}) as (engine, server):
        with pytest.raises(EngineError, match="no such thing") as caught:
            await engine.json("GET", "x")
        assert caught.value.status == 404 and caught.value.missing


async def test_an_engine_that_does_not_answer_is_given_up_after_a_while() -> None:
    async def silence(line: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    with TemporaryDirectory() as folder:
        path, clock = str(Path(folder) / "e.sock"), FakeClock()
        listening = await asyncio.start_unix_server(Server({"GET": silence}).serve, path)
        engine = Engine(path, clock=clock, request_s=60)
        asking = asyncio.create_task(engine.json("GET", "info"), name="asking")
        await clock.advance(61)
        with pytest.raises(EngineGone, match="no answer to GET /info in 60 s"):
            await asking
        listening.close()
        await listening.wait_closed()


async def test_a_socket_that_is_not_there_or_that_nobody_listens_on_is_named_with_the_fix(tmp_path: Path) -> None:
    gone, stale = str(tmp_path / "gone.sock"), str(tmp_path / "stale.sock")
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(stale)
    for path, words in (
        (gone, "no Docker socket at"),
        (stale, "connection refused: nothing listens on the Docker socket"),
    ):
        with pytest.raises(EngineGone, match=f"{words} {path}: start Docker.*podman system service"):
            await Engine(path, clock=RealClock(), request_s=1).json("GET", "info")


async def test_closing_breaks_off_what_is_under_way() -> None:
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


# sessions: what Docker does and podman does not


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 101 UPGRADED\r\nContent-Type: application/vnd.docker.raw-stream\r\nConnection: Upgrade\r\n"
        b"Upgrade: tcp\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Type: application/vnd.docker.raw-stream\r\n\r\n",
    ],
)
async def test_a_connection_is_taken_over_in_both_directions(head: bytes) -> None:
    async def echo(line: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(head + frame(2, b"first"))
        writer.write(frame(1, await reader.read()))

    async with engine_with({"POST /containers/c/attach": echo}) as (engine, server):
        options = SessionOptions(stdin=True)
        session = await open_attach(engine, "c", options, terminal=False, once=True)
        await session.write(b"hello ")
        await session.write(b"there")
        await session.close_input()
        await session.write(b"too late")
        found = [each async for each in session.output()]
        assert found == [(OutputStream.STDERR, b"first"), (OutputStream.STDOUT, b"hello there")]
        await session.close()
        await session.close()


def _exec(start: bytes, *states: dict[str, object]) -> dict[str, bytes | Answer]:
    told = iter(states)
    last: list[dict[str, object]] = []

    async def state(line: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        last[:] = [next(told, last[0] if last else {})]
        writer.write(reply(last[0]))

    return {
        "POST /containers/c/exec": reply({"Id": "e1"}, 201),
        "POST /exec/e1/start": b"HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n" + start,
        "GET /exec/e1/json": state,
    }


_PENDING: dict[str, object] = {"Running": False, "ExitCode": None, "Pid": 0}


async def test_a_program_that_is_not_there_is_told_in_the_output_of_the_command() -> None:
    text = b'OCI runtime exec failed: exec failed: unable to start: exec: "/x": no such file or directory: unknown\r\n'
    answers = _exec(frame(1, text), _PENDING, {"Running": False, "ExitCode": 127, "Pid": 0})

    async with engine_with(answers) as (engine, server):
        with pytest.raises(StartFailure, match='^OCI runtime exec failed.*"/x"'):
            await open_exec(engine, "c", ("/x",), SessionOptions(), clock=RealClock())


async def test_a_command_that_ends_with_the_same_code_keeps_its_output() -> None:
    answers = _exec(frame(2, b"sh: foo: not found\n"), _PENDING, {"Running": False, "ExitCode": 127, "Pid": 9})

    async with engine_with(answers) as (engine, server):
        session = await open_exec(engine, "c", ("sh", "-c", "foo"), SessionOptions(), clock=RealClock())
        assert [each async for each in session.output()] == [(OutputStream.STDERR, b"sh: foo: not found\n")]
        assert await session.wait() == 127
        await session.close()


async def test_a_command_in_a_container_that_does_not_run_is_refused() -> None:
    async with engine_with({"POST /containers/c/exec": reply({"message": "container c is not running"}, 409)}) as (
        engine,
        server,
    ):
        with pytest.raises(NoSuchContainer, match="is not running"):
            await open_exec(engine, "c", ("ls",), SessionOptions(), clock=RealClock())


async def test_a_command_that_the_engine_has_forgotten_was_killed() -> None:
    answers = _exec(b"", {"Running": True, "ExitCode": None, "Pid": 9})

    async with engine_with(answers) as (engine, server):
        session = await open_exec(engine, "c", ("ls",), SessionOptions(), clock=RealClock())
        server.answers["GET /exec/e1/json"] = reply({"message": "no such exec"}, 404)
        assert await session.wait() == 137
        await session.close()
