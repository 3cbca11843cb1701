"""Envoy's administration over its Unix socket."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from shoal.base.clock import FakeClock, RealClock
from shoal.base.http1.dial import HttpAddress
from shoal.sentinel.admin import Admin
from shoal.testing.http_peer import OK, listening, saying


def envoy(path: Path, answer: bytes, asked: list[bytes] | None = None) -> AbstractAsyncContextManager[HttpAddress]:
    return listening(saying(answer, heard=asked), path=path)


async def test_bodies_in_chunks_and_with_a_length_are_read(tmp_path: Path) -> None:
    admin = Admin(tmp_path / "a", clock=RealClock())
    asked: list[bytes] = []
    chunks = b"3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n"
    async with envoy(tmp_path / "a", OK + b"transfer-encoding: chunked\r\n\r\n" + chunks, asked):
        assert await admin.get("/server_info") == b"onetwo"
        assert asked[0].startswith(b"GET /server_info HTTP/1.1\r\nhost: admin\r\n")
    async with envoy(tmp_path / "b", OK + b"content-length: 2\r\n\r\nOK", asked):
        assert await Admin(tmp_path / "b", clock=RealClock()).post("/drain_listeners")
        assert b"content-length: 0\r\n" in asked[1]


async def test_active_requests_are_added_up(tmp_path: Path) -> None:
    body = b"http.a.downstream_rq_active: 3\nhttp.b.downstream_rq_active: 4\n"
    async with envoy(tmp_path / "a", OK + b"content-length: %d\r\n\r\n%b" % (len(body), body)):
        assert await Admin(tmp_path / "a", clock=RealClock()).active_requests() == 7


async def test_a_refusal_and_no_envoy_are_nothing(tmp_path: Path) -> None:
    async with envoy(tmp_path / "a", b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 2\r\n\r\nno"):
        assert await Admin(tmp_path / "a", clock=RealClock()).get("/ready") is None
    missing = Admin(tmp_path / "missing", clock=RealClock())
    assert await missing.get("/ready") is None
    assert not await missing.post("/quitquitquit")
    assert await missing.active_requests() == 0


async def test_an_envoy_that_hangs_is_given_up(tmp_path: Path, clock: FakeClock) -> None:
    asked = asyncio.Event()

    async def half(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK + b"content-length: 100\r\n\r\nhalf")
        asked.set()
        await reader.read()

    async with listening(half, path=tmp_path / "a"):
        asking = asyncio.create_task(Admin(tmp_path / "a", clock=clock).get("/stats"), name="asking")
        await asked.wait()
        await clock.advance(5)
        assert await asking is None
