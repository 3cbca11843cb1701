"""What happens to a fleet of ``shoal up`` in the tests of what the page says about it."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from browser_up import Up


@contextmanager
def region_killed(up: Up, region: str) -> Iterator[None]:
    """Its cluster's process, with API server, nodes, agent and edge, is killed. `up` would start it again: it is
    paused meanwhile, and does so at the end."""
    found: dict[str, Any] = json.loads((up.state / "endpoints.json").read_text())
    cluster = next(each for each in found["clusters"] if each["region"] == region)
    os.kill(found["pid"], signal.SIGSTOP)
    try:
        os.kill(cluster["pid"], signal.SIGKILL)
        yield
    finally:
        os.kill(found["pid"], signal.SIGCONT)


def seconds_until(page: Any, check: Callable[[], bool], limit_s: float) -> float:
    """Seconds until ``check`` holds; fails after ``limit_s`` with what the page shows."""
    begun = time.monotonic()
    while not check():
        assert time.monotonic() - begun < limit_s, (
            f"not shown after {limit_s:g} s; the page shows:\n{main(page)[:1500]}"
        )
        page.wait_for_timeout(100)
    return time.monotonic() - begun


def main(page: Any) -> str:
    """The text of the view."""
    return str(page.inner_text("main"))
