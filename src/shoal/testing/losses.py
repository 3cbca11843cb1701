"""A transport whose watches lose events for good, for tests of what a missed event leads to.

    lossy = LossyTransport(server.transport)
    lossy.losing = True         # from now on events of watches are lost, while requests work
    ...
    lossy.losing = False        # later events arrive; the lost ones do not come again

A bookmark arrives in the place of a lost event, so that the client believes that it has seen that revision and a new
watch does not repeat the event.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

import orjson

from shoal.client.transport import Reply, StreamReply, Transport


class LossyTransport:
    """Passes everything on to another transport; ``lost`` counts the events that it did not pass on."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self.losing = False
        self.lost = 0

    @property
    def transport(self) -> Transport:
        """For ``running``, in the place of a server."""
        return self

    async def request(
        self, method: str, target: str, *, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> Reply:
        return await self._inner.request(method, target, headers=headers, body=body)

    async def stream(
        self, method: str, target: str, *, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> StreamReply:
        return _LossyStream(await self._inner.stream(method, target, headers=headers, body=body), self)

    async def close(self) -> None:
        await self._inner.close()


class _LossyStream:
    def __init__(self, inner: StreamReply, by: LossyTransport) -> None:
        self._inner = inner
        self._by = by
        self.status = inner.status
        self.headers = inner.headers

    async def chunks(self) -> AsyncIterator[bytes]:
        rest = b""
        async for chunk in self._inner.chunks():
            if not self._by.losing and not rest:
                yield chunk
                continue
            *lines, rest = (rest + chunk).split(b"\n")
            if lines:
                yield b"".join(self._passed(line) + b"\n" for line in lines)

    def _passed(self, line: bytes) -> bytes:
        event = orjson.loads(line)
        if not self._by.losing or event["type"] not in ("ADDED", "MODIFIED", "DELETED"):
            return line
        self._by.lost += 1
        found = event["object"]
        about = {"resourceVersion": found["metadata"]["resourceVersion"]}
        bookmark = {"kind": found.get("kind", ""), "apiVersion": found.get("apiVersion", ""), "metadata": about}
        return orjson.dumps({"type": "BOOKMARK", "object": bookmark})

    async def close(self) -> None:
        await self._inner.close()
