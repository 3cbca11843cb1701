"""WebSocket (RFC 6455) and the channels that Kubernetes puts on it, as pure code: bytes in, messages out.

Owns the handshake's arithmetic, frames in both roles, and the protocols of exec, attach and port-forward: a message's
first byte names its channel. The owner of the socket feeds ``Decoder`` and sends the output of ``encode``. There are no
extensions.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import Any

from shoal.errors import ShoalError

_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_CONTROL_LIMIT = 125
_TRANSLATED_BYTES = 8 * 1024
MESSAGE_LIMIT = 32 * 1024 * 1024


class Opcode(IntEnum):
    CONTINUATION = 0
    TEXT = 1
    BINARY = 2
    CLOSE = 8
    PING = 9
    PONG = 10


class CloseCode(IntEnum):
    NORMAL = 1000
    GOING_AWAY = 1001
    PROTOCOL_ERROR = 1002
    NO_STATUS = 1005  # never sent: there was none
    INVALID_DATA = 1007
    TOO_BIG = 1009
    INTERNAL = 1011


class WebSocketError(ShoalError):
    """The other side violated the protocol; ``code`` is for the close frame."""

    def __init__(self, code: CloseCode, message: str) -> None:
        super().__init__(message)
        self.code = code


# handshake


def accept_key(key: str) -> str:
    """The ``Sec-WebSocket-Accept`` that answers a ``Sec-WebSocket-Key``."""
    return base64.b64encode(hashlib.sha1(key.encode("ascii") + _GUID, usedforsecurity=False).digest()).decode("ascii")


def is_key(key: str) -> bool:
    """Whether a key is 16 bytes in base64."""
    try:
        return len(base64.b64decode(key, validate=True)) == 16
    except ValueError:
        return False


def offered(header: str) -> list[str]:
    """The subprotocols of a ``Sec-WebSocket-Protocol`` header, in the client's order."""
    return [part.strip() for part in header.split(",") if part.strip()]


def choose(wanted: Iterable[str], supported: Sequence[str]) -> str | None:
    """The first of the client's subprotocols that is supported."""
    return next((each for each in wanted if each in supported), None)


# frames


@dataclass(frozen=True, slots=True)
class Message:
    """A whole message, or a control frame."""

    opcode: Opcode
    data: bytes

    @property
    def close_code(self) -> int:
        """Of a close frame."""
        return int.from_bytes(self.data[:2], "big") if len(self.data) >= 2 else CloseCode.NO_STATUS


def encode(opcode: Opcode, data: bytes, *, mask: bytes = b"") -> bytes:
    """One frame that is a whole message. Clients give four random bytes as ``mask``, servers none."""
    size = len(data)
    bit = 0x80 if mask else 0
    head = bytearray((0x80 | opcode,))
    if size < 126:
        head.append(bit | size)
    elif size < 65536:
        head.append(bit | 126)
        head += size.to_bytes(2, "big")
    else:
        head.append(bit | 127)
        head += size.to_bytes(8, "big")
    return bytes(head) + mask + masked(data, mask) if mask else bytes(head) + data


def encode_close(code: CloseCode = CloseCode.NORMAL, reason: str = "", *, mask: bytes = b"") -> bytes:
    text = reason.encode()[: _CONTROL_LIMIT - 2].decode(errors="ignore").encode()
    return encode(Opcode.CLOSE, int(code).to_bytes(2, "big") + text, mask=mask)


