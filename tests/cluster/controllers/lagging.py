"""A server whose watches are late: controllers see their own writes only after a delay."""

from __future__ import annotations

import asyncio


class _LateReply:
    def __init__(self, inner, lag_s):
        self._inner, self._lag_s = inner, lag_s
        self.status, self.headers = inner.status, inner.headers

    async def chunks(self):
        async for chunk in self._inner.chunks():
            await asyncio.sleep(self._lag_s)
            yield chunk

    async def close(self):
        await self._inner.close()


class Lagging:
    """Stands in for a server; give it to ``running``. ``plurals`` are the resources whose watches are late."""

    def __init__(self, server, lag_s, *plurals):
        self.transport, self._inner, self._lag_s, self._plurals = self, server.transport, lag_s, plurals

    async def request(self, method, target, **options):
        return await self._inner.request(method, target, **options)

    async def stream(self, method, target, **options):
        reply = await self._inner.stream(method, target, **options)
        late = any(f"/{plural}?" in target for plural in self._plurals)
        return _LateReply(reply, self._lag_s) if late else reply

    async def close(self):
        pass
