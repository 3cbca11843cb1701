"""An application is reachable once ``serving`` has been entered, and not after it."""

from __future__ import annotations

import asyncio
import resource
import ssl
import subprocess
from pathlib import Path

import pytest

from shoal.app.pki import Pki
from shoal.app.ports import any_free
from shoal.base.asgi import Receive, Scope, Send, Tls, answer, serving
from shoal.base.clock import RealClock
from shoal.base.front_limits import FrontLimits
from shoal.testing.waiting import eventually


async def hello(scope: Scope, receive: Receive, send: Send) -> None:
    await answer(send, 200, b'{"hello": "world"}')


async def get(port: int) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    body = await reader.read()
    writer.close()
    return body


async def test_it_answers_while_inside_and_refuses_afterwards() -> None:
    port = any_free("127.0.0.1")
    async with serving(hello, host="127.0.0.1", port=port, clock=RealClock()):
        body = await get(port)
        assert body.startswith(b"HTTP/1.1 200")
        assert body.endswith(b'{"hello": "world"}')
    with pytest.raises(OSError):
        await get(port)


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    await answer(send, 200, f"{scope['http_version']} {body.decode()}".encode(), "text/plain")


@pytest.mark.parametrize("body", ["", "words"])
async def test_over_http2_a_request_ends_with_or_without_a_body(tmp_path: Path, body: str) -> None:
    """kubectl reads over HTTP/2 where it is offered, and waited for ever."""
    clock, host, port = RealClock(), "127.0.0.1", any_free("127.0.0.1")
    pki = Pki(tmp_path, now=clock.now())
    keys = pki.ensure_server((host,))
    sent = ["--data", body] if body else []
    command = ["curl", "-sS", "--http2", "--noproxy", "*", "--max-time", "10", "--cacert", str(pki.ca_cert), *sent]
    async with serving(echo, host=host, port=port, clock=clock, tls=Tls(keys.cert, keys.key)):
        done = await asyncio.to_thread(
            subprocess.run, [*command, f"https://{host}:{port}/"], capture_output=True, text=True, check=False
        )
    assert (done.stdout, done.stderr) == (f"2 {body}", "")


async def test_a_handshake_that_is_never_finished_is_closed_and_gives_its_place_back(tmp_path: Path) -> None:
    clock, host, port = RealClock(), "127.0.0.1", any_free("127.0.0.1")
    pki = Pki(tmp_path, now=clock.now())
    keys = pki.ensure_server((host,))
    client = ssl.create_default_context(cafile=pki.ca_cert)
    limits = FrontLimits(handshake_s=0.3, connections=1)

    async def status() -> bytes:
        reader, writer = await asyncio.open_connection(host, port, ssl=client)
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        line = await reader.readline()
        writer.close()
        return line.split()[1]

    async with serving(hello, host=host, port=port, clock=clock, tls=Tls(keys.cert, keys.key), limits=limits):
        reader, writer = await asyncio.open_connection(host, port)
        assert await asyncio.wait_for(reader.read(), 30) == b"", "asyncio alone would wait for a minute"
        writer.close()
        await eventually(status, until=lambda found: found == b"200")


async def test_no_more_connections_are_served_than_the_limit_of_open_files_allows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wanted: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (100, 514))  # two, with those that the process needs
    monkeypatch.setattr(resource, "setrlimit", lambda _which, limits: wanted.append(limits))
    port = any_free("127.0.0.1")
    async with serving(hello, host="127.0.0.1", port=port, clock=RealClock()):
        assert wanted == [(514, 514)], "raised as far as the process may"
        for _ in range(2):
            assert (await get(port)).startswith(b"HTTP/1.1 200")
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        assert (await get(port)).startswith(b"HTTP/1.1 503")
        for _, writer in held:
            writer.close()
