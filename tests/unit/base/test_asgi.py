"""An application is reachable once ``serving`` has been entered, and not after it."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import pytest

from shoal.app.pki import Pki
from shoal.app.ports import any_free
from shoal.base.asgi import Receive, Scope, Send, Tls, answer, serving
from shoal.base.clock import RealClock


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
