"""Reads through the proxy: lists and watches of sharded kinds show the shard's share, everything else what there is.

A watch that goes on while slots move would show a part of the truth: the objects that came with a slot existed before,
and nothing happens to them. So a move ends the watches of sharded kinds with 410, which makes every client list again,
and a watch is refused the same way when the list it follows was of another share.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from urllib.parse import parse_qsl, urlencode

import orjson

from shoal.base.tasks import cancel_all
from shoal.client import Client
from shoal.client.transport import StreamReply
from shoal.sharding.model import SLOTS, slot_label, slot_selector

_REMEMBERED = 50_000
_NOBODY = "none"  # no object has this for a slot

GONE = {
    "type": "ERROR",
    "object": {
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "Expired", "code": 410,
        "message": "the shard's slots have changed: list again",
    },
}  # fmt: skip


class VisibleSlots:
    """Which slots are shown now. Each change is a new *generation*; versions that a client was told in one are no place
    to go on from in another."""

    def __init__(self, config: str) -> None:
        self._config = config
        self._slots: frozenset[int] = frozenset()
        self._told: OrderedDict[str, int] = OrderedDict()  # resourceVersion -> generation
        self._changed = asyncio.Event()
        self.generation = 0

    def set(self, slots: frozenset[int]) -> None:
        if slots != self._slots:
            self._slots = slots
            self.generation += 1
            self._changed.set()
            self._changed = asyncio.Event()

    async def change(self) -> None:
        """Return at the next change."""
        await self._changed.wait()

    def tell(self, version: str, generation: int) -> None:
        self._told[version] = generation
        self._told.move_to_end(version)
        if len(self._told) > _REMEMBERED:
            self._told.popitem(last=False)

    def continues(self, version: str) -> bool:
        """Whether a watch may go on from a version; not when it is not known in which generation it was told."""
        return version in ("", "0") or self._told.get(version) == self.generation

    def narrowed(self, query: str) -> str:
        """The query of a list or a watch, for the share alone."""
        params = parse_qsl(query, keep_blank_values=True)
        label = slot_label(self._config)
        if not self._slots:
            share = f"{label}={_NOBODY}"
        elif len(self._slots) == SLOTS:
            share = label
        else:
            share = slot_selector(self._config, self._slots)
        asked = [value for name, value in params if name == "labelSelector" and value]
        others = [(name, value) for name, value in params if name != "labelSelector"]
        return urlencode([*others, ("labelSelector", ",".join([*asked, share]))])


async def narrowed_watch(client: Client, path: str, query: str, share: VisibleSlots) -> AsyncGenerator[bytes, None]:
    """The lines of a watch, until it ends or the share changes."""
    version = dict(parse_qsl(query)).get("resourceVersion", "")
    if not share.continues(version):
        yield orjson.dumps(GONE) + b"\n"
        return
    generation, changing = share.generation, asyncio.create_task(share.change(), name="proxy/share")
    reply: StreamReply | None = None
    try:
        reply = await client.stream("GET", f"{path}?{share.narrowed(query)}")
        yield b""  # it has begun
        lines = _lines(reply)
        while share.generation == generation:
            following = asyncio.ensure_future(anext(lines, None))
            await asyncio.wait({following, changing}, return_when=asyncio.FIRST_COMPLETED)
            if share.generation != generation:
                await cancel_all(following)
                break
            line = following.result()
            if line is None:
                return
            about = (orjson.loads(line).get("object") or {}).get("metadata") or {}
            if about.get("resourceVersion"):
                share.tell(about["resourceVersion"], generation)
            yield line + b"\n"
        yield orjson.dumps(GONE) + b"\n"
    finally:
        await cancel_all(changing)
        if reply is not None:
            await reply.close()


async def unnarrowed(client: Client, target: str, headers: Mapping[str, str]) -> AsyncGenerator[bytes, None]:
    """A stream as it is."""
    reply = await client.stream("GET", target, headers=headers)
    try:
        yield b""  # it has begun
        async for piece in reply.chunks():
            yield piece
    finally:
        await reply.close()


async def _lines(reply: StreamReply) -> AsyncIterator[bytes]:
    rest = b""
    async for chunk in reply.chunks():
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            if line:
                yield line
