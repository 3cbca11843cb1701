"""One HTTP request as an operation sees it: path, headers, query and a body of bounded size."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl

from shoal.base.asgi_common import Receive, Scope
from shoal.errors import BadRequest, TooLarge


class RestRequest:
    """``correlation`` and ``trace`` are set before anything else happens, ``token`` when the sender is known."""

    __slots__ = ("_headers", "_receive", "accepted_at", "correlation", "method", "path", "scope", "token", "trace")

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self.scope = scope
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.accepted_at = 0  # milliseconds since 1970
        self.correlation = ""
        self.trace = ""
        self.token = ""
        self._headers: list[tuple[bytes, bytes]] = scope["headers"]
        self._receive = receive

    def header(self, name: str) -> str | None:
        """The first header of this name, which is given in lower case; None when there is none."""
        wanted = name.encode()
        for key, value in self._headers:
            if key == wanted:
                return value.decode("latin-1")
        return None

    def cookie(self, name: str) -> str:
        """The value of the first cookie of this name; empty without one."""
        for part in (self.header("cookie") or "").split(";"):
            key, sign, value = part.strip().partition("=")
            if sign and key == name:
                return value.strip('"')
        return ""

    @property
    def query(self) -> list[tuple[str, str]]:
        """The names and values of the query, as often as they are given."""
        text: bytes = self.scope["query_string"]
        return parse_qsl(text.decode("latin-1"), keep_blank_values=True) if text else []

    @property
    def peer(self) -> str:
        """The address that the connection comes from; empty when it is not known."""
        client = self.scope.get("client")
        return str(client[0]) if client else ""

    def bearer(self) -> str:
        """The token of the ``Authorization`` header; empty without one."""
        scheme, _, token = (self.header("authorization") or "").partition(" ")
        return token.strip() if scheme.lower() == "bearer" else ""

    def media_type(self) -> str:
        """The type of the body in lower case, without its parameters."""
        return (self.header("content-type") or "").partition(";")[0].strip().lower()

    async def body(self, limit_bytes: int) -> bytes:
        """The whole body. ``TooLarge`` as soon as it is known to be longer than the limit."""
        declared = self.header("content-length") or ""
        if declared.isdecimal() and int(declared) > limit_bytes:
            raise _too_large(limit_bytes)
        chunks: list[bytes] = []
        size = 0
        while True:
            message: Any = await self._receive()
            if message["type"] == "http.disconnect":
                raise BadRequest("the request ended before its body was complete")
            chunk: bytes = message.get("body", b"")
            size += len(chunk)
            if size > limit_bytes:
                raise _too_large(limit_bytes)
            chunks.append(chunk)
            if not message.get("more_body", False):
                return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def _too_large(limit_bytes: int) -> TooLarge:
    return TooLarge(f"the body is larger than {limit_bytes} bytes")