def masked(data: bytes, mask: bytes) -> bytes:
    """Apply or take off a mask: one operation on large numbers, not one per byte. From some size on four translations,
    each of every fourth byte, are quicker."""
    size = len(data)
    if not size:
        return data
    if size >= _TRANSLATED_BYTES:
        translated = bytearray(data)
        for at in range(4):
            translated[at::4] = translated[at::4].translate(_xor_table(mask[at]))
        return bytes(translated)
    pattern = mask * (size // 4 + 1)
    return (int.from_bytes(data, "big") ^ int.from_bytes(pattern[:size], "big")).to_bytes(size, "big")


@lru_cache(maxsize=256)
def _xor_table(key: int) -> bytes:
    return bytes(key ^ byte for byte in range(256))


class Decoder:
    """Makes messages of a stream of bytes in pieces of any size. ``server``: the other side is a client and masks."""

    def __init__(self, *, server: bool, limit: int = MESSAGE_LIMIT) -> None:
        self._server = server
        self._limit = limit
        self._buffer = bytearray()
        self._begun = bytearray()  # a message that comes in several frames; there may be very many, and empty ones
        self._opcode: Opcode | None = None  # of that message

    def feed(self, data: bytes) -> list[Message]:
        """The messages that are complete by now. After ``WebSocketError`` the stream cannot be used."""
        self._buffer += data
        found: list[Message] = []
        while (frame := self._frame()) is not None:
            message = self._assemble(*frame)
            if message is not None:
                found.append(message)
        return found

    def _frame(self) -> tuple[bool, Opcode, bytes] | None:
        buffer = self._buffer
        if len(buffer) < 2:
            return None
        first, second = buffer[0], buffer[1]
        opcode = self._checked(first, second)
        size, start = second & 0x7F, 2
        if size >= 126:
            start = 4 if size == 126 else 10
            if len(buffer) < start:
                return None
            size = int.from_bytes(buffer[2:start], "big")
        self._check_size(opcode, size)
        mask_size = 4 if self._server else 0
        end = start + mask_size + size
        if len(buffer) < end:
            return None
        data = bytes(buffer[start + mask_size : end])
        if mask_size:
            data = masked(data, bytes(buffer[start : start + 4]))
        del buffer[:end]
        return bool(first & 0x80), opcode, data

    def _checked(self, first: int, second: int) -> Opcode:
        if first & 0x70:
            raise WebSocketError(CloseCode.PROTOCOL_ERROR, "a reserved bit is set")
        if bool(second & 0x80) != self._server:
            what = "is not masked" if self._server else "is masked"
            raise WebSocketError(CloseCode.PROTOCOL_ERROR, f"a frame {what}")
        try:
            opcode = Opcode(first & 0x0F)
        except ValueError:
            raise WebSocketError(CloseCode.PROTOCOL_ERROR, f"unknown opcode {first & 0x0F}") from None
        if opcode >= Opcode.CLOSE and not first & 0x80:
            raise WebSocketError(CloseCode.PROTOCOL_ERROR, "a control frame is fragmented")
        return opcode

    def _check_size(self, opcode: Opcode, size: int) -> None:
        if opcode >= Opcode.CLOSE and size > _CONTROL_LIMIT:
            raise WebSocketError(CloseCode.PROTOCOL_ERROR, "a control frame is too long")
        if size + len(self._begun) > self._limit:
            raise WebSocketError(CloseCode.TOO_BIG, f"a message is longer than {self._limit} bytes")

    def _assemble(self, final: bool, opcode: Opcode, data: bytes) -> Message | None:
        if opcode >= Opcode.CLOSE:
            return Message(opcode, data)
        if (opcode is Opcode.CONTINUATION) != (self._opcode is not None):
            raise WebSocketError(CloseCode.PROTOCOL_ERROR, "frames of different messages are interleaved")
        if self._opcode is None:
            if final:
                return Message(opcode, data)
            self._opcode = opcode
        self._begun += data
        if not final:
            return None
        whole, kind = bytes(self._begun), self._opcode
        self._begun.clear()
        self._opcode = None
        return Message(kind, whole)


# Kubernetes' channels


class Channel(IntEnum):
    """Of exec and attach."""

    STDIN = 0
    STDOUT = 1
    STDERR = 2
    ERROR = 3
    RESIZE = 4
    CLOSE = 255  # v5: the next byte names the channel that the client closes


V5 = "v5.channel.k8s.io"
V4 = "v4.channel.k8s.io"
V4_BASE64 = "v4.base64.channel.k8s.io"
V1 = "channel.k8s.io"
V1_BASE64 = "base64.channel.k8s.io"
REMOTE_COMMAND = (V5, V4, V4_BASE64, V1, V1_BASE64)
PORT_FORWARD = (V4, V4_BASE64, V5)


def is_base64(subprotocol: str) -> bool:
    """Whether messages are text: the channel as a digit, the rest in base64."""
    return subprotocol in (V4_BASE64, V1_BASE64)


def encode_channel(channel: int, data: bytes, subprotocol: str, *, mask: bytes = b"") -> bytes:
    """A frame with data of a channel."""
    if is_base64(subprotocol):
        return encode(Opcode.TEXT, str(channel).encode() + base64.b64encode(data), mask=mask)
    return encode(Opcode.BINARY, bytes((channel,)) + data, mask=mask)


def decode_channel(message: Message, subprotocol: str) -> tuple[int, bytes]:
    """The channel of a message, and its data."""
    if not message.data:
        raise WebSocketError(CloseCode.INVALID_DATA, "a message has no channel number")
    if not is_base64(subprotocol):
        return message.data[0], message.data[1:]
    try:
        return int(message.data[:1]), base64.b64decode(message.data[1:], validate=True)
    except ValueError:
        raise WebSocketError(CloseCode.INVALID_DATA, "a message is not valid base64") from None


def decode_size(data: bytes) -> tuple[int, int] | None:
    """Width and height from a message of the RESIZE channel; None when it cannot be read."""
    try:
        found = json.loads(data)
        return int(found["Width"]), int(found["Height"])
    except (ValueError, TypeError, KeyError):
        return None


def exit_status(code: int) -> dict[str, Any]:
    """The message on the ERROR channel when a command has ended."""
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"command terminated with non-zero exit code: command terminated with exit code {code}",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }


def failure_status(message: str) -> dict[str, Any]:
    """The message on the ERROR channel when a command could not be run."""
    return {"metadata": {}, "status": "Failure", "message": message, "reason": "InternalError", "code": 500}


def error_message(status: dict[str, Any], subprotocol: str) -> bytes:
    """The text of the ERROR channel: a Status from v4 on, words before."""
    if subprotocol in (V1, V1_BASE64):
        return b"" if status["status"] == "Success" else str(status["message"]).encode()
    return json.dumps(status, separators=(",", ":")).encode()
