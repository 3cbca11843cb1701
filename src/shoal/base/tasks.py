"""Tasks with a name and an owner: running a set of them together, waiting for the first, one beside a block.

Nothing here swallows a cancellation, and every task started is finished before the call or the owner that started it
ends. No error is lost: it is raised, or logged where no code awaits the task. Loops that are to run for ever are
started by ``shoal.base.supervision``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from shoal.base.logs import get_logger

_log = get_logger("tasks")

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


async def outcomes(*parts: Coroutine[Any, Any, T], name: str) -> list[T | BaseException]:
    """The result or the error of each part, run beside each other. For handlers of requests too: the parts end when
    the caller is closed."""
    tasks = [asyncio.get_running_loop().create_task(part, name=name) for part in parts]
    try:
        return await asyncio.gather(*tasks, return_exceptions=True)
    finally:
        for task in tasks:
            task.cancel()


@asynccontextmanager
async def beside(work: Coroutine[Any, Any, T], *, name: str, looked_at: bool = False) -> AsyncIterator[asyncio.Task[T]]:
    """Run ``work`` beside the block and end it with the block. If it fails, the block goes on and may look at the task.
    Its error is logged when the block succeeds, unless it is ``looked_at``."""
    task = asyncio.get_running_loop().create_task(work, name=name)
    try:
        yield task
    except BaseException:
        await cancel_all(task)
        raise
    await cancel_all(task)
    if not looked_at:
        _log_failure(task)


class OwnedTasks:
    """The tasks that one owner has started and that end by themselves, such as those of requests."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, work: Coroutine[Any, Any, T], *, name: str, awaited: bool = False) -> asyncio.Task[T]:
        """Start a task. Its error is logged, unless the task is ``awaited``: then it is raised where it is awaited."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard if awaited else self._ended)
        return task

    async def close(self) -> None:
        """Cancel those that still run, and wait until they have ended."""
        await cancel_all(*self._tasks)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        _log_failure(task)


def _log_failure(task: asyncio.Task[Any]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("a task failed", task=task.get_name(), error=error)
