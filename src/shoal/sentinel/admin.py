"""Envoy's administration over its Unix socket: a few requests of HTTP/1.1, each on a connection of its own."""

from __future__ import annotations

import asyncio
from pathlib import Path

from shoal.base.clock import Clock
from shoal.base.deadline import within

_TIMEOUT_S = 5.0
_ACTIVE = r"^http\.[^.]+\.downstream_rq_active$"


class Admin:
    def __init__(self, socket: Path, *, clock: Clock) -> None:
        self._socket = socket
        self._clock = clock

    async def get(self, target: str) -> bytes | None:
        """The body of a good answer; None when Envoy is not there or refuses."""
        return await self._ask("GET", target)

    async def post(self, target: str) -> bool:
        return await self._ask("POST", target) is not None

    async def active_requests(self) -> int:
        """How many are under way; 0 also when nobody answers."""
        body = await self.get(f"/stats?filter={_ACTIVE}") or b""
        return sum(int(line.rpartition(b":")[2]) for line in body.splitlines() if b":" in line)

    async def _ask(self, method: str, target: str) -> bytes | None:
        try:
            async with within(self._clock, _TIMEOUT_S):
                return await self._exchange(method, target)
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            return None

    async def _exchange(self, method: str, target: str) -> bytes | None:
        reader, writer = await asyncio.open_unix_connection(str(self._socket))
        try:
            head = f"{method} {target} HTTP/1.1\r\nhost: admin\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
            writer.write(head.encode())
            headers = await reader.readuntil(b"\r\n\r\n")
            body = await reader.read()
        finally:
            writer.close()
        lines = headers.lower().split(b"\r\n")
        if b"transfer-encoding: chunked" in lines:
            body = _joined(body)
        return body if lines[0].split(b" ")[1] == b"200" else None


def _joined(body: bytes) -> bytes:
    """The content of chunks."""
    found, at = [], 0
    while at < len(body):
        end = body.index(b"\r\n", at)
        size = int(body[at:end].split(b";")[0], 16)
        if size == 0:
            break
        found.append(body[end + 2 : end + 2 + size])
        at = end + 2 + size + 2
    return b"".join(found)
