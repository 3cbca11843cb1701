"""One request to a kubelet or a pod: a connection of its own, the request, and its answer piece by piece.

It uses callbacks, since data is only passed on: ``Consumer`` gets the answer, ``pause`` and ``resume`` stop and restart
reading while the consumer is slow, and ``writable`` is False while the other side is slow.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from shoal.apiserver.messages import IncomingBody, frame
from shoal.apiserver.network_errors import answer_failure, dial_failure
from shoal.base.clock import Clock
from shoal.base.deadline import run_within
from shoal.base.http1.answer import HttpAnswer
from shoal.base.http1.connection import ClientConnection
from shoal.base.http1.dial import HttpAddress, dial
from shoal.base.http1.errors import Disconnected, TransportError
from shoal.base.http1.errors import Unreachable as NotDialled
from shoal.base.http1.limits import AnswerLimits
from shoal.base.http1.messages import LAST_CHUNK
from shoal.errors import ShoalError

Headers = Sequence[tuple[bytes, bytes]]
_BUFFERED_BYTES = 256 * 1024
_LIMITS = AnswerLimits(buffered_bytes=_BUFFERED_BYTES)
_EOF = "EOF"


class Unreachable(ShoalError):
    """No response arrived; the text says why, in the words of Go's network library."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where to connect. Without ``tls`` it is plain HTTP."""

    host: str
    port: int
    tls: ssl.SSLContext | None = None
    server_name: str = ""  # that the certificate must have; the host if empty

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def scheme(self) -> str:
        return "http" if self.tls is None else "https"


@dataclass(frozen=True, slots=True)
class Head:
    """The beginning of an answer."""

    status: int
    headers: Headers  # as they came
    length: int | None  # of the body, if it says

    def get(self, name: bytes) -> bytes:
        return next((value for key, value in self.headers if key.lower() == name), b"")


class Consumer(Protocol):
    """Receives a response."""

    def on_answer(self, data: bytes) -> None: ...

    def on_answered(self, problem: str) -> None:
        """The response ended; ``problem`` is not empty when it broke off."""

    def on_room(self) -> None:
        """The other side keeps up with reading again."""


class Backend:
    """The connection. After ``send``, ``head`` waits for the beginning of the answer; then a consumer must be attached,
    or the connection aborted."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self._answer: HttpAnswer | None = None
        self._consumer: Consumer | None = None
        self._incoming: IncomingBody | None = None
        connection.tune(write_buffer_bytes=_BUFFERED_BYTES, on_writable=self._room_changed)

    # -- sending -----------------------------------------------------------------------------------------------------

    @property
    def writable(self) -> bool:
        return self._connection.writable

    def send(
        self, head: bytes, body: bytes = b"", incoming: IncomingBody | None = None, *, chunked: bool = False
    ) -> None:
        """Send the request; the body ``incoming`` is streamed."""
        self._answer = self._connection.start(head + body, upgrade=True)
        if incoming is None:
            return
        self._incoming = incoming
        if chunked:
            incoming.attach(lambda data: self.write(frame(data)), lambda: self.write(LAST_CHUNK))
        else:
            incoming.attach(self.write, _nothing)

    def write(self, data: bytes) -> None:
        self._connection.write(data)

    def _room_changed(self, writable: bool) -> None:
        if self._incoming is not None:
            if writable:
                self._incoming.resume()
            else:
                self._incoming.pause()
        if writable and self._consumer is not None:
            self._consumer.on_room()

    # -- receiving ---------------------------------------------------------------------------------------------------

    async def head(self) -> Head:
        """The beginning of the answer, or ``Unreachable``."""
        answer = self._sent
        try:
            await answer.ready
        except TransportError as error:
            self._end_incoming()
            raise Unreachable(answer_failure(error) if isinstance(error, Disconnected) else _EOF) from error
        declared = answer.headers.get("content-length")
        return Head(answer.status, answer.header_list, None if declared is None else int(declared))

    def attach(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._sent.attach(consumer.on_answer, self._ended)

    def pause(self) -> None:
        self._connection.pause()

    def resume(self) -> None:
        self._connection.resume()

    def abort(self) -> None:
        """Drop the connection and the rest of the response."""
        self._consumer = None
        if self._answer is not None:
            self._answer.on_data = self._answer.on_end = None
        self._connection.abort()

    def close(self) -> None:
        """End the connection once everything is sent."""
        self._connection.finish()

    @property
    def _sent(self) -> HttpAnswer:
        if self._answer is None:
            raise RuntimeError("no request was sent")
        return self._answer

    def _ended(self, error: TransportError | None) -> None:
        self._end_incoming()
        self._connection.finish()
        problem = ""
        if isinstance(error, Disconnected) and self._sent.status != 101:  # after a 101 only this ends the connection
            problem = answer_failure(error)
        if self._consumer is not None:
            self._consumer.on_answered(problem)

    def _end_incoming(self) -> None:
        """Resume reading from the client and drop what it still sends."""
        if self._incoming is not None:
            self._incoming.resume()


def _nothing() -> None:
    """The end of a body with a declared length: nothing is sent."""


class Collected:
    """A short answer, read to its end. More than ``limit`` bytes are left out."""

    def __init__(self, backend: Backend, limit: int) -> None:
        self._done: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._backend = backend
        self._parts: list[bytes] = []
        self._left = limit

    async def read(self) -> bytes:
        self._backend.attach(self)
        try:
            return await self._done
        finally:
            self._backend.abort()

    def on_answer(self, data: bytes) -> None:
        self._parts.append(data[: self._left])
        self._left -= len(data)
        if self._left <= 0:
            self.on_answered("")

    def on_answered(self, problem: str) -> None:
        if not self._done.done():
            if problem:
                self._done.set_exception(Unreachable(problem))
            else:
                self._done.set_result(b"".join(self._parts))

    def on_room(self) -> None:
        """Nothing is sent."""


async def connect(clock: Clock, endpoint: Endpoint, dial_s: float) -> Backend:
    """A connection for one request."""
    address = HttpAddress(endpoint.host, endpoint.port, endpoint.tls, endpoint.server_name)
    dialling = dial(address, clock=clock, limits=_LIMITS)
    try:
        return Backend(await run_within(clock, dial_s, dialling, name="nodes/dial"))
    except TimeoutError:
        raise Unreachable(f"dial tcp {endpoint.authority}: i/o timeout") from None
    except NotDialled as error:
        raise Unreachable(
            dial_failure(error, endpoint.host, endpoint.port, endpoint.server_name or endpoint.host)
        ) from error
