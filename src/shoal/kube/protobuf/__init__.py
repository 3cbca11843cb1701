"""Kubernetes' protobuf encoding: bodies to dicts and back.

``decode`` reads what typed Go clients send, ``encode`` writes what they can read; both speak the JSON form of objects.
``gnostic`` writes the OpenAPI v2 document in the one encoding that Go clients ask for.
"""

from __future__ import annotations

from shoal.kube.protobuf.decoding import MAGIC, decode, decode_message
from shoal.kube.protobuf.encoding import encode, encode_message
from shoal.kube.protobuf.messages import message_name

__all__ = ["MAGIC", "decode", "decode_message", "encode", "encode_message", "message_name"]
