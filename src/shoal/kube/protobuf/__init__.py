"""Kubernetes' protobuf encoding of objects.

``decode`` and ``encode`` convert between the bodies of typed Go clients and the JSON form of objects. ``gnostic``
encodes the OpenAPI v2 document, which Go clients request in protobuf.
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
    """Load a module when its name is first used: every server needs ``messages``, few need the codecs."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)
