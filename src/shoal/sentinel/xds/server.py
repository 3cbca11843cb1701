"""The aggregated discovery service on a Unix socket: it passes messages to and from the protocol machine.

One Envoy is served at a time: its newest stream. All calls to the machine are made here, in one event loop; after each
step it calls ``on_change``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
from envoy.service.discovery.v3 import ads_pb2_grpc, discovery_pb2
from google.protobuf.any_pb2 import Any as AnyMessage

from shoal.base.clock import Clock
from shoal.base.logs import get_logger
from shoal.base.supervision import SupervisedLoops
from shoal.base.tasks import OwnedTasks
from shoal.sentinel.xds.model import DiscoveryRequest, DiscoveryResponse, Snapshot
from shoal.sentinel.xds.protocol import XdsMachine

log = get_logger("sentinel.xds")

_STOP_S = 1.0
_MESSAGE_BYTES = 64 * 1024 * 1024
_TICK_FLOOR_S = 0.02
_OPTIONS = [("grpc.max_receive_message_length", _MESSAGE_BYTES), ("grpc.so_reuseport", 0)]


class DiscoveryServer(ads_pb2_grpc.AggregatedDiscoveryServiceServicer):  # type: ignore[misc]
    """Connects the machine to Envoy's newest stream."""

    def __init__(self, machine: XdsMachine, *, clock: Clock, on_change: Callable[[], None] = lambda: None) -> None:
        self.machine = machine
        self._clock = clock
        self._on_change = on_change
        self._stream: asyncio.Queue[DiscoveryResponse | None] | None = None  # responses to write; None ends the stream
        self._due = asyncio.Event()

    def publish(self, snapshot: Snapshot) -> None:
        """Set the snapshot that Envoy should have."""
        self._send(self.machine.publish(snapshot, self._clock.monotonic()))

    @asynccontextmanager
    async def serving(self, socket: Path) -> AsyncIterator[None]:
        """Entered when Envoy can connect."""
        server = grpc.aio.server(options=_OPTIONS)
        ads_pb2_grpc.add_AggregatedDiscoveryServiceServicer_to_server(self, server)
        server.add_insecure_port(f"unix:{socket}")
        await server.start()
        loops = SupervisedLoops(self._clock)
        loops.start("xds/tick", self._tick)
        try:
            yield
        finally:
            self._end_stream()
            await loops.stop()
            await server.stop(_STOP_S)

    async def DeltaAggregatedResources(self, requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
        self._end_stream()
        out = self._stream = asyncio.Queue()  # bounded by the protocol: one response per type
        self.machine.connect()
        log.info("envoy connected")
        tasks = OwnedTasks()
        tasks.start(self._read(requests, out), name="xds/read")
        try:
            while (response := await out.get()) is not None:
                yield _message(response)
        finally:
            await tasks.close()
            if self._stream is out:
                self._stream = None
                self.machine.disconnect()
                log.info("envoy disconnected")
                self._tell()

    def _end_stream(self) -> None:
        if self._stream is not None:
            self._stream.put_nowait(None)
            self._stream = None
            self.machine.disconnect()

    async def _read(self, requests: AsyncIterator[Any], out: asyncio.Queue[DiscoveryResponse | None]) -> None:
        try:
            async for message in requests:
                if self._stream is not out:
                    return  # another stream has taken over
                request = _request(message)
                if request.error is not None:
                    log.warning("envoy refused a response", type=request.type, reason=request.error)
                self._send(self.machine.receive(request, self._clock.monotonic()))
        finally:
            out.put_nowait(None)

    def _send(self, responses: list[DiscoveryResponse]) -> None:
        if self._stream is not None:
            for response in responses:
                self._stream.put_nowait(response)
        self._due.set()
        self._tell()

    def _tell(self) -> None:
        try:
            self._on_change()
        except Exception as error:  # a failing callback must not end the stream
            log.error("handling a change of the snapshot failed", error=error)

    async def _tick(self) -> None:
        """Wake the machine when it waits for time."""
        while True:
            self._due.clear()
            due_s = self.machine.due_s(self._clock.monotonic())
            timer = None
            if due_s is not None:
                timer = self._clock.call_later(max(due_s, _TICK_FLOOR_S), self._due.set)
            await self._due.wait()
            if timer is not None:
                timer.cancel()
            due_s = self.machine.due_s(self._clock.monotonic())
            if due_s is not None and due_s <= 0:
                self._send(self.machine.tick(self._clock.monotonic()))


def _request(message: Any) -> DiscoveryRequest:
    refused = message.HasField("error_detail")
    return DiscoveryRequest(
        type=message.type_url,
        nonce=message.response_nonce,
        error=message.error_detail.message if refused else None,
        subscribe=tuple(message.resource_names_subscribe),
        unsubscribe=tuple(message.resource_names_unsubscribe),
        versions=dict(message.initial_resource_versions),
    )


def _message(response: DiscoveryResponse) -> Any:
    return discovery_pb2.DeltaDiscoveryResponse(
        type_url=response.type,
        nonce=response.nonce,
        resources=[
            discovery_pb2.Resource(
                name=one.ref.name,
                version=one.version,
                resource=AnyMessage(type_url=response.type, value=one.body),
            )
            for one in response.resources
        ],
        removed_resources=response.removed,
    )
