"""Large answers for clients that accept gzip: the same content in fewer bytes, never an old one, and nothing is lost."""

from __future__ import annotations

import asyncio
import zlib
from typing import Any

import pytest

from shoal.apiserver.compression import LARGE_BYTES, Compression
from shoal.apiserver.messages import DocumentResponse, LongResponse, Request, RequestTimedOut, Response
from shoal.base.clock import FakeClock
from shoal.testing.servers import LocalServer, ServerAnswer, local_server

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
GZIP = {"accept-encoding": "gzip"}


async def fill(server: LocalServer, count: int, size: int = 10_000) -> None:
    for index in range(count):
        await server.post(CONFIGMAPS, {"metadata": {"name": f"c-{index}"}, "data": {"a": f"{index:04d}" * (size // 4)}})


def plain(answer: ServerAnswer) -> bytes:
    assert answer.status == 200
    headers = {name.lower(): value for name, value in dict(answer.headers).items()}
    assert headers["content-encoding"] == "gzip"
    assert headers["vary"] == "Accept-Encoding"
    return zlib.decompress(answer.body, 31)


def is_plain(answer: ServerAnswer) -> bool:
    return "content-encoding" not in {name.lower() for name in dict(answer.headers)}


@pytest.mark.parametrize(
    "accept", ["application/json", "application/yaml", "application/json;as=Table;g=meta.k8s.io;v=v1"]
)
async def test_a_large_list_is_the_same_with_gzip_in_fewer_bytes(accept: str) -> None:
    async with local_server(clock=FakeClock()) as server:  # tables have ages
        await fill(server, 400 if "Table" in accept else 20)
        without = await server.call("GET", CONFIGMAPS, headers={"accept": accept})
        answer = await server.call("GET", CONFIGMAPS, headers={"accept": accept, **GZIP})
        assert len(without.body) > LARGE_BYTES
        assert is_plain(without)
        assert plain(answer).rstrip(b"\n") == without.body.rstrip(b"\n")
        assert len(answer.body) < len(without.body) / 5


async def test_an_object_that_is_large_is_compressed_too_and_ends_as_others_do() -> None:
    async with local_server() as server:
        await fill(server, 1, 200_000)
        content = plain(await server.call("GET", f"{CONFIGMAPS}/c-0", headers=GZIP))
        assert content.endswith(b"}\n")
        assert content[:-1] == (await server.call("GET", f"{CONFIGMAPS}/c-0")).body


@pytest.mark.parametrize("encoding", ["identity", "deflate, br", "gzip;q=0", "*", ""])
async def test_who_does_not_ask_for_gzip_gets_none(encoding: str) -> None:
    async with local_server() as server:
        await fill(server, 20)
        assert is_plain(await server.call("GET", CONFIGMAPS, headers={"accept-encoding": encoding}))


async def test_small_answers_and_errors_are_not_compressed() -> None:
    async with local_server() as server:
        await fill(server, 10)
        assert is_plain(await server.call("GET", CONFIGMAPS, headers={"accept-encoding": "deflate, gzip"}))
        assert (await server.call("GET", f"{CONFIGMAPS}/none", headers=GZIP)).json["code"] == 404


async def test_a_kept_list_is_never_sent_after_a_write() -> None:
    async with local_server() as server:
        await fill(server, 20)
        first = await server.call("GET", CONFIGMAPS, headers=GZIP)
        assert (await server.call("GET", CONFIGMAPS, headers=GZIP)).body == first.body
        await server.post(CONFIGMAPS, {"metadata": {"name": "new"}})
        assert b'"name":"new"' in plain(await server.call("GET", CONFIGMAPS, headers=GZIP))
        assert plain(await server.call("GET", CONFIGMAPS, headers=GZIP)) == (await server.call("GET", CONFIGMAPS)).body


def request(path: bytes = b"/a") -> Request:
    return Request("GET", path, {b"accept-encoding": b"gzip"})


def long_response(released: list[Any]) -> LongResponse:
    answer = LongResponse(200, b"x" * LARGE_BYTES * 2)
    answer.on_sent = lambda: released.append(1)
    return answer


@pytest.fixture
def compressions(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of what was compressed."""
    calls: list[int] = []
    real = zlib.compress

    def compress(body: bytes, *options: int) -> bytes:
        calls.append(len(body))
        return real(body, *options)

    monkeypatch.setattr(zlib, "compress", compress)
    return calls


async def test_clients_that_ask_at_once_share_one_compression(compressions: list[int]) -> None:
    compression, body = Compression(), b"x" * LARGE_BYTES * 2
    made = await asyncio.gather(*(compression.compressed(request(), Response(200, body)) for _ in range(5)))
    assert len(compressions) == 1
    assert len({answer.body for answer in made}) == 1
    other = await compression.compressed(request(), Response(200, b"y" + body))
    assert zlib.decompress(bytes(other.body), 31) == b"y" + body  # type: ignore[arg-type]
    compression.close()


async def test_only_the_last_bodies_are_kept(compressions: list[int]) -> None:
    compression = Compression()
    for index in (0, 1, 2, 3, 3, 2):
        await compression.compressed(request(b"/%d" % index), Response(200, b"x" * (5 << 20)))
    assert len(compressions) == 4
    await compression.compressed(request(b"/0"), Response(200, b"x" * (5 << 20)))
    assert len(compressions) == 5
    compression.close()


async def test_a_client_that_goes_away_meanwhile_gives_its_seats_back() -> None:
    compression, released = Compression(), list[int]()
    coroutine = compression.compressed(request(), long_response(released))
    coroutine.send(None)
    coroutine.close()
    assert released == [1]
    compression.close()


async def test_an_answer_is_sent_as_it_is_when_its_time_is_over() -> None:
    compression, released = Compression(), list[int]()
    answer = long_response(released)
    coroutine = compression.compressed(request(), answer)
    coroutine.send(None)
    with pytest.raises(StopIteration) as stop:
        coroutine.throw(RequestTimedOut())
    assert stop.value.value is answer
    assert not answer.headers
    assert not released
    compression.close()


async def test_an_answer_that_is_compressed_already_stays_as_it_is() -> None:
    answer = DocumentResponse(200, b"x" * LARGE_BYTES * 2, headers=((b"Content-Encoding", b"gzip"),))
    compression = Compression()
    assert await compression.compressed(request(), answer) is answer
    compression.close()


@pytest.mark.parametrize("client", ["127.0.0.1:5000", "127.3.2.1:5000", "::1:5000", "::ffff:127.0.0.1:5000"])
async def test_a_client_on_this_machine_gets_the_answer_as_it_is(client: str) -> None:
    compression, asked = Compression(), request()
    try:
        answer = DocumentResponse(200, b"x" * LARGE_BYTES * 2)
        asked.client = client
        assert await compression.compressed(asked, answer) is answer
        asked.client = "192.0.2.7:5000"
        assert len((await compression.compressed(asked, answer)).body) < LARGE_BYTES
    finally:
        compression.close()
