"""TLS of the network transport: trusted authorities, the server name, and the client certificate."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from shoal.app.pki import Pki, server_context
from shoal.base.clock import RealClock
from shoal.base.tasks import cancel_all
from shoal.client.config import AccessConfig
from shoal.client.credentials import Identity
from shoal.client.errors import Unreachable
from shoal.client.http import HttpTransport

Test = Callable[[AccessConfig, list[Any]], Awaitable[None]]


@asynccontextmanager
async def serving(folder: Path, hosts: tuple[str, ...]) -> AsyncIterator[Any]:
    """A server with a certificate for ``hosts``; it remembers the names on its clients' certificates."""

    async with asyncio.timeout(20):
        pki = Pki(folder, now=datetime.now(UTC))
        seen: list[Any] = []
        tasks: list[asyncio.Task[None]] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            certificate = writer.get_extra_info("peercert") or {}
            try:
                while True:
                    await reader.readuntil(b"\r\n\r\n")
                    seen.append(
                        dict(pair for group in certificate.get("subject", ()) for pair in group).get("commonName")
                    )
                    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
            except (asyncio.IncompleteReadError, ConnectionError):
                writer.close()

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            tasks.append(asyncio.create_task(serve(reader, writer), name="connection"))

        context = server_context(pki.ensure_server(hosts), pki.ensure_ca().cert)
        listener = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=context)
        port = listener.sockets[0].getsockname()[1]
        try:
            yield (AccessConfig(url=f"https://127.0.0.1:{port}", ca_pem=pki.ca_cert.read_text()), seen)
        finally:
            listener.close()
            await cancel_all(*tasks)


async def status(config: AccessConfig, **options: Any) -> int:
    transport = HttpTransport(config, clock=RealClock(), **options)
    try:
        return (await transport.request("GET", "/")).status
    finally:
        await transport.close()


async def test_a_client_certificate_is_shown_to_the_server(tmp_path: Path) -> None:
    async with serving(tmp_path, ("127.0.0.1",)) as (config, seen):
        pair = Pki(tmp_path, now=datetime.now(UTC)).ensure_client("c", "alice")
        known = replace(config, client_cert_pem=pair.cert.read_text(), client_key_pem=pair.key.read_text())
        assert await status(known) == 200
        assert await status(config) == 200
        assert seen == ["alice", None]


async def test_new_certificates_from_a_plugin_are_used_on_new_connections(tmp_path: Path) -> None:
    async with serving(tmp_path, ("127.0.0.1",)) as (config, seen):
        pki = Pki(tmp_path, now=datetime.now(UTC))
        pairs = [pki.ensure_client(name, name) for name in ("alice", "bob")]

        class Changing:
            current = 0

            async def identity(self) -> Identity:
                pair = pairs[self.current]
                return Identity(certificate=pair.cert.read_text(), key=pair.key.read_text())

            def renew(self) -> bool:
                return False

        changing = Changing()
        transport = HttpTransport(config, clock=RealClock(), credentials=changing)
        for changing.current in (0, 0, 1, 1):
            await transport.request("GET", "/")
        await transport.close()
        assert seen == ["alice", "alice", "bob", "bob"]


async def test_the_name_on_the_certificate_counts(tmp_path: Path) -> None:
    async with serving(tmp_path, ("inside.example",)) as (config, seen):
        with pytest.raises(Unreachable, match="not trusted"):
            await status(config)
        assert await status(replace(config, tls_server_name="inside.example")) == 200
        assert await status(replace(config, ca_pem="", insecure=True)) == 200
        with pytest.raises(Unreachable, match="not trusted"):
            await status(replace(config, ca_pem=""))
