"""Tasks with a name and an owner: running a set of them together, waiting for the first, closing within a budget.

Nothing here swallows a cancellation, and every task started is finished before the call that started it returns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any


async def run_all(parts: Mapping[str, Coroutine[Any, Any, Any]]) -> None:
    """Run every part, named by its key, until all have ended; when one fails the others are cancelled.

    A single failure is raised as itself, not wrapped in a group: callers need the cause only.
    """
    try:
        async with asyncio.TaskGroup() as group:
            for name, part in parts.items():
                group.create_task(part, name=name)
    except BaseExceptionGroup as failures:
        if len(failures.exceptions) == 1:
            raise failures.exceptions[0] from None
        raise


async def wait_first(*parts: Coroutine[Any, Any, Any]) -> Any:
    """The result of whichever part ends first; the others are cancelled and awaited. Its exception is raised."""
    tasks = [asyncio.create_task(part, name=f"first/{n}") for n, part in enumerate(parts)]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await cancel_all(*tasks)
    return next(task for task in tasks if task in done).result()


async def cancel_all(*tasks: asyncio.Task[Any]) -> None:
    """Cancel the tasks and wait until each has really ended; their results and errors are not looked at."""
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled():
            task.exception()  # marks it as seen, else the loop reports it when the task is collected


def _name(future: asyncio.Future[Any]) -> str:
    return future.get_name() if isinstance(future, asyncio.Task) else repr(future)
