"""Encoded events: all receivers get the same bytes, so they are encoded once."""

from __future__ import annotations

from typing import Any

from connectrpc.codec import Codec, proto_binary_codec, proto_json_codec

from shoal.wire.fleet.v1 import cluster_pb as pb


class PreparedEvent:
    """Stands for a ``WatchEvent`` on its way out."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data


class _Binary:
    def __init__(self) -> None:
        self._plain: Codec[Any, Any] = proto_binary_codec()

    def name(self) -> str:
        return self._plain.name()

    def encode(self, message: Any) -> bytes:
        return message.data if type(message) is PreparedEvent else self._plain.encode(message)

    def decode(self, data: bytes | bytearray, message_class: type[Any]) -> Any:
        return self._plain.decode(data, message_class)


class _Json:
    """For users of curl: an unknown field is an error."""

    def __init__(self) -> None:
        self._plain: Codec[Any, Any] = proto_json_codec(ignore_unknown_fields=False)

    def name(self) -> str:
        return self._plain.name()

    def encode(self, message: Any) -> bytes:
        if type(message) is PreparedEvent:
            message = pb.WatchEvent.from_binary(message.data)
        return self._plain.encode(message)

    def decode(self, data: bytes | bytearray, message_class: type[Any]) -> Any:
        return self._plain.decode(data, message_class)


def codecs() -> list[Codec[Any, Any]]:
    return [_Binary(), _Json()]
