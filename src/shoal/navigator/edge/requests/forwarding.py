"""HTTP to a port of a pod through the API server: a WebSocket with the channels of Kubernetes' port-forward.

It reaches ports on the pod's own loopback, such as the admin interface of a sidecar, and needs no program in the pod.
Each call has its own connection.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from urllib.parse import urlsplit

from shoal.base import websocket
from shoal.base.clock import Clock
from shoal.base.http1.answer import HttpAnswer
from shoal.base.http1.channel import fetch_over
from shoal.base.http1.dial import HttpAddress, dial
from shoal.base.http1.errors import AnswerTooLarge, Disconnected, InvalidAnswer, TransportError
from shoal.base.http1.limits import AnswerLimits
from shoal.base.http1.messages import request_bytes
from shoal.base.websocket import Decoder, Opcode, WebSocketError, decode_channel, encode, encode_channel
from shoal.client import AccessConfig, builtin
from shoal.client.client import error_of
from shoal.client.credentials import Credentials, credentials_of, tls_context
from shoal.errors import BadRequest, ServiceUnavailable, TooLarge

_SUBPROTOCOL = websocket.V4
_DATA, _ERROR = 0, 1  # of the first port
_LIMITS = AnswerLimits(body_bytes=256 * 1024 * 1024)
_CONNECT_S = 10.0


class PortForward:
    """Ports of pods of one cluster, as one user. ``random_bytes`` is for keys and masks."""

    def __init__(
        self,
        access: AccessConfig,
        *,
        clock: Clock,
        random_bytes: Callable[[int], bytes],
        credentials: Credentials | None = None,
    ) -> None:
        self._access = access
        self._clock = clock
        self._random_bytes = random_bytes
        self._credentials = credentials or credentials_of(access, clock=clock)

    async def get(self, namespace: str, pod: str, port: int, path: str) -> bytes:
        """The body of an HTTP answer of that port."""
        what = f"port {port} of {namespace}/{pod}"
        answer = await self._forwarded(namespace, pod, port)
        try:
            channel = _PortChannel(answer, what, self._random_bytes)
            request = request_bytes("GET", path, [("host", "localhost"), ("connection", "close")])
            return await self._exchange(channel, request, what)
        finally:
            await answer.close()

    async def _exchange(self, channel: _PortChannel, request: bytes, what: str) -> bytes:
        try:
            reply = await fetch_over(channel, request, peer=what, clock=self._clock, limits=_LIMITS)
        except AnswerTooLarge as error:
            raise TooLarge(str(error)) from error
        except InvalidAnswer as error:
            raise BadRequest(str(error)) from error
        except Disconnected as error:
            raise ServiceUnavailable(str(error)) from error
        if reply.status != 200:
            raise ServiceUnavailable(f"{what} answered {reply.status}")
        return reply.body

    async def _forwarded(self, namespace: str, pod: str, port: int) -> HttpAnswer:
        """The answer to the upgrade, which carries the port from then on."""
        parts = urlsplit(self._access.url)
        identity = await self._credentials.identity()
        secure = parts.scheme == "https"
        host = parts.hostname or ""
        address = HttpAddress(
            host,
            parts.port or (443 if secure else 80),
            tls_context(self._access, identity) if secure else None,
            self._access.tls_server_name or host,
            proxy=self._access.proxy(),
        )
        path = parts.path.rstrip("/") + builtin("pods").path(namespace, pod, "portforward")
        key = base64.b64encode(self._random_bytes(16)).decode()
        headers = [
            ("host", parts.netloc.rpartition("@")[2]),
            ("connection", "Upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", key),
            ("sec-websocket-protocol", _SUBPROTOCOL),
            *self._access.headers,
        ]
        if identity.authorization:
            headers.append(("authorization", identity.authorization))
        connection = await dial(address, clock=self._clock, connect_s=_CONNECT_S, peer=self._access.url)
        try:
            request = request_bytes("GET", f"{path}?ports={port}", headers)
            answer = await connection.stream(request, upgrade=True)
            if answer.status != 101:
                raise error_of(answer.status, answer.headers, await answer.body())
            if answer.headers.get("sec-websocket-accept") != websocket.accept_key(key):
                raise ServiceUnavailable("the API server's answer to the upgrade does not match the request")
        except BaseException:
            connection.abort()
            raise
        return answer


class _PortChannel:
    """The bytes of a forwarded port, out of and into the messages of a WebSocket."""

    def __init__(self, answer: HttpAnswer, what: str, random_bytes: Callable[[int], bytes]) -> None:
        self._answer = answer
        self._what = what
        self._random_bytes = random_bytes
        self._decoder = Decoder(server=False)
        self._greeted: set[int] = set()  # the first message of a channel names its port
        self._closed = False

    async def write(self, data: bytes) -> None:
        frame = encode_channel(_DATA, data, _SUBPROTOCOL, mask=self._random_bytes(4))
        await self._answer.connection.send(frame)

    async def read(self) -> bytes:
        """The next bytes of the port; empty at the end."""
        while not self._closed:
            try:
                received = await self._answer.read()
            except TransportError as error:
                raise ServiceUnavailable(f"{self._what}: {error}") from error
            if not received:
                break
            if data := b"".join(self._content(message) for message in self._messages(received)):
                return data
        return b""

    def _messages(self, data: bytes) -> list[websocket.Message]:
        try:
            return self._decoder.feed(data)
        except WebSocketError as error:
            raise ServiceUnavailable(f"the API server broke the WebSocket protocol: {error}") from error

    def _content(self, message: websocket.Message) -> bytes:
        """What a message brings of the port's data."""
        if message.opcode is Opcode.CLOSE:
            self._closed = True
        elif message.opcode is Opcode.PING:
            self._answer.connection.write(encode(Opcode.PONG, message.data, mask=self._random_bytes(4)))
        if self._closed or message.opcode not in (Opcode.BINARY, Opcode.TEXT):
            return b""
        channel, content = decode_channel(message, _SUBPROTOCOL)
        if channel not in self._greeted:
            self._greeted.add(channel)
            content = content[2:]
        if channel == _ERROR and content:
            raise ServiceUnavailable(f"{self._what}: {content.decode(errors='replace').strip()}")
        return content if channel == _DATA else b""
