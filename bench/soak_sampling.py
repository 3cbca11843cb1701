"""Figures of a process from outside: memory, open descriptors, tasks, and the files of its state directory."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

from clusters_bench import rss_mb
from soak_model import Recording, Sample

EVERY_S = 10.0


class Timings:
    """Milliseconds that requests took since the last look."""

    def __init__(self) -> None:
        self._times: list[float] = []

    async def of(self, request: Awaitable[object]) -> None:
        """Await a request and keep the time that it took; errors are not answers and are not kept."""
        begun_s = time.perf_counter()
        await request
        self.add(time.perf_counter() - begun_s)

    def add(self, seconds: float) -> None:
        self._times.append(1000 * seconds)

    def __len__(self) -> int:
        return len(self._times)

    def quantile(self, part: float) -> float:
        found = sorted(self._times)
        return found[min(len(found) - 1, int(len(found) * part))] if found else 0.0

    def take_p99(self) -> float:
        found = self.quantile(0.99)
        self._times.clear()
        return found


def files_mb(folder: Path) -> float:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except FileNotFoundError:
            pass  # a file of a moment, such as the log of a transaction
    return total / 2**20


def sampled(pid: int | str, folder: Path, *, tasks: int, p99_ms: float, at_s: float = 0.0) -> Sample:
    descriptors = len(os.listdir(f"/proc/{pid}/fd"))
    return Sample(
        at_s=at_s, memory_mb=rss_mb(pid), files_mb=files_mb(folder), descriptors=descriptors, tasks=tasks, p99_ms=p99_ms
    )


def tasks_in(metrics: str) -> int:
    """The number of tasks in a page of metrics."""
    found = re.search(r"^shoal_process_tasks (\S+)$", metrics, re.MULTILINE)
    if found is None:
        raise ValueError("the page of metrics has no shoal_process_tasks")
    return int(float(found[1]))


async def hold(recording: Recording, minutes: float, sample: Callable[[], Awaitable[Sample]]) -> None:
    """Take samples for some minutes; ``sample`` lets the time between two of them pass, and may work meanwhile."""
    begun_s = time.monotonic()
    while time.monotonic() - begun_s < 60 * minutes:
        found = await sample()
        recording.sample(replace(found, at_s=time.monotonic() - begun_s))
