"""Wait in a test until a condition holds.

    await eventually(lambda: ready_pods(context) == 3)
    pods = eventually_blocking(lambda: kubectl("get", "pods"), until=lambda text: "Running" in text, timeout_s=60)

The failure shows the value that was read last. Waiting takes real time, also where the code under test has a fake
clock. A test that has one advances it instead.
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

Check = Callable[[], Any | Awaitable[Any]]
Errors = tuple[type[Exception], ...]
_NOT_YET: Errors = (AssertionError, NotFound)


async def eventually(
    check: Check,
    *,
    until: Callable[[Any], object] = bool,
    timeout_s: float = TIMEOUT_S,
    every_s: float = _POLL_S,
    what: str = "condition",
    retry_on: Errors = (),
    explain: Callable[[], str] | None = None,
) -> Any:
    """Call ``check`` until ``until`` accepts its value, and return that value. By default any true value is accepted.

    A failed assertion, a missing object and the errors of ``retry_on`` mean "not yet"; once ``timeout_s`` has passed,
    the last of them is raised. ``explain`` gives text for the failure, the logs of a process for example.
    """
    deadline_s, not_yet = time.monotonic() + timeout_s, _NOT_YET + retry_on
    while True:
        found: Any = None
        failure: Exception | None = None
        try:
            found = check()
            if inspect.isawaitable(found):
                found = await found
            if until(found):
                return found
        except not_yet as error:
            failure = error
        if time.monotonic() > deadline_s:
            raise _timed_out(failure, found, what, timeout_s, explain)
        await asyncio.sleep(every_s)


def eventually_blocking(
    check: Callable[[], Any],
    *,
    until: Callable[[Any], object] = bool,
    timeout_s: float = TIMEOUT_S,
    every_s: float = _POLL_S,
    what: str = "condition",
    retry_on: Errors = (),
    explain: Callable[[], str] | None = None,
) -> Any:
    """``eventually`` for tests without an event loop."""
    deadline_s, not_yet = time.monotonic() + timeout_s, _NOT_YET + retry_on
    while True:
        found: Any = None
        failure: Exception | None = None
        try:
            found = check()
            if until(found):
                return found
        except not_yet as error:
            failure = error
        if time.monotonic() > deadline_s:
            raise _timed_out(failure, found, what, timeout_s, explain)
        time.sleep(every_s)


def _timed_out(
    failure: Exception | None, found: Any, what: str, timeout_s: float, explain: Callable[[], str] | None
) -> Exception:
    error = failure or AssertionError(f"{what} not met within {timeout_s:g} s, last seen: {found!r}")
    if explain is not None:
        error.add_note(explain())
    return error
