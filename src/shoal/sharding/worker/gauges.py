"""Load of a worker: duration and number of running handlers, CPU and memory use."""

from __future__ import annotations

import mmap
import time
from collections import deque
from pathlib import Path

from shoal.base.clock import Clock

_SAMPLES = 512
_PAGE_BYTES = mmap.PAGESIZE
_STATM = Path("/proc/self/statm")


class Gauges:
    def __init__(self, clock: Clock, *, handlers: int, cpus: float, memory_limit_bytes: int) -> None:
        self._clock = clock
        self.handlers = handlers  # that may run at once
        self._cpus = cpus
        self._limit_bytes = memory_limit_bytes
        self._took: deque[float] = deque(maxlen=_SAMPLES)
        self._last = (clock.monotonic(), time.process_time())
        self._cpu = 0.0
        self._running = 0
        self._changed_s = self._looked_s = clock.monotonic()  # last start or end of a handler; last reading of the load
        self._ran_s = 0.0  # all handlers together, since the last reading
        self._busy = 0.0

    def began(self, now_s: float) -> None:
        """A handler starts."""
        self._pass(now_s)
        self._running += 1

    def ended(self, now_s: float, took_s: float) -> None:
        self._pass(now_s)
        self._running -= 1
        self._took.append(took_s)

    def _pass(self, now_s: float) -> None:
        self._ran_s += self._running * (now_s - self._changed_s)
        self._changed_s = now_s

    def busy(self) -> float:
        """The share of the handlers that were running, measured over at least a second."""
        now_s = self._clock.monotonic()
        passed_s = now_s - self._looked_s
        if passed_s >= 1.0:
            self._pass(now_s)
            self._busy = min(1.0, self._ran_s / passed_s / self.handlers)
            self._ran_s, self._looked_s = 0.0, now_s
        return self._busy

    @property
    def latency_s(self) -> float:
        """The 99th percentile of the last handlers."""
        ordered = sorted(self._took)
        return ordered[int(len(ordered) * 0.99)] if ordered else 0.0

    def cpu(self) -> float:
        """The share of the allowed CPU time, measured over at least a second."""
        now_s, used_s = self._clock.monotonic(), time.process_time()
        if now_s - self._last[0] >= 1.0:
            self._cpu = min(1.0, (used_s - self._last[1]) / (now_s - self._last[0]) / self._cpus)
            self._last = now_s, used_s
        return self._cpu

    def memory(self) -> float:
        try:
            pages = int(_STATM.read_text().split()[1])
        except OSError:
            return 0.0
        return min(1.0, pages * _PAGE_BYTES / self._limit_bytes)
