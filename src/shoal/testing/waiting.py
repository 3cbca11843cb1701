"""Waiting in tests: ask until a condition holds, and say what was last seen when it never does.

Real time on purpose: it also works while a fake clock stands still. Tests that have a fake clock advance it instead.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any

from shoal.errors import NotFound

TIMEOUT_S = 30.0
_POLL_S = 0.01
_NOT_YET = (AssertionError, NotFound)

Check = Callable[[], Any | Awaitable[Any]]


async def eventually(
    check: Check, *, timeout_s: float = TIMEOUT_S, every_s: float = _POLL_S, what: str = "condition"
) -> Any:
    """Wait until ``check`` returns something true, and return it.

    A failed assertion or a missing object in ``check`` counts as "not yet"; it is raised once ``timeout_s`` has passed.
    """
    deadline_s = time.monotonic() + timeout_s
    while True:
        try:
            found = check()
            if inspect.isawaitable(found):
                found = await found
            failure: Exception | None = None
        except _NOT_YET as error:
            found, failure = None, error
        if found:
            return found
        if time.monotonic() > deadline_s:
            raise failure or AssertionError(f"{what} not met within {timeout_s:g} s, last seen: {found!r}")
        await asyncio.sleep(every_s)


def eventually_blocking(
    check: Callable[[], Any], *, timeout_s: float = TIMEOUT_S, every_s: float = _POLL_S, what: str = "condition"
) -> Any:
    """``eventually`` for tests without an event loop, which mostly ask another process."""
    deadline_s = time.monotonic() + timeout_s
    while True:
        try:
            found, failure = check(), None
        except _NOT_YET as error:
            found, failure = None, error
        if found:
            return found
        if time.monotonic() > deadline_s:
            raise failure or AssertionError(f"{what} not met within {timeout_s:g} s, last seen: {found!r}")
        time.sleep(every_s)
