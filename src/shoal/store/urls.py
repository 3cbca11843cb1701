"""The URLs of stores: how they begin, and how messages show them."""

from __future__ import annotations

import re
from typing import Final

SQLITE: Final = "sqlite:///"  # followed by the path
POSTGRES: Final = ("postgresql://", "postgres://")
_SECRET: Final = re.compile(r"([?&](?:ssl)?password=)[^&]*")


def shown(url: str) -> str:
    """The URL without passwords, for messages."""
    if not url.startswith(POSTGRES):
        return url
    head, at, tail = url.rpartition("@")
    scheme, slashes, credentials = head.rpartition("//")
    user, colon, _ = credentials.partition(":")
    hidden = f"{scheme}{slashes}{user}{colon and ':***'}@{tail}" if at else url
    return _SECRET.sub(r"\1***", hidden)
