"""Reports only the newest objects of a kind that has very many, such as events. Warnings stay longest."""

from __future__ import annotations

import heapq

import orjson

from shoal.navigator.edge.rows import RowSink
from shoal.navigator.summaries import EventSummary, summarize

_AT_ONCE = 10  # a tenth of the objects goes when there are too many, so that not every new one looks for the oldest


class NewestRows:
    """A sink before another one, which then has at most ``most`` rows of a kind."""

    def __init__(self, rows: RowSink, most: int) -> None:
        self._rows = rows
        self._most = most
        self._held: dict[str, tuple[bool, str]] = {}  # key → whether it is a warning, when it was seen

    def put(self, kind: str, key: str, data: bytes) -> None:
        summary = summarize(kind, orjson.loads(data))
        at = summary.seen_at if isinstance(summary, EventSummary) else summary.created_at
        self._held[key] = isinstance(summary, EventSummary) and summary.type == "Warning", at
        self._rows.put(kind, key, data)
        self._limit(kind)

    def remove(self, kind: str, key: str) -> None:
        if self._held.pop(key, None) is not None:
            self._rows.remove(kind, key)

    def ready(self, kind: str) -> None:
        self._rows.ready(kind)

    def status(self, kind: str, state: str, error: str) -> None:
        self._rows.status(kind, state, error)

    def configure(self, kind: str, most: int) -> None:
        """A larger number holds for objects that change from now on."""
        self._most = most
        self._limit(kind)

    def _limit(self, kind: str) -> None:
        over = len(self._held) - self._most
        if over > 0:
            number = max(over, self._most // _AT_ONCE)
            for key in heapq.nsmallest(number, self._held, key=self._held.__getitem__):
                self.remove(kind, key)
