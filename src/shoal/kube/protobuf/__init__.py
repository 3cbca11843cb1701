"""Kubernetes' protobuf encoding: bodies to dicts and back.

``decode`` reads what typed Go clients send, ``encode`` writes what they can read; both speak the JSON form of objects.
``gnostic`` writes the OpenAPI v2 document in the one encoding that Go clients ask for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shoal.kube.protobuf.decoding import MAGIC, decode
    from shoal.kube.protobuf.encoding import encode, encode_message
    from shoal.kube.protobuf.messages import message_name

__all__ = ["MAGIC", "decode", "encode", "encode_message", "message_name"]

_HOMES = {
    "MAGIC": "decoding",
    "decode": "decoding",
    "encode": "encoding",
    "encode_message": "encoding",
    "message_name": "messages",
}


def __getattr__(name: str) -> Any:
    """Loaded when used: every server needs the table of messages, not every one meets protobuf."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)
