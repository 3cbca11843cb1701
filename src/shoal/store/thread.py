"""One thread that runs jobs in order, for a database connection that must not block the event loop.

Submitting a job costs one queue put and one ``call_soon_threadsafe``, a third of an executor's cost. After a job has
failed, no later one runs, because the failed one left an unknown state.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import TypeVar

T = TypeVar("T")

_Job = tuple[Callable[[], object], "asyncio.Future[object] | None"]


class SerialThread:
    def __init__(self, name: str, on_error: Callable[[BaseException], None]) -> None:
        """``on_error`` is called on the loop when a job without a waiting caller fails."""
        self._loop = asyncio.get_running_loop()
        self._on_error = on_error
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._failed: BaseException | None = None
        self._ended = asyncio.Event()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    async def run(self, job: Callable[[], T]) -> T:
        done: asyncio.Future[T] = self._loop.create_future()
        self._jobs.put((job, done))  # type: ignore[arg-type]
        return await done

    def post(self, job: Callable[[], object]) -> None:
        self._jobs.put((job, None))

    async def close(self) -> None:
        """Finish the queued jobs and end the thread."""
        self._jobs.put(None)
        await self._ended.wait()
        self._thread.join()

    def make_way(self) -> bool:
        """For a long job, between its steps: run the jobs that wait. False if the job must give up, because one of
        them failed or the thread is about to end."""
        while self._failed is None:
            try:
                item = self._jobs.get_nowait()
            except Empty:
                return True
            if item is None:
                self._jobs.put(None)
                return False
            self._run(item)
        return False

    def _work(self) -> None:
        while (item := self._jobs.get()) is not None:
            self._run(item)
        self._loop.call_soon_threadsafe(self._ended.set)

    def _run(self, item: _Job) -> None:
        job, done = item
        result: object = None
        if self._failed is None:
            try:
                result = job()
            except BaseException as error:
                self._failed = error
        if done is not None or self._failed is not None:
            self._loop.call_soon_threadsafe(self._finish, done, result, self._failed)

    def _finish(self, done: asyncio.Future[object] | None, result: object, failed: BaseException | None) -> None:
        if failed is not None and done is None:
            self._on_error(failed)
        elif done is not None and not done.done():
            if failed is not None:
                done.set_exception(failed)
            else:
                done.set_result(result)
