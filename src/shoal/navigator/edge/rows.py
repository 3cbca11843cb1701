"""Reported rows: their keys and sizes, and what receives them. Pure."""

from __future__ import annotations

from typing import Protocol

import orjson

TOO_LARGE = "navigator.shoal.dev/too-large"
_ENVELOPE = 512  # of a row's message, beside kind, key and data


class RowSink(Protocol):
    """Receives rows and statuses."""

    def put(self, kind: str, key: str, data: bytes) -> object: ...

    def remove(self, kind: str, key: str) -> object: ...

    def ready(self, kind: str) -> object: ...

    def status(self, kind: str, state: str, error: str) -> object: ...


def key_of(namespace: str, name: str) -> str:
    return f"{namespace}/{name}" if namespace else name


def fitting(data: bytes, limit: int) -> bytes:
    """The data; when it is larger than ``limit``, a stub with the identity of the object."""
    if len(data) <= limit:
        return data
    obj = orjson.loads(data)
    metadata = {name: obj["metadata"][name] for name in ("name", "namespace", "uid") if name in obj["metadata"]}
    metadata["annotations"] = {TOO_LARGE: str(len(data))}
    stub = {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "metadata": metadata}
    return orjson.dumps(stub, option=orjson.OPT_SORT_KEYS)


def size_of(kind: str, key: str, data: bytes) -> int:
    """An upper bound of the size of a row in a message."""
    return len(data) + len(kind) + 4 * len(key) + 32


def largest_row(message_bytes: int) -> int:
    """The largest data of a row that fits into a message of this size."""
    return message_bytes - 8 * 1024 - _ENVELOPE
