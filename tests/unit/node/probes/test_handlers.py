"""Probes over HTTP and TLS, against real sockets, and their timeout."""

from __future__ import annotations

import asyncio
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from shoal.base.clock import FakeClock, RealClock
from shoal.node.probes.handlers import Handlers, Target
from shoal.node.probes.model import ProbeKind, ProbeResult, probe_of
from shoal.node.runtime.connections import SocketConnection
from shoal.node.runtime.model import Container, ContainerPhase, PodConnection

CONTAINER = Container(
    id="c", sandbox_id="s", pod_uid="u", name="c", attempt=0, phase=ContainerPhase.RUNNING, image_id="", image_reference="",
    created_at=0.0,
)  # fmt: skip


class SocketRuntime:
    """Leads every connection to one port of this machine."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def connect(self, sandbox_id: str, port: int) -> PodConnection:
        return SocketConnection(*await asyncio.open_connection("127.0.0.1", self._port))


async def probe(handler: dict[str, Any], port: int, timeout_s: int = 1) -> Any:
    runtime: Any = SocketRuntime(port)
    found = probe_of({"readinessProbe": {**handler, "timeoutSeconds": timeout_s}}, ProbeKind.READINESS)
    assert found is not None
    target = Target(container=CONTAINER, spec={"ports": [{"name": "web", "containerPort": 80}]}, address="10.0.0.1")
    return await Handlers(runtime, clock=RealClock()).ask(found, target)


async def serve(answer: bytes, tls: ssl.SSLContext | None = None) -> tuple[asyncio.Server, int, list[bytes]]:
    seen: list[bytes] = []

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(answer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(client, "127.0.0.1", 0, ssl=tls)
    return server, server.sockets[0].getsockname()[1], seen


@pytest.mark.parametrize(
    ("answer", "result", "message"),
    [
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", ProbeResult.SUCCESS, "ok"),
        (b"HTTP/1.1 302 Found\r\nlocation: /x\r\ncontent-length: 0\r\n\r\n", ProbeResult.WARNING, "Probe terminated redirects"),
        (b"HTTP/1.1 503 No\r\ncontent-length: 0\r\n\r\n", ProbeResult.FAILURE, "HTTP probe failed with statuscode: 503"),
        (b"HTTP/1.0 200 OK\r\n\r\nuntil the end", ProbeResult.SUCCESS, "until the end"),
        (b"nonsense\r\n\r\n", ProbeResult.FAILURE, "malformed HTTP response"),
        (b"", ProbeResult.FAILURE, "EOF"),
    ],
)  # fmt: skip
async def test_the_status_of_an_http_response_decides(answer: bytes, result: ProbeResult, message: str) -> None:
    server, port, seen = await serve(answer)
    headers = [{"name": "X-Probe", "value": "yes"}]
    found = await probe({"httpGet": {"path": "/healthz?x=1", "port": "web", "httpHeaders": headers}}, port)
    assert (found.result, message in found.message) == (result, True), found
    assert seen[0].startswith(b"GET /healthz?x=1 HTTP/1.1\r\n")
    assert b"x-probe: yes" in seen[0] and b"host: 10.0.0.1:80" in seen[0]
    server.close()


async def test_a_probe_over_https_does_not_check_the_certificate(tmp_path: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "pod")])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = (
        builder.serial_number(1).not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
    )
    certificate = builder.sign(key, hashes.SHA256())
    (tmp_path / "pod.crt").write_bytes(certificate.public_bytes(Encoding.PEM))
    (tmp_path / "pod.key").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(tmp_path / "pod.crt", tmp_path / "pod.key")

    server, port, _ = await serve(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", tls)
    found = await probe({"httpGet": {"port": 443, "scheme": "HTTPS"}}, port)
    assert found.result is ProbeResult.SUCCESS, found
    server.close()


async def test_a_probe_fails_at_its_timeout() -> None:
    class Silent:
        async def connect(self, sandbox_id: str, port: int) -> PodConnection:
            await asyncio.Event().wait()
            raise AssertionError

    clock, runtime = FakeClock(), Silent()
    found = probe_of({"livenessProbe": {"tcpSocket": {"port": 1}, "timeoutSeconds": 5}}, ProbeKind.LIVENESS)
    assert found is not None
    target = Target(container=CONTAINER, spec={}, address="")
    asking = asyncio.create_task(Handlers(runtime, clock=clock).ask(found, target))  # type: ignore[arg-type]
    await clock.advance(4.9)
    assert not asking.done()
    await clock.advance(0.1)
    assert (await asking).result is ProbeResult.FAILURE
