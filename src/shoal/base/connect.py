"""Calls of the Connect protocol with protobuf messages, over ``shoal.base.http2``: unary ones, and streams both ways.

    unary     application/proto            message ──▶ message, or JSON with code and text
    stream    application/connect+proto    flags (1) │ length (4) │ message, again and again, both ways;
                                           the last one is JSON and may carry an error

Answers may be compressed with gzip; requests only in streams that set ``gzip``.
"""

from __future__ import annotations

import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import suppress
from struct import Struct
from typing import Protocol, Self, TypeVar

import orjson

from shoal.base.http2 import Http2Link, Http2Stream, LinkError, PeerReset
from shoal.base.tasks import OwnedTasks, cancel_all
from shoal.errors import ShoalError

_ENVELOPE = Struct(">BI")
_COMPRESSED, _END = 1, 2
_GZIP_BITS = 31  # a window of 32 KB, in gzip's format
_MAX_ERROR_BYTES = 64 << 10
_CANCEL, _REFUSED, _CALM = 8, 7, 11  # HTTP/2's reasons of a reset
_RESETS = {_CANCEL: "canceled", _REFUSED: "unavailable", _CALM: "resource_exhausted"}
# The meaning of HTTP statuses without a Connect error, for example from a proxy
_STATUSES = {
    400: "internal", 401: "unauthenticated", 403: "permission_denied", 404: "unimplemented", 408: "deadline_exceeded",
    429: "unavailable", 502: "unavailable", 503: "unavailable", 504: "unavailable",
}  # fmt: skip


class CallFailed(ShoalError):
    """``code`` is one of Connect's, in its own spelling: ``unauthenticated``, ``not_found``, ``unavailable``…"""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message or code)
        self.code = code


class NoAnswer(CallFailed):
    """The other side cannot be reached, or the connection broke before it had answered."""


class Message(Protocol):
    def to_binary(self) -> bytes: ...

    @classmethod
    def from_binary(cls, data: bytes) -> Self: ...


Answer = TypeVar("Answer", bound=Message)


class ConnectClient:
    """Calls to one service. ``max_bytes`` limits one message."""

    def __init__(self, link: Http2Link, service: str, *, user_agent: str, max_bytes: int) -> None:
        self._link = link
        self._prefix = f"/{service}/"
        self._user_agent = user_agent
        self._max_bytes = max_bytes

    async def call(
        self, method: str, request: Message, answer: type[Answer], headers: Mapping[str, str], timeout_ms: int = 0
    ) -> Answer:
        """``timeout_ms`` is sent to the other side; the caller enforces the limit."""
        kinds = {"content-type": "application/proto", "accept-encoding": "gzip"}
        if timeout_ms:
            kinds["connect-timeout-ms"] = str(timeout_ms)
        stream = await self._open(method, {**kinds, **headers})
        try:
            with suppress(LinkError):  # the server may have answered before the end of the request; the answer says why
                await stream.send(request.to_binary(), end=True)
            status, found = await stream.head()
            body = await self._whole(stream, self._max_bytes)
            if found.get("content-encoding") == "gzip":
                body = _plain(body, self._max_bytes)
            if status != 200:
                raise _failure(status, found, body)
            return _decoded(answer, body)
        except LinkError as error:
            raise _broken(error) from None
        finally:
            stream.close()

    async def stream(
        self,
        method: str,
        requests: AsyncIterator[Message],
        answer: type[Answer],
        headers: Mapping[str, str],
        *,
        gzip: Callable[[bytes], bytes] | None = None,
    ) -> AsyncGenerator[Answer, None]:
        """The messages of the other side until it ends the stream. ``requests`` are sent at the same time, compressed
        by ``gzip``."""
        kinds = {"content-type": "application/connect+proto", "connect-accept-encoding": "gzip"}
        if gzip is not None:
            kinds["connect-content-encoding"] = "gzip"
        stream = await self._open(method, {**kinds, **headers})
        sender = OwnedTasks().start(_send_all(stream, requests, gzip), name=f"connect/{method}", awaited=True)
        try:
            status, found = await stream.head()
            if status != 200:
                raise _failure(status, found, await self._whole(stream, _MAX_ERROR_BYTES))
            buffer = bytearray()
            while piece := await stream.receive():
                buffer += piece
                while (taken := self._take(buffer)) is not None:
                    flags, content = taken
                    if flags & _END:
                        _raise_error(content)
                        return
                    yield _decoded(answer, content)
            raise NoAnswer("unavailable", "the stream ended in the middle of a message")
        except LinkError as error:
            raise _broken(error) from None
        finally:
            await cancel_all(sender)
            stream.close()

    async def _open(self, method: str, headers: Mapping[str, str]) -> Http2Stream:
        named = [(":method", "POST"), (":path", self._prefix + method), ("user-agent", self._user_agent)]
        try:
            return await self._link.open([*named, ("connect-protocol-version", "1"), *headers.items()])
        except LinkError as error:
            raise _broken(error) from None

    def _take(self, buffer: bytearray) -> tuple[int, bytes] | None:
        """The next message that is there as a whole, taken out of the buffer."""
        if len(buffer) < _ENVELOPE.size:
            return None
        flags, length = _ENVELOPE.unpack_from(buffer)
        if flags & ~(_COMPRESSED | _END):
            raise CallFailed("internal", f"unknown flags {flags} in a stream message")
        if length > self._max_bytes:
            raise CallFailed("resource_exhausted", f"message too large: {length} bytes, limit {self._max_bytes}")
        end = _ENVELOPE.size + length
        if len(buffer) < end:
            return None
        content = bytes(memoryview(buffer)[_ENVELOPE.size : end])
        del buffer[:end]
        return flags, _plain(content, self._max_bytes) if flags & _COMPRESSED else content

    @staticmethod
    async def _whole(stream: Http2Stream, max_bytes: int) -> bytes:
        parts, size = [], 0
        while piece := await stream.receive():
            parts.append(piece)
            size += len(piece)
            if size > max_bytes:
                raise CallFailed("resource_exhausted", f"response too large: more than {max_bytes} bytes")
        return b"".join(parts)


