"""The HTTP health check of workers."""

from __future__ import annotations

import asyncio
import socket

import pytest

from shoal.base.clock import FakeClock, RealClock
from shoal.sharding.manager.health import http_probe
from shoal.testing.http_peer import listening, saying


@pytest.mark.parametrize(
    ("answer", "wrong"),
    [
        (b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n", ""),  # the body does not matter, nor whether it comes
        (b"HTTP/1.1 204 No Content\r\n\r\n", ""),
        (b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n", "answered HTTP/1.1 503"),
        (b"HTTP/1.1 302 Found\r\ncontent-length: 0\r\n\r\n", "answered HTTP/1.1 302"),
    ],
)
async def test_the_status_decides(answer: bytes, wrong: str) -> None:
    asked: list[bytes] = []
    async with listening(saying(answer, heard=asked)) as worker:
        assert await http_probe("127.0.0.1", worker.port, "/healthz", 5.0, clock=RealClock()) == wrong
        assert asked[0].startswith(b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n")


async def test_an_answer_that_is_not_http_is_a_failure() -> None:
    async with listening(saying(b"220 mail\r\n")) as worker:
        assert "not valid HTTP/1.1" in await http_probe("127.0.0.1", worker.port, "/", 5.0, clock=RealClock())


async def test_a_silent_worker_fails_at_the_timeout(clock: FakeClock) -> None:
    asked = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        asked.set()
        await reader.read()

    async with listening(silent) as worker:
        probing = asyncio.create_task(http_probe("127.0.0.1", worker.port, "/", 3.0, clock=clock), name="probe")
        await asked.wait()
        await clock.advance(3)
        assert await probing == f"no answer: {worker} did not answer within 3 s"


async def test_a_port_on_which_nothing_listens_is_named() -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        port = reserved.getsockname()[1]
        assert await http_probe("127.0.0.1", port, "/", 3.0, clock=RealClock()) == (
            f"no answer: connection refused: nothing listens on 127.0.0.1:{port}"
        )


async def test_a_path_with_a_line_break_is_not_sent() -> None:
    assert "line break" in await http_probe("127.0.0.1", 1, "/\r\nx: y", 3.0, clock=RealClock())
