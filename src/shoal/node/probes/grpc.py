"""The gRPC health check, over any connection: one unary call of HTTP/2, without a gRPC library."""

from __future__ import annotations

from shoal.node.probes.model import ProbeAnswer, ProbeResult
from shoal.node.runtime.model import PodConnection

_PATH = "/grpc.health.v1.Health/Check"
_STATUS = {0: "UNKNOWN", 1: "SERVING", 2: "NOT_SERVING", 3: "SERVICE_UNKNOWN"}
_UNIMPLEMENTED = "12"


async def check(connection: PodConnection, service: str, authority: str) -> ProbeAnswer:
    """Check the health of ``service``; empty means the server as a whole."""
    from h2.config import H2Configuration
    from h2.connection import H2Connection
    from h2.events import (
        ConnectionTerminated,
        DataReceived,
        ResponseReceived,
        StreamEnded,
        StreamReset,
        TrailersReceived,
    )

    link = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
    link.initiate_connection()
    headers = [
        (":method", "POST"), (":scheme", "http"), (":path", _PATH), (":authority", authority), ("te", "trailers"),
        ("content-type", "application/grpc"), ("user-agent", "kube-probe"),
    ]  # fmt: skip
    link.send_headers(1, headers)
    link.send_data(1, _message(service), end_stream=True)
    await connection.write(link.data_to_send())
    body = b""
    said: dict[str, str] = {}
    while True:
        data = await connection.read()
        if not data:
            return ProbeAnswer(ProbeResult.FAILURE, "error: health rpc probe failed: the connection was closed")
        for event in link.receive_data(data):
            if isinstance(event, DataReceived):
                body += event.data
                link.acknowledge_received_data(event.flow_controlled_length, 1)
            elif isinstance(event, ResponseReceived | TrailersReceived):
                said |= {str(name): str(value) for name, value in event.headers}
            elif isinstance(event, StreamEnded):
                return _verdict(body, said)
            elif isinstance(event, StreamReset | ConnectionTerminated):
                return ProbeAnswer(ProbeResult.FAILURE, "error: health rpc probe failed: the stream was reset")
        out = link.data_to_send()
        if out:
            await connection.write(out)


def _message(service: str) -> bytes:
    """A HealthCheckRequest in gRPC's frame."""
    text = service.encode()
    body = b"\x0a" + _varint(len(text)) + text if text else b""
    return b"\x00" + len(body).to_bytes(4, "big") + body


def _varint(number: int) -> bytes:
    out = b""
    while number > 127:
        out += bytes((number & 127 | 128,))
        number >>= 7
    return out + bytes((number,))


def _verdict(body: bytes, said: dict[str, str]) -> ProbeAnswer:
    status = said.get("grpc-status", "")
    if status == _UNIMPLEMENTED:
        message = "error: this server does not implement the grpc health protocol (grpc.health.v1.Health)"
        return ProbeAnswer(ProbeResult.FAILURE, f"{message}: {said.get('grpc-message', '')}")
    if status != "0":
        return ProbeAnswer(
            ProbeResult.FAILURE, f"error: health rpc probe failed: {said.get('grpc-message') or 'code ' + status}"
        )
    answer = body[5:]
    number = answer[1] if len(answer) >= 2 and answer[0] == 0x08 else 0
    if number == 1:
        return ProbeAnswer(ProbeResult.SUCCESS, "service healthy")
    return ProbeAnswer(ProbeResult.FAILURE, f'service unhealthy (responded with "{_STATUS.get(number, number)}")')
