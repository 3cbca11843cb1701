"""Answers that are too large in every part they have: the connection ends them at the limit, not after it."""

from __future__ import annotations

import asyncio

import pytest

from shoal.base.http1.connection import ClientConnection
from shoal.base.http1.errors import AnswerTooLarge
from shoal.base.http1.limits import AnswerLimits
from shoal.errors import ConfigError
from shoal.testing.http_peer import GET, HEAD, OK, connected, saying

LIMITS = AnswerLimits(head_bytes=1000, headers=20, body_bytes=500)
CHUNKED = OK + b"transfer-encoding: chunked\r\n\r\n"

TOO_LARGE = {
    "one long value": (OK + b"x: " + b"y" * 1001 + b"\r\ncontent-length: 0\r\n\r\n", "more than 1000 bytes of headers"),
    "one long name": (OK + b"x" * 1001 + b": y\r\ncontent-length: 0\r\n\r\n", "more than 1000 bytes of headers"),
    "many bytes of headers": (OK + b"name: 89012345678901234567890123456789012345678901234567\r\n" * 19, "more than 1000 bytes"),
    "many headers": (OK + b"x: y\r\n" * 22, "more than 20 headers"),
    "a header that does not end": (OK + b"x: " + b"y" * 2000, "more than 1000 bytes"),
    "a status text that does not end": (b"HTTP/1.1 200 " + b"y" * 2000, "more than 1000 bytes"),
    "preliminary answers without end": (b"HTTP/1.1 100 Continue\r\n\r\n" * 50, "more than 1000 bytes"),
    "a declared body": (OK + b"content-length: 501\r\n\r\n", "a body of 501 bytes; the limit is 500"),
    "a body in one chunk": (CHUNKED + b"1f5\r\n" + b"x" * 501, "a body of more than 500 bytes"),
    "a body in many chunks": (CHUNKED + b"5\r\nabcde\r\n" * 101, "a body of more than 500 bytes"),
    "a body that ends with the connection": (OK + b"\r\n" + b"x" * 501, "a body of more than 500 bytes"),
    "bytes of trailers": (CHUNKED + b"0\r\nx: " + b"y" * 1001 + b"\r\n\r\n", "more than 1000 bytes of headers"),
    "trailers": (CHUNKED + b"0\r\n" + b"x: y\r\n" * 21 + b"\r\n", "more than 20 headers"),
    "empty lines before the answer": (b"\r\n" * 600, "more than 1000 bytes"),
}  # fmt: skip
# What comes in the same piece as the end of the head is not counted, so these need more than one
IN_PIECES = {
    "a chunk extension": (CHUNKED + b"1;" + b"a" * 1500, "more than 1000 bytes that bring no body"),
    "zeros before a chunk's size": (CHUNKED + b"0" * 1500, "more than 1000 bytes that bring no body"),
    **TOO_LARGE,
}


@pytest.mark.parametrize(("answer", "text"), TOO_LARGE.values(), ids=TOO_LARGE.keys())
async def test_a_whole_answer_ends_at_its_limit(answer: bytes, text: str) -> None:
    async with connected(saying(answer), limits=LIMITS) as connection:
        with pytest.raises(AnswerTooLarge, match=text) as caught:
            await connection.request(GET)
        assert connection.peer in str(caught.value)
        assert not connection.reusable


@pytest.mark.parametrize("whole", [True, False], ids=["whole", "streamed"])
@pytest.mark.parametrize(("answer", "text"), IN_PIECES.values(), ids=IN_PIECES.keys())
async def test_an_answer_that_comes_in_small_pieces_ends_at_its_limit(answer: bytes, text: str, whole: bool) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for at in range(0, len(answer), 100):
            writer.write(answer[at : at + 100])
            await writer.drain()
            await asyncio.sleep(0)
        await reader.read()

    async with connected(talk, limits=LIMITS) as connection:
        with pytest.raises(AnswerTooLarge):
            await (connection.request(GET) if whole else _streamed(connection))


async def _streamed(connection: ClientConnection) -> bytes:
    return await (await connection.stream(GET)).body()


JUST_RIGHT = {
    "headers": OK + b"x: y\r\n" * 19 + b"content-length: 0\r\n\r\n",
    "a body": OK + b"content-length: 500\r\n\r\n" + b"x" * 500,
    "chunks of one byte with extensions": CHUNKED + b"1;name=value-of-some-length\r\nx\r\n" * 500 + b"0\r\n\r\n",
}


@pytest.mark.parametrize("answer", JUST_RIGHT.values(), ids=JUST_RIGHT.keys())
async def test_an_answer_at_its_limit_passes(answer: bytes) -> None:
    async with connected(saying(answer), limits=LIMITS) as connection:
        assert (await connection.request(GET)).status == 200
        assert connection.reusable


async def test_the_length_in_an_answer_to_head_announces_no_body() -> None:
    async with connected(saying(OK + b"content-length: 99999\r\n\r\n"), limits=LIMITS) as connection:
        assert (await connection.request(HEAD)).headers["content-length"] == "99999"


@pytest.mark.parametrize("wrong", [{"head_bytes": 0}, {"headers": 0}, {"buffered_bytes": 0}, {"body_bytes": -1}])
def test_limits_that_let_nothing_pass_are_a_mistake(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigError):
        AnswerLimits(**wrong)
