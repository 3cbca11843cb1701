from __future__ import annotations

import asyncio
import threading

import pytest

from shoal.store.thread import SerialThread


def unexpected(error: BaseException) -> None:
    raise error


async def test_jobs_run_in_order_on_one_other_thread() -> None:
    thread = SerialThread("test", unexpected)
    ran: list[int] = []
    thread.post(lambda: ran.append(0))
    names = await asyncio.gather(*(thread.run(lambda: threading.current_thread().name) for _ in range(3)))
    assert names == ["test"] * 3 and ran == [0]
    thread.post(lambda: ran.append(1))
    await thread.close()
    assert ran == [0, 1]


async def test_after_a_failure_nothing_more_is_run() -> None:
    errors: list[BaseException] = []
    thread = SerialThread("test", errors.append)
    ran: list[int] = []
    with pytest.raises(ZeroDivisionError):
        await thread.run(lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        await thread.run(lambda: ran.append(1))
    thread.post(lambda: ran.append(2))
    await thread.close()
    assert not ran and [type(error) for error in errors] == [ZeroDivisionError]


async def test_a_cancelled_caller_does_not_stop_its_job() -> None:
    thread = SerialThread("test", unexpected)
    release, ran = threading.Event(), list[int]()
    waiting = asyncio.ensure_future(thread.run(release.wait))
    queued = asyncio.ensure_future(thread.run(lambda: ran.append(1)))
    await asyncio.sleep(0)
    waiting.cancel()
    queued.cancel()
    await asyncio.sleep(0)
    release.set()
    await thread.close()
    assert ran == [1]
