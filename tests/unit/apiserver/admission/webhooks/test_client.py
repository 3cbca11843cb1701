"""The HTTP client of hooks on the wire: every form an answer can have, and whom it trusts."""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from shoal.apiserver.admission.webhooks.client import CallFailed, HookClient, HookLimits
from shoal.apiserver.admission.webhooks.target import target_of
from shoal.base.clock import FakeClock, RealClock
from shoal.store import open_store
from shoal.store.model import NO_ATTRS

OK = b"HTTP/1.1 200 OK\r\n"


class Authority:
    """A certificate and its key, made by another or by itself."""

    def __init__(self, name: str, issuer: Authority | None = None, *, ca: bool = True, host: str = "") -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer.cert.subject if issuer else subject)
            .public_key(self.key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(minutes=1))
            .not_valid_after(now + timedelta(hours=1))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        )
        if host:
            builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        self.cert = builder.sign((issuer or self).key, hashes.SHA256())

    @property
    def pem(self) -> bytes:
        return self.cert.public_bytes(Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


@asynccontextmanager
async def answering(
    folder: Path, chain: Sequence[Authority], *answers: bytes, closes: bool = False
) -> AsyncIterator[tuple[int, list[bytes]]]:
    """A server that sends these bytes for each request, one after the other; its port and the requests' first lines."""
    (folder / "cert.pem").write_bytes(b"".join(each.pem for each in chain))
    (folder / "key.pem").write_bytes(chain[0].key_pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    requests: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                lines = head.split(b"\r\n")
                length = next(int(line[16:]) for line in lines if line.lower().startswith(b"content-length: "))
                await reader.readexactly(length)
                requests.append(lines[0])
                writer.write(answers[min(len(requests), len(answers)) - 1])
                await writer.drain()
                if closes:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    async with server:
        yield server.sockets[0].getsockname()[1], requests
        server.close()


async def ask(port: int, trusted: Authority, *, limits: HookLimits | None = None, times: int = 1) -> list[Any]:
    client = HookClient(open_store("memory://", attrs_of=lambda key, value: NO_ATTRS), RealClock(), limits)
    bundle = base64.b64encode(trusted.pem).decode()
    target = target_of({"url": f"https://localhost:{port}/hook", "caBundle": bundle})
    try:
        return [await client.post(target, {"a": 1}, 5.0) for _ in range(times)]
    finally:
        client.close()
        await FakeClock().settle()  # the transports close


async def exchange(folder: Path, *answers: bytes, closes: bool = False, times: int = 1, **more: Any) -> list[Any]:
    """The client's results for the answers of a hook that it trusts."""

    root = Authority("root")
    leaf = Authority("leaf", root, ca=False, host="localhost")
    async with answering(folder, [leaf], *answers, closes=closes) as (port, requests):
        found = await ask(port, root, times=times, **more)
        assert requests == [b"POST /hook?timeout=5s HTTP/1.1"] * times
        return found


@pytest.mark.parametrize(
    "answer",
    [
        OK + b'Content-Length: 7\r\n\r\n{"a":1}',
        OK + b'Transfer-Encoding: chunked\r\n\r\n4\r\n{"a"\r\n3\r\n:1}\r\n0\r\n\r\n',
        b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b'Content-Length: 7\r\n\r\n{"a":1}',
        b'HTTP/1.1 201 Created\r\nContent-Length: 7\r\n\r\n{"a":1}',
    ],
)
async def test_every_framing_is_understood(tmp_path: Path, answer: bytes) -> None:
    assert await exchange(tmp_path, answer, times=2) == [{"a": 1}, {"a": 1}]


async def test_an_answer_may_end_with_its_connection(tmp_path: Path) -> None:
    assert await exchange(tmp_path, OK + b'\r\n{"a":1}', closes=True, times=2) == [{"a": 1}, {"a": 1}]
    old = b'HTTP/1.0 200 OK\r\nContent-Length: 7\r\n\r\n{"a":1}'
    assert await exchange(tmp_path, old, closes=True, times=2) == [{"a": 1}, {"a": 1}]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"", "EOF"),
        (OK + b'Content-Length: 8\r\n\r\n{"a":1}', "unexpected EOF"),
        (OK + b'Transfer-Encoding: chunked\r\n\r\n4\r\n{"a"', "unexpected EOF"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", "net/http: HTTP/1.x transport connection broken"),
        (b"HTTP/1.1 200 OK\r\nContent-", "EOF"),
    ],
)
async def test_an_incomplete_answer_is_an_error(tmp_path: Path, answer: bytes, why: str) -> None:
    with pytest.raises(CallFailed, match=why):
        await exchange(tmp_path, answer, closes=True)


async def test_an_answer_has_a_limit(tmp_path: Path) -> None:
    small = HookLimits(answer_bytes=6)
    with pytest.raises(CallFailed, match="the answer is larger than 6 bytes"):
        await exchange(tmp_path, OK + b'Content-Length: 7\r\n\r\n{"a":1}', limits=small)


async def check_trust(folder: Path, chain: Sequence[Authority], trusted: Authority) -> list[Any]:
    async with answering(folder, chain, OK + b"Content-Length: 2\r\n\r\n{}") as (port, _):
        return await ask(port, trusted)


async def test_what_the_bundle_names_is_trusted(tmp_path: Path) -> None:
    root = Authority("root")
    middle = Authority("middle", root)
    leaf = Authority("leaf", middle, ca=False, host="localhost")
    alone = Authority("alone", ca=False, host="localhost")
    assert await check_trust(tmp_path, [leaf, middle], root) == [{}]
    assert await check_trust(tmp_path, [leaf], middle) == [{}]
    assert await check_trust(tmp_path, [alone], alone) == [{}]


async def test_nothing_else_is_trusted(tmp_path: Path) -> None:
    root, other = Authority("root"), Authority("root")
    leaf = Authority("leaf", root, ca=False, host="localhost")
    elsewhere = Authority("leaf", root, ca=False, host="example.com")
    with pytest.raises(CallFailed, match="tls: failed to verify certificate: x509:"):
        await check_trust(tmp_path, [leaf], other)
    with pytest.raises(CallFailed, match="x509: certificate is not valid for localhost"):
        await check_trust(tmp_path, [elsewhere], root)


def test_paths_cannot_carry_more_than_a_path() -> None:
    target = target_of({"url": "https://user:secret@example.com:8443/a b\r\nX: y", "caBundle": "no PEM"})
    assert (target.host, target.server_name, target.address) == (
        "example.com:8443",
        "example.com",
        ("example.com", 8443),
    )
    assert not set(target.path) & set(" \r\n")
