"""An exchange over a byte channel instead of a socket."""

from __future__ import annotations

import pytest

from shoal.base.clock import FakeClock
from shoal.base.http1.channel import fetch_over
from shoal.base.http1.errors import AnswerTooLarge, Disconnected, InvalidAnswer
from shoal.base.http1.limits import AnswerLimits
from shoal.testing.http_peer import GET, OK


class Pieces:
    """Gives these bytes, then the end."""

    def __init__(self, *pieces: bytes) -> None:
        self._pieces = iter(pieces)
        self.sent: list[bytes] = []

    async def read(self) -> bytes:
        return next(self._pieces, b"")

    async def write(self, data: bytes) -> None:
        self.sent.append(data)


async def test_the_answer_is_gathered_from_pieces(clock: FakeClock) -> None:
    channel = Pieces(OK + b"transfer-enc", b"oding: chunked\r\n\r\n2\r\no", b"k\r\n0\r\n\r\n", b"never read")
    reply = await fetch_over(channel, GET, peer="port 80 of pod a", clock=clock)
    assert (reply.status, reply.body) == (200, b"ok")
    assert channel.sent == [GET]
    assert await channel.read() == b"never read"


async def test_reading_ends_when_there_is_enough(clock: FakeClock) -> None:
    channel = Pieces(OK + b"content-length: 1000000\r\n\r\n", b"12345", b"67890", b"never read")
    reply = await fetch_over(channel, GET, peer="p", clock=clock, enough_bytes=7)
    assert reply.body == b"1234567"
    assert await channel.read() == b"never read"


@pytest.mark.parametrize(
    ("pieces", "error"),
    [
        ((), Disconnected),
        ((OK + b"content-length: 9\r\n\r\nhalf",), Disconnected),
        ((OK + b"content-length: 2\r\ncontent-length: 3\r\n\r\n",), InvalidAnswer),
        ((OK + b"content-length: 200\r\n\r\n",), AnswerTooLarge),
    ],
)
async def test_every_fault_names_the_peer(
    clock: FakeClock, pieces: tuple[bytes, ...], error: type[Disconnected]
) -> None:
    with pytest.raises(error, match="port 80 of pod a"):
        await fetch_over(
            Pieces(*pieces), GET, peer="port 80 of pod a", clock=clock, limits=AnswerLimits(body_bytes=100)
        )
