"""Requests to edges: whole answers, or their parts as they arrive."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import aclosing
from typing import Any, TypeVar

import orjson

from shoal.errors import InternalError
from shoal.navigator.view import Edges

T = TypeVar("T")


async def parts_of(edges: Edges, cluster: str, request: object, *, deadline_s: float) -> AsyncGenerator[bytes, None]:
    """The parts of an answer. Closing it cancels the request at the edge."""
    answer = edges.ask(cluster, request, deadline_s=deadline_s)
    try:
        async for part in answer:
            yield part
    finally:
        if isinstance(answer, AsyncGenerator):
            await answer.aclose()


async def whole_answer(edges: Edges, cluster: str, request: object, *, deadline_s: float) -> bytes:
    async with aclosing(parts_of(edges, cluster, request, deadline_s=deadline_s)) as parts:
        return b"".join([part async for part in parts])


def as_items(answer: bytes) -> list[Any]:
    """An answer of several objects: a JSON list, an object with ``items``, or one object a line."""
    text = answer.strip()
    if not text:
        return []
    try:
        if text.startswith(b"["):
            listed: list[Any] = orjson.loads(text)
            return listed
        lines = [orjson.loads(line) for line in text.splitlines() if line.strip()]
    except ValueError as error:
        raise InternalError(f"the edge's answer is malformed: {error}") from None
    if len(lines) == 1 and isinstance(lines[0], dict) and isinstance(lines[0].get("items"), list):
        items: list[Any] = lines[0]["items"]
        return items
    return lines


async def in_turns(steps: Generator[None, None, T]) -> T:
    """Run a calculation that pauses regularly, and let other tasks run at each pause."""
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            result: T = stop.value
            return result
        await asyncio.sleep(0)
