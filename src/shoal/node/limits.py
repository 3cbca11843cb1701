"""Bounded concurrency."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


async def each_limited(limit: int, items: Iterable[T], work: Callable[[T], Awaitable[None]]) -> None:
    """Call ``work`` for every item, at most ``limit`` at a time; the first failure cancels the rest."""
    rest = iter(items)

    async def worker() -> None:
        for item in rest:
            await work(item)

    async with asyncio.TaskGroup() as group:
        for number in range(limit):
            group.create_task(worker(), name=f"each/{number}")
