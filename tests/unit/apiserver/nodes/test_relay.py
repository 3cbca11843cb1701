"""The server's end of a WebSocket that was handed over by the HTTP front."""

from __future__ import annotations

from shoal.apiserver.nodes.relay import ServerSocket
from shoal.base.websocket import Decoder, Message, Opcode, encode


class OutgoingBytes:
    """A connection whose client may stop reading."""

    def __init__(self) -> None:
        self.writable = True
        self.sent = b""

    def write(self, data: bytes) -> None:
        self.sent += data

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def hang_up(self) -> None: ...


def test_a_client_that_does_not_read_gets_no_more_pongs() -> None:
    wire = OutgoingBytes()
    socket = ServerSocket(wire)
    socket.receive(encode(Opcode.PING, b"1", mask=b"abcd"))
    wire.writable = False
    socket.receive(encode(Opcode.PING, b"2", mask=b"abcd") * 1000)
    wire.writable = True
    socket.receive(encode(Opcode.PING, b"3", mask=b"abcd"))
    assert Decoder(server=False).feed(wire.sent) == [Message(Opcode.PONG, b"1"), Message(Opcode.PONG, b"3")]