async def _send_all(
    stream: Http2Stream, requests: AsyncIterator[Message], gzip: Callable[[bytes], bytes] | None
) -> None:
    """To the end of ``requests``. When they fail, so does the stream."""
    flags = 0 if gzip is None else _COMPRESSED
    try:
        async for request in requests:
            content = request.to_binary() if gzip is None else gzip(request.to_binary())
            await stream.send(_ENVELOPE.pack(flags, len(content)) + content)
        await stream.send(b"", end=True)
    except LinkError:
        return  # the receiver gets the error
    except Exception as error:
        stream.abandon(LinkError(f"sending requests failed: {error}"))
        raise


def _plain(content: bytes, max_bytes: int) -> bytes:
    """Decompress gzip up to the size limit."""
    unpacking = zlib.decompressobj(_GZIP_BITS)
    try:
        plain = unpacking.decompress(content, max_bytes)
    except zlib.error as error:
        raise CallFailed("internal", f"the response cannot be decompressed: {error}") from None
    if unpacking.unconsumed_tail:
        raise CallFailed("resource_exhausted", f"response too large: more than {max_bytes} bytes")
    if not unpacking.eof:
        raise CallFailed("internal", "the response cannot be decompressed: it is truncated")
    return plain


def _decoded(answer: type[Answer], content: bytes) -> Answer:
    try:
        return answer.from_binary(content)
    except Exception as error:  # the protobuf library raises various errors for invalid messages
        raise CallFailed("internal", f"the response is not a {answer.__name__}: {error}") from None


def _raise_error(content: bytes) -> None:
    """Raise the error in the last message of a stream, if any."""
    error = _parsed(content).get("error")
    if isinstance(error, dict):
        raise CallFailed(str(error.get("code") or "unknown"), str(error.get("message") or ""))


def _failure(status: int, headers: Mapping[str, str], body: bytes) -> CallFailed:
    found = _parsed(body) if headers.get("content-type", "").startswith("application/json") else {}
    code = str(found.get("code") or _STATUSES.get(status, "unknown"))
    return CallFailed(code, str(found.get("message") or f"the response has status {status}"))


def _parsed(content: bytes) -> dict[str, object]:
    with suppress(orjson.JSONDecodeError):
        found = orjson.loads(content or b"{}")
        if isinstance(found, dict):
            return found
    return {}


def _broken(error: LinkError) -> CallFailed:
    if isinstance(error, PeerReset):
        return CallFailed(_RESETS.get(error.code, "internal"), str(error))
    return NoAnswer("unavailable", str(error))
