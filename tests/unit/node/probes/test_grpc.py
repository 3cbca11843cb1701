"""The gRPC health check, against an HTTP/2 server in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, RequestReceived

from shoal.node.probes.grpc import check
from shoal.node.probes.model import ProbeResult


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
async def test_the_serving_status_decides(
    body: bytes, trailers: list[tuple[str, str]], result: ProbeResult, message: str
) -> None:
    server = GrpcServer(lambda path: (body, trailers))
    answer = await check(server, "my.Service", "pod:50051")
    assert answer.result is result
    assert message in answer.message
    assert server.asked == b"\x00\x00\x00\x00\x0c\x0a\x0amy.Service"
