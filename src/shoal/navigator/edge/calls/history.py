"""Keeps what proxies have counted for a while, so that rates can be given for a period. Pure: ``at_s`` is a parameter.

Counters only rise, and restart with their proxy. What was added between two readings of a proxy is stored under the
time of the second one. The first reading of a proxy that ran before this process only sets the start, since nobody
knows when it counted what it shows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from shoal.navigator.edge.calls.counters import Calls, Counted

_MOST = 100_000  # pairs in all readings together: beyond it the oldest readings go


class CallHistory:
    def __init__(self, *, keep_s: float, most: int = _MOST) -> None:
        self.keep_s = keep_s
        self._most = most
        self._last: dict[str, Counted] = {}  # by proxy
        self._readings: deque[tuple[float, Counted]] = deque()  # in order of time
        self._pairs = 0  # of all readings
        self._began_s: float | None = None

    def begin(self, at_s: float) -> None:
        """Calls are counted from now on."""
        if self._began_s is None:
            self._began_s = at_s

    def take(self, proxy: str, counted: Counted, at_s: float, *, started_here: bool) -> None:
        """``started_here``: the proxy was started after this history began, so all it has counted is new."""
        self.begin(at_s)
        before = self._last.get(proxy, {} if started_here else None)
        self._last[proxy] = counted
        if before is None:
            return
        added = {pair: calls.since(before.get(pair)) for pair, calls in counted.items()}
        self._add({pair: calls for pair, calls in added.items() if calls.requests > 0}, at_s)

    def forget(self, proxies: Iterable[str]) -> None:
        """Proxies that are gone; what they have counted stays."""
        for proxy in proxies:
            self._last.pop(proxy, None)

    def since_s(self, start_s: float) -> float:
        """The time from which calls are known, at or after ``start_s``."""
        return max(start_s, self._began_s if self._began_s is not None else start_s)

    def between(self, start_s: float, end_s: float) -> Counted:
        found: Counted = {}
        for at_s, added in self._readings:
            if start_s < at_s <= end_s:
                for pair, calls in added.items():
                    found.setdefault(pair, Calls()).add(calls)
        return found

    def _add(self, added: Counted, at_s: float) -> None:
        if self._readings and at_s <= self._readings[-1][0]:  # of the same round, or the clock was set back
            newest = self._readings[-1][1]
            self._pairs -= len(newest)
            for pair, calls in added.items():
                newest.setdefault(pair, Calls()).add(calls)
            self._pairs += len(newest)
        elif added:
            own = {pair: Calls(calls.requests, calls.errors, dict(calls.buckets)) for pair, calls in added.items()}
            self._readings.append((at_s, own))
            self._pairs += len(own)
        while self._readings and (self._pairs > self._most or self._readings[0][0] < at_s - self.keep_s):
            gone_s, gone = self._readings.popleft()
            self._pairs -= len(gone)
            self._began_s = max(self._began_s or gone_s, gone_s)
