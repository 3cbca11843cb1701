"""SPDY sessions: a client that makes the server answer and does not read costs no memory."""

from __future__ import annotations

from shoal.apiserver.messages import Wire
from shoal.apiserver.nodes.sessions import Carrier, SpdySession
from shoal.base.spdy import Event, control_frame

_PING = 6


class Client:
    """The connection to a client; it reads nothing while ``writable`` is False."""

    def __init__(self) -> None:
        self.writable = True
        self.paused = False
        self.sent = 0

    def write(self, data: bytes) -> None:
        self.sent += len(data)

    def unwrap(self, data: bytes) -> bytes:
        return data

    def hang_up(self) -> None:
        """Nothing to do."""

    def close(self) -> None:
        """Nothing to do."""

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False


class Session(SpdySession):
    def on_event(self, event: Event) -> None:
        """No event is expected."""

    def holds_back(self) -> bool:
        return False

    def release(self) -> None:
        """Nothing is held."""


def ping(number: int) -> bytes:
    return control_frame(_PING, 0, number.to_bytes(4, "big"))


def test_a_client_that_pings_and_does_not_read_is_not_heard_until_it_reads() -> None:
    client = Client()

    def carry(wire: Wire) -> Carrier:
        return client

    session = Session((), carry)
    session.attach(client)
    session.on_data(ping(1))
    assert client.sent == 12 and not client.paused
    client.writable = False
    session.on_data(ping(3))
    assert client.paused
    client.writable = True
    session.on_writable()
    assert not client.paused
