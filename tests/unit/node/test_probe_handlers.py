"""Probes over connections: HTTP, gRPC and TLS, each against the other side of the real protocol."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, RequestReceived

from shoal.base.clock import FakeClock, RealClock
from shoal.node.probes.grpc import check
from shoal.node.probes.handlers import Handlers, Target
from shoal.node.probes.model import ProbeKind, ProbeResult, probe_of
from shoal.node.runtime.connections import SocketConnection
from shoal.node.runtime.model import Container, ContainerPhase, PodConnection

CONTAINER = Container(
    id="c", sandbox_id="s", pod_uid="u", name="c", attempt=0, phase=ContainerPhase.RUNNING, image_id="", image_reference="",
    created_at=0.0,
)  # fmt: skip


class GrpcServer:
    """The other side of a health check, in memory."""

    def __init__(self, reply: Callable[[str], tuple[bytes, list[tuple[str, str]]]]) -> None:
        self._link = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
        self._link.initiate_connection()
        self._reply = reply
        self._path = ""
        self.asked = b""

    async def read(self, limit: int = 65536) -> bytes:
        await asyncio.sleep(0)
        return self._link.data_to_send()

    async def write(self, data: bytes) -> None:
        for event in self._link.receive_data(data):
            if isinstance(event, RequestReceived):
                self._path = str(dict(event.headers)[":path"])
            elif isinstance(event, DataReceived):
                self.asked += event.data
                body, trailers = self._reply(self._path)
                self._link.send_headers(1, [(":status", "200"), ("content-type", "application/grpc")])
                self._link.send_data(1, body)
                self._link.send_headers(1, trailers, end_stream=True)

    async def write_eof(self) -> None:
        return

    async def close(self) -> None:
        return


@pytest.mark.parametrize(
    ("body", "trailers", "result", "message"),
    [
        (b"\x00\x00\x00\x00\x02\x08\x01", [("grpc-status", "0")], ProbeResult.SUCCESS, "service healthy"),
        (
            b"\x00\x00\x00\x00\x02\x08\x02", [("grpc-status", "0")], ProbeResult.FAILURE,
            'service unhealthy (responded with "NOT_SERVING")',
        ),
        (b"", [("grpc-status", "5"), ("grpc-message", "unknown service")], ProbeResult.FAILURE, "unknown service"),
        (b"", [("grpc-status", "12"), ("grpc-message", "x")], ProbeResult.FAILURE, "does not implement the grpc health protocol"),
    ],
)  # fmt: skip
async def test_health_over_grpc(
    body: bytes, trailers: list[tuple[str, str]], result: ProbeResult, message: str
) -> None:
    server = GrpcServer(lambda path: (body, trailers))
    answer = await check(server, "my.Service", "pod:50051")
    assert answer.result is result
    assert message in answer.message
    assert server.asked == b"\x00\x00\x00\x00\x0c\x0a\x0amy.Service"


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
async def test_health_over_http(answer: bytes, result: ProbeResult, message: str) -> None:
    server, port, seen = await serve(answer)
    headers = [{"name": "X-Probe", "value": "yes"}]
    found = await probe({"httpGet": {"path": "/healthz?x=1", "port": "web", "httpHeaders": headers}}, port)
    assert (found.result, message in found.message) == (result, True), found
    assert seen[0].startswith(b"GET /healthz?x=1 HTTP/1.1\r\n")
    assert b"x-probe: yes" in seen[0] and b"host: 10.0.0.1:80" in seen[0]
    server.close()


async def test_health_over_https_needs_no_trust(tmp_path: Path) -> None:
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


async def test_a_probe_has_its_time_and_no_more() -> None:
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
