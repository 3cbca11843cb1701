"""Opening connections: over TCP, TLS and Unix sockets, and what the errors say."""

from __future__ import annotations

import asyncio
import socket
import ssl
from datetime import UTC, datetime
from pathlib import Path

import pytest

from shoal.app.pki import Pki, server_context
from shoal.base.clock import FakeClock, RealClock
from shoal.base.http1.dial import HttpAddress, dial, fetch, reason_of
from shoal.base.http1.errors import AnswerTimedOut, Unreachable
from shoal.base.http1.limits import Deadlines
from shoal.testing.http_peer import GET, OK, listening, saying

ANSWER = OK + b"content-length: 2\r\n\r\nok"


async def test_a_request_over_tcp() -> None:
    async with listening(saying(ANSWER)) as address:
        assert (await fetch(address, GET, clock=RealClock(), connect_s=5)).body == b"ok"


async def test_a_request_over_a_unix_socket(tmp_path: Path) -> None:
    async with listening(saying(ANSWER), path=tmp_path / "s") as address:
        assert str(address) == str(tmp_path / "s")
        assert (await fetch(address, GET, clock=RealClock(), connect_s=5)).body == b"ok"


async def test_a_request_over_tls_and_a_certificate_that_is_not_trusted(tmp_path: Path) -> None:
    pki = Pki(tmp_path, now=datetime.now(UTC))
    server = pki.ensure_server(("127.0.0.1",))
    async with listening(saying(ANSWER), tls=server_context(server, pki.ca_cert)) as address:
        trusting = ssl.create_default_context(cafile=pki.ca_cert)
        secure = HttpAddress(address.host, address.port, trusting)
        assert (await fetch(secure, GET, clock=RealClock(), connect_s=5)).body == b"ok"
        with pytest.raises(Unreachable, match=rf"the certificate of {address} is not trusted: "):
            await dial(HttpAddress(address.host, address.port, ssl.create_default_context()), clock=RealClock())
        with pytest.raises(Unreachable, match="not trusted: .*other"):
            await dial(HttpAddress(address.host, address.port, trusting, "other"), clock=RealClock())


async def test_a_server_without_tls_is_named() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.local ESMTP\r\n")

    async with listening(talk) as address:
        secure = HttpAddress(address.host, address.port, ssl.create_default_context())
        with pytest.raises(Unreachable, match=rf"{address}"):
            await dial(secure, clock=RealClock(), connect_s=5)


async def test_a_port_on_which_nothing_listens_is_named() -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        address = HttpAddress("127.0.0.1", reserved.getsockname()[1])
        with pytest.raises(Unreachable, match=rf"^connection refused: nothing listens on 127\.0\.0\.1:{address.port}$"):
            await dial(address, clock=RealClock(), connect_s=5)


async def test_a_socket_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(Unreachable, match=f"^socket {tmp_path}/s does not exist$"):
        await dial(HttpAddress(socket_path=str(tmp_path / "s")), clock=RealClock())


async def test_a_connection_that_is_not_made_in_time_is_given_up(clock: FakeClock) -> None:
    async with listening(saying(b"")) as address:  # it says nothing: the handshake never ends
        secure = HttpAddress(address.host, address.port, ssl.create_default_context())
        dialling = asyncio.create_task(dial(secure, clock=clock, connect_s=10), name="dial")
        await clock.advance(9.9)
        assert not dialling.done()
        await clock.advance(0.1)
        with pytest.raises(Unreachable, match=rf"^no connection to {address} within 10 s$"):
            await dialling


async def test_a_single_request_keeps_its_deadlines_and_closes_its_connection(clock: FakeClock) -> None:
    asked, gone = asyncio.Event(), asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        asked.set()
        await reader.read()
        gone.set()

    async with listening(talk) as address:
        asking = asyncio.create_task(fetch(address, GET, clock=clock, deadlines=Deadlines(total_s=3)), name="fetch")
        await asked.wait()
        await clock.advance(3)
        with pytest.raises(AnswerTimedOut, match="did not answer within 3 s"):
            await asking
        await gone.wait()


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (socket.gaierror(-2, "Name or service not known"), 'host "db.local" not found: Name or service not known'),
        (OSError(113, "No route to host"), "no route to db.local:80"),
        (OSError(101, "Network is unreachable"), "no route to db.local:80"),
        (ConnectionResetError(104, "reset"), "db.local:80 closed the connection before it was ready"),
        (OSError(24, "Too many open files"), "no connection to db.local:80: Too many open files"),
        (OSError("Multiple exceptions: a, b"), "no connection to db.local:80: Multiple exceptions: a, b"),
    ],
)
def test_each_error_names_the_peer_and_the_cause(error: OSError, text: str) -> None:
    assert reason_of(error, HttpAddress("db.local", 80)) == text


def test_addresses_are_shown_as_users_write_them() -> None:
    assert str(HttpAddress("::1", 80)) == "[::1]:80"
    assert str(HttpAddress("10.0.0.7", 8080)) == "10.0.0.7:8080"
    assert reason_of(PermissionError(13, "no"), HttpAddress(socket_path="/run/x")) == (
        "permission to use socket /run/x denied"
    )
