"""Sessions of exec and attach, against a scripted engine that acts as Docker does and podman does not."""

from __future__ import annotations

import asyncio

import pytest
from scripted_engine import ScriptedAnswer, engine_with, reply

from shoal.base.clock import RealClock
from shoal.node.runtime.docker.session import open_attach, open_exec
from shoal.node.runtime.model import NoSuchContainer, OutputStream, SessionOptions, StartFailure


def frame(stream: int, data: bytes) -> bytes:
    return bytes((stream, 0, 0, 0)) + len(data).to_bytes(4) + data


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 101 UPGRADED\r\nContent-Type: application/vnd.docker.raw-stream\r\nConnection: Upgrade\r\n"
        b"Upgrade: tcp\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Type: application/vnd.docker.raw-stream\r\n\r\n",
    ],
)
async def test_an_attached_connection_carries_both_directions(head: bytes) -> None:
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


def _exec(start: bytes, *states: dict[str, object]) -> dict[str, bytes | ScriptedAnswer]:
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


async def test_a_missing_program_is_a_start_failure() -> None:
    text = b'OCI runtime exec failed: exec failed: unable to start: exec: "/x": no such file or directory: unknown\r\n'
    answers = _exec(frame(1, text), _PENDING, {"Running": False, "ExitCode": 127, "Pid": 0})

    async with engine_with(answers) as (engine, server):
        with pytest.raises(StartFailure, match='^OCI runtime exec failed.*"/x"'):
            await open_exec(engine, "c", ("/x",), SessionOptions(), clock=RealClock())


async def test_a_command_that_exits_with_the_code_of_a_missing_program_keeps_its_output() -> None:
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


async def test_a_command_that_the_engine_no_longer_knows_counts_as_killed() -> None:
    answers = _exec(b"", {"Running": True, "ExitCode": None, "Pid": 9})

    async with engine_with(answers) as (engine, server):
        session = await open_exec(engine, "c", ("ls",), SessionOptions(), clock=RealClock())
        server.answers["GET /exec/e1/json"] = reply({"message": "no such exec"}, 404)
        assert await session.wait() == 137
        await session.close()
