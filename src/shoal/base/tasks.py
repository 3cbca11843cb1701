"""Tasks with a name and an owner: running a set of them together, waiting for the first, closing within a budget.

Nothing here swallows a cancellation, and every task started is finished before the call that started it returns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Mapping
from typing import Any, TypeVar

from shoal.base.clock import Clock

T = TypeVar("T")


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


async def close_within(budget_s: float, *closing: Awaitable[Any], clock: Clock) -> list[str]:
    """Await all of ``closing`` at once for at most ``budget_s``; return the names of those that did not finish.

    For ``finally`` blocks: errors of one do not keep the others from closing, and are raised together at the end.
    """
    tasks = [asyncio.ensure_future(item) for item in closing]
    expired = asyncio.Event()
    timer = clock.call_later(budget_s, expired.set)
    watcher = asyncio.create_task(expired.wait(), name="close/budget")
    pending: set[asyncio.Future[Any]] = set(tasks)
    try:
        while pending and not expired.is_set():
            _, rest = await asyncio.wait({*pending, watcher}, return_when=asyncio.FIRST_COMPLETED)
            pending = rest - {watcher}
    finally:
        timer.cancel()
        await cancel_all(watcher, *(task for task in tasks if isinstance(task, asyncio.Task) and not task.done()))
    late = [_name(task) for task in tasks if task in pending]
    failures = [error for task in tasks if task not in pending and (error := task.exception()) is not None]
    if failures:
        raise BaseExceptionGroup("closing failed", failures)
    return late


def _name(future: asyncio.Future[Any]) -> str:
    return future.get_name() if isinstance(future, asyncio.Task) else repr(future)
