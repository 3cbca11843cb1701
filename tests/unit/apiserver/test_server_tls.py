"""TLS of the API server: its versions and ciphers, the time limit of a handshake, and the headers of every answer."""

from __future__ import annotations

import asyncio
import ssl
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from shoal.apiserver.messages import HttpLimits
from shoal.app.pki import Pki, server_context
from shoal.base.clock import RealClock
from shoal.testing.servers import ADMIN_TOKEN, local_server


@asynccontextmanager
async def serving(directory: Path, limits: HttpLimits | None = None) -> AsyncIterator[tuple[int, Path]]:
    pki = Pki(directory, now=RealClock().now())
    keys = pki.ensure_server(("localhost", "127.0.0.1"))

    async with local_server() as local:
        port = await local.server.listen("127.0.0.1", 0, tls=server_context(keys, pki.ca_cert), limits=limits)
        async with asyncio.timeout(20):
            yield (port, pki.ca_cert)


def client(ca: Path, version: ssl.TLSVersion, ciphers: str = "") -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(ca))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = context.maximum_version = version
    if ciphers:
        context.set_ciphers(ciphers)
    return context


@pytest.mark.parametrize(
    ("version", "ciphers"),
    [
        (ssl.TLSVersion.TLSv1_1, "DEFAULT:@SECLEVEL=0"),
        (ssl.TLSVersion.TLSv1_2, "ECDHE-ECDSA-AES128-SHA256:ECDHE-ECDSA-AES256-SHA"),
    ],
    ids=["1.1", "1.2 without authenticated encryption"],
)
async def test_old_tls_is_refused(tmp_path: Path, version: ssl.TLSVersion, ciphers: str) -> None:
    async with serving(tmp_path) as (port, ca):
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.open_connection("127.0.0.1", port, ssl=client(ca, version, ciphers))


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_modern_tls_is_spoken_and_every_answer_has_its_headers(tmp_path: Path, version: ssl.TLSVersion) -> None:
    async with serving(tmp_path) as (port, ca):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client(ca, version))
        for path, status in (("/livez", 200), ("/api/v1/pods", 200), ("/api/v1/nothing", 404)):
            writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ADMIN_TOKEN}\r\n\r\n".encode())
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            assert head.startswith(f"HTTP/1.1 {status} ")
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head.split("\r\n"))}
            assert headers["x-content-type-options"] == "nosniff" and head.count("nosniff") == 1
            assert headers["cache-control"] == "no-cache, private"
            assert headers["audit-id"] and headers["x-kubernetes-pf-flowschema-uid"]
            assert headers["x-kubernetes-pf-prioritylevel-uid"] and "server" not in headers
            await reader.readexactly(int(headers["content-length"]))
        writer.close()
        await writer.wait_closed()


async def test_a_handshake_that_is_never_finished_is_closed(tmp_path: Path) -> None:
    async with serving(tmp_path, HttpLimits(handshake_s=0.1)) as (port, ca):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            assert await reader.read() == b""
        except ConnectionResetError:
            pass
        writer.close()


async def test_every_json_answer_ends_with_one_newline(tmp_path: Path) -> None:
    requests = (
        ("GET", "/api/v1/namespaces/default", b""),
        ("GET", "/api/v1/namespaces", b""),
        ("GET", "/api/v1/nothing", b""),
        ("GET", "/apis", b""),
        ("GET", "/version", b""),
        ("POST", "/api/v1/namespaces", b'{"metadata":{"name":"a"}}'),
        ("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", b'{"spec":{"resourceAttributes":{}}}'),
        ("POST", "/api/v1/namespaces", b"{"),
        ("DELETE", "/api/v1/namespaces/a", b""),
        ("HEAD", "/api/v1/namespaces/default", b""),
    )
    async with serving(tmp_path) as (port, ca):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client(ca, ssl.TLSVersion.TLSv1_3))
        for method, path, body in requests:
            line = f"{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ADMIN_TOKEN}\r\n"
            writer.write(f"{line}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            length = int(head.lower().partition("content-length: ")[2].partition("\r\n")[0])
            if method != "HEAD":
                answer = await reader.readexactly(length)
                assert answer.endswith(b"}\n"), (method, path)
        writer.close()
        await writer.wait_closed()
