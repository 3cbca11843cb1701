"""WebSockets to kubelets, for sessions of clients that use another protocol."""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from shoal.apiserver.nodes.backend import Backend, Head, Headers
from shoal.base import websocket
from shoal.base.ids import RandomBytes
from shoal.base.websocket import CloseCode, Decoder, Opcode, WebSocketError

_MASK_BYTES = 4
_KEY_BYTES = 16

Send = Callable[[str, Headers], Awaitable[tuple[Backend, Head]]]  # a request to a kubelet, by path and query


class KubeletListener(Protocol):
    """Receives the messages of a kubelet."""

    def on_message(self, channel: int, data: bytes) -> None: ...

    def on_gone(self, problem: str) -> None: ...

    def on_room(self) -> None:
        """The kubelet keeps up with reading again."""


class UpgradeRefused(Exception):
    """The kubelet did not change the protocol; its answer has begun on ``backend``."""

    def __init__(self, backend: Backend, head: Head) -> None:
        super().__init__(f"invalid upgrade response: status code {head.status}")
        self.backend = backend
        self.head = head


class KubeletSocket:
    """The client's end of a WebSocket with channels."""

    def __init__(self, backend: Backend, subprotocol: str, random_bytes: RandomBytes) -> None:
        self._random_bytes = random_bytes
        self._backend = backend
        self._subprotocol = subprotocol
        self._decoder = Decoder(server=False)
        self._listener: KubeletListener | None = None
        self._closed = False

    @property
    def writable(self) -> bool:
        return self._backend.writable

    @property
    def can_close_channels(self) -> bool:
        return self._subprotocol == websocket.V5

    def attach(self, listener: KubeletListener) -> None:
        self._listener = listener
        self._backend.attach(self)

    def send(self, channel: int, data: bytes) -> None:
        if not self._closed:
            mask = self._random_bytes(_MASK_BYTES)
            self._backend.write(websocket.encode_channel(channel, data, self._subprotocol, mask=mask))

    def pause(self) -> None:
        self._backend.pause()

    def resume(self) -> None:
        self._backend.resume()

    def close(self) -> None:
        """Send a close frame and close the connection."""
        self._listener = None
        if not self._closed:
            self._closed = True
            self._backend.write(websocket.encode_close(mask=self._random_bytes(_MASK_BYTES)))
            self._backend.close()

    def on_answer(self, data: bytes) -> None:
        try:
            for message in self._decoder.feed(data):
                if message.opcode is Opcode.PING:
                    self._backend.write(
                        websocket.encode(Opcode.PONG, message.data, mask=self._random_bytes(_MASK_BYTES))
                    )
                elif message.opcode is Opcode.CLOSE:
                    fine = message.close_code in (CloseCode.NORMAL, CloseCode.NO_STATUS)
                    self._end("" if fine else "the kubelet closed the connection")
                    return
                elif message.opcode is not Opcode.PONG and message.data and self._listener is not None:
                    self._listener.on_message(*websocket.decode_channel(message, self._subprotocol))
        except WebSocketError as error:
            self._end(str(error))

    def on_answered(self, problem: str) -> None:
        self._end(problem)

    def on_room(self) -> None:
        if self._listener is not None:
            self._listener.on_room()

    def _end(self, problem: str) -> None:
        listener = self._listener
        self.close()
        if listener is not None:
            listener.on_gone(problem)


async def open_socket(send: Send, target: str, protocols: Sequence[str], random_bytes: RandomBytes) -> KubeletSocket:
    """A WebSocket to a kubelet; ``UpgradeRefused`` when the kubelet does not upgrade."""
    key = base64.b64encode(random_bytes(_KEY_BYTES))
    headers = [
        (b"connection", b"Upgrade"),
        (b"upgrade", b"websocket"),
        (b"sec-websocket-version", b"13"),
        (b"sec-websocket-key", key),
        (b"sec-websocket-protocol", ", ".join(protocols).encode()),
    ]
    backend, head = await send(target, headers)
    if head.status != 101:
        raise UpgradeRefused(backend, head)
    chosen = head.get(b"sec-websocket-protocol").decode("latin-1") or websocket.V1
    return KubeletSocket(backend, chosen, random_bytes)
