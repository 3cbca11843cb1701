"""Reads through the proxy: lists and watches of sharded kinds show only the shard's objects, and none shows the epochs
of their owners; reads of other kinds are unchanged.

A watch that continued while slots move would miss the objects of new slots: they existed before, so no event shows
them. A move therefore ends the watches of sharded kinds with 410, which makes clients list again. A watch gets 410 also
when the list before it was for other slots.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any
from urllib.parse import parse_qsl, urlencode

import orjson

from shoal.base.tasks import OwnedTasks, cancel_all
from shoal.client import Client
from shoal.client.transport import StreamReply
from shoal.sharding.model import SLOTS, epoch_annotation, slot_label, slot_selector

_REMEMBERED = 50_000
_NO_SLOT = "none"  # a slot that no object has

GONE = {
    "type": "ERROR",
    "object": {
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "Expired", "code": 410,
        "message": "the shard's slots have changed: list again",
    },
}  # fmt: skip


def without_epoch(body: bytes, config: str) -> bytes:
    """An object, a list, a table or an event, without the annotation that shards write: a controller that does not know
    it must not take a new epoch for a change of its object."""
    name = epoch_annotation(config)
    if name.encode() not in body:
        return body
    try:
        found = orjson.loads(body)
    except ValueError:
        return body
    return orjson.dumps(_without(found, name))


def _without(found: Any, name: str) -> Any:
    for part in ("items", "rows"):
        if isinstance(found.get(part), list):
            return {**found, part: [_without(each, name) for each in found[part]]}
    if isinstance(found.get("object"), dict):
        return {**found, "object": _without(found["object"], name)}
    about = found.get("metadata")
    notes = about.get("annotations") if isinstance(about, dict) else None
    if not isinstance(notes, dict) or name not in notes:
        return found
    kept = {key: value for key, value in notes.items() if key != name}
    rest = {key: value for key, value in about.items() if key != "annotations"}
    return {**found, "metadata": {**rest, "annotations": kept} if kept else rest}


class VisibleSlots:
    """The slots that the proxy shows. Each change begins a new *generation*; a client cannot continue in one generation
    from a resourceVersion of another."""

    def __init__(self, config: str) -> None:
        self.config = config
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
        """Whether a watch may start from a version: only if it was sent in the current generation."""
        return version in ("", "0") or self._told.get(version) == self.generation

    def narrowed(self, query: str) -> str:
        """The query of a list or a watch, limited to the visible slots."""
        params = parse_qsl(query, keep_blank_values=True)
        label = slot_label(self.config)
        if not self._slots:
            share = f"{label}={_NO_SLOT}"
        elif len(self._slots) == SLOTS:
            share = label
        else:
            share = slot_selector(self.config, self._slots)
        asked = [value for name, value in params if name == "labelSelector" and value]
        others = [(name, value) for name, value in params if name != "labelSelector"]
        return urlencode([*others, ("labelSelector", ",".join([*asked, share]))])


async def narrowed_watch(client: Client, path: str, query: str, share: VisibleSlots) -> AsyncGenerator[bytes, None]:
    """The lines of a watch, until it ends or the visible slots change."""
    version = dict(parse_qsl(query)).get("resourceVersion", "")
    if not share.continues(version):
        yield orjson.dumps(GONE) + b"\n"
        return
    tasks = OwnedTasks()
    generation, changing = share.generation, tasks.start(share.change(), name="proxy/share")
    reply: StreamReply | None = None
    try:
        reply = await client.stream("GET", f"{path}?{share.narrowed(query)}")
        yield b""  # it has begun
        lines = _lines(reply)
        while share.generation == generation:
            following = tasks.start(_next(lines), name="proxy/line", awaited=True)
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
            yield without_epoch(line, share.config) + b"\n"
        yield orjson.dumps(GONE) + b"\n"
    finally:
        await tasks.close()
        if reply is not None:
            await reply.close()


async def unnarrowed(client: Client, target: str, headers: Mapping[str, str]) -> AsyncGenerator[bytes, None]:
    """A stream that is passed on unchanged."""
    reply = await client.stream("GET", target, headers=headers)
    try:
        yield b""  # it has begun
        async for piece in reply.chunks():
            yield piece
    finally:
        await reply.close()


async def _next(lines: AsyncIterator[bytes]) -> bytes | None:
    return await anext(lines, None)


async def _lines(reply: StreamReply) -> AsyncIterator[bytes]:
    rest = b""
    async for chunk in reply.chunks():
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            if line:
                yield line
