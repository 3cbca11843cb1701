"""How requests leave a client: over the network, or straight into a server in this process.

Everything above this seam (verbs, watches, informers) is the same for both, and tests run on both.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Protocol

from shoal.base.http1.messages import HttpReply as Reply

__all__ = ["Reply", "StreamReply", "Transport"]


class StreamReply(Protocol):
    """An answer that arrives in pieces. ``status`` and ``headers`` are there at once; errors have a short body."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    def chunks(self) -> AsyncIterator[bytes]:
        """Pieces of the body as they arrive; ends when the server ends the stream."""

    async def close(self) -> None:
        """Close the stream; safe to call more than once and while ``chunks`` is being read."""


class Transport(Protocol):
    """Sends requests. ``target`` is path and query; the transport adds credentials."""

    async def request(
        self, method: str, target: str, *, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> Reply: ...

    async def stream(
        self, method: str, target: str, *, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> StreamReply: ...

    async def close(self) -> None: ...
