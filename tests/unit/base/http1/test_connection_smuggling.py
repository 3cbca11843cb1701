"""Answers that two readers could frame differently: none of them is taken, and the connection goes."""

from __future__ import annotations

import pytest

from shoal.base.http1.errors import InvalidAnswer
from shoal.testing.http_peer import GET, HEAD, OK, connected, saying

CHUNKED = OK + b"transfer-encoding: chunked\r\n\r\n"
SECOND = OK + b"content-length: 8\r\n\r\nsmuggled"

REFUSED = {
    "a length and chunks": OK + b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks and a length": OK + b"transfer-encoding: chunked\r\ncontent-length: 5\r\n\r\n0\r\n\r\n",
    "two equal lengths": OK + b"content-length: 2\r\ncontent-length: 2\r\n\r\nok",
    "two different lengths": OK + b"content-length: 2\r\ncontent-length: 20\r\n\r\nok",
    "a list of lengths": OK + b"content-length: 2, 2\r\n\r\nok",
    "a negative length": OK + b"content-length: -2\r\n\r\nok",
    "a length with a plus": OK + b"content-length: +2\r\n\r\nok",
    "a hexadecimal length": OK + b"content-length: 0x2\r\n\r\nok",
    "an empty length": OK + b"content-length: \r\n\r\nok",
    "a length past 64 bits": OK + b"content-length: 99999999999999999999\r\n\r\nok",
    "a length in other digits": OK + b"content-length: \xd9\xa2\r\n\r\nok",
    "a bare LF after a header": OK + b"x: 1\ncontent-length: 2\r\n\r\nok",
    "a bare LF after the status": b"HTTP/1.1 200 OK\ncontent-length: 2\r\n\r\nok",
    "a bare LF after the head": OK + b"content-length: 2\r\n\nok",
    "a bare CR in a value": OK + b"x: a\rb\r\ncontent-length: 2\r\n\r\nok",
    "a folded header": OK + b"x: a\r\n b\r\ncontent-length: 2\r\n\r\nok",
    "a folded length": OK + b"content-length:\r\n 2\r\n\r\nok",
    "a folded coding": OK + b"transfer-encoding:\r\n chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "a space before the colon": OK + b"content-length : 2\r\n\r\nok",
    "a header that begins with a space": OK + b" content-length: 2\r\n\r\nok",
    "a header without a colon": OK + b"content-length\r\n\r\nok",
    "NUL in a value": OK + b"x: a\0b\r\ncontent-length: 2\r\n\r\nok",
    "NUL in a name": OK + b"x\0: ab\r\ncontent-length: 2\r\n\r\nok",
    "chunked twice": OK + b"transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "another coding before chunked": OK + b"transfer-encoding: gzip, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "another coding after chunked": OK + b"transfer-encoding: chunked, gzip\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "a coding that contains chunked": OK + b"transfer-encoding: xchunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "a quoted coding": OK + b'transfer-encoding: "chunked"\r\n\r\n2\r\nok\r\n0\r\n\r\n',
    "the identity coding": OK + b"transfer-encoding: identity\r\n\r\nok",
    "a negative chunk": CHUNKED + b"-2\r\nok\r\n0\r\n\r\n",
    "a chunk with 0x": CHUNKED + b"0x2\r\nok\r\n0\r\n\r\n",
    "a chunk with a space": CHUNKED + b"2 \r\nok\r\n0\r\n\r\n",
    "a chunk past 64 bits": CHUNKED + b"fffffffffffffffff\r\nok\r\n0\r\n\r\n",
    "a chunk ended by a bare LF": CHUNKED + b"2\nok\r\n0\r\n\r\n",
    "a chunk that is longer than it says": CHUNKED + b"2\r\nokay\r\n0\r\n\r\n",
    "a line break in an extension": CHUNKED + b"2;a=\nb\r\nok\r\n0\r\n\r\n",
    "a length among the trailers": CHUNKED + b"2\r\nok\r\n0\r\ncontent-length: 9\r\n\r\n",
    "another version": b"HTTP/2.0 200 OK\r\ncontent-length: 2\r\n\r\nok",
    "a version of two digits": b"HTTP/1.15 200 OK\r\ncontent-length: 2\r\n\r\nok",
    "a status of two digits": b"HTTP/1.1 99 OK\r\ncontent-length: 2\r\n\r\nok",
    "a status of four digits": b"HTTP/1.1 2000 OK\r\ncontent-length: 2\r\n\r\nok",
    "no HTTP at all": b"SSH-2.0-OpenSSH_9.6\r\n",
}


@pytest.mark.parametrize("answer", REFUSED.values(), ids=REFUSED.keys())
async def test_an_ambiguous_answer_is_refused(answer: bytes) -> None:
    async with connected(saying(answer, stay=False)) as connection:
        with pytest.raises(InvalidAnswer, match=r"answer of 127\.0\.0\.1:\d+ is "):
            await connection.request(GET)
        assert not connection.reusable


@pytest.mark.parametrize("answer", REFUSED.values(), ids=REFUSED.keys())
async def test_it_is_refused_too_when_it_is_streamed_and_comes_in_pieces(answer: bytes) -> None:
    middle = len(answer) // 2

    async def talk(reader, writer):  # type: ignore[no-untyped-def]
        await reader.readuntil(b"\r\n\r\n")
        for part in (answer[:middle], answer[middle:]):
            writer.write(part)
            await writer.drain()

    async with connected(talk) as connection:
        with pytest.raises(InvalidAnswer):
            await (await connection.stream(GET)).body()
        assert not connection.reusable


SURPLUS = {
    "a second answer": (GET, OK + b"content-length: 2\r\n\r\nok" + SECOND),
    "a body longer than its length": (GET, OK + b"content-length: 2\r\n\r\nok and more"),
    "a body of 204": (GET, b"HTTP/1.1 204 No Content\r\ncontent-length: 8\r\n\r\nsmuggled"),
    "a body of 304": (GET, b"HTTP/1.1 304 Not Modified\r\n\r\nsmuggled"),
    "a body of an answer to HEAD": (HEAD, OK + b"content-length: 8\r\n\r\nsmuggled"),
    "an answer after the last chunk": (GET, CHUNKED + b"2\r\nok\r\n0\r\n\r\n" + SECOND),
}


@pytest.mark.parametrize(("request_", "answer"), SURPLUS.values(), ids=SURPLUS.keys())
async def test_what_follows_an_answer_is_never_the_answer_to_the_next_request(request_: bytes, answer: bytes) -> None:
    async with connected(saying(answer)) as connection:
        reply = await connection.request(request_)
        assert reply.body in (b"ok", b"")
        assert not connection.reusable
