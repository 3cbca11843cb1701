"""Publishes batches of this server and of other servers in one order.

It never waits and does no I/O. Its inputs are rows read from the log, own batches that the database has decided, and
hints. It publishes revision R only after R-1, checks that each batch continues the one before (the chain of marks), and
resolves own batches as they become visible.

Own batches are not read back. Once everything before one is visible, memory gives its outcome, by the same rules as in
the database (``decide``).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from shoal.store.journal import Replica, Result, Transaction, decide
from shoal.store.model import Entry, Event, EventType, Key, StoreUnavailable
from shoal.store.postgres.rows import AttrsOf, LogRow, event_of

_RECENT = 4096  # published events kept for responses that arrive late
_HINTS = 64  # batches that wait for the ones before them


class HistoryChanged(Exception):
    """The log does not continue this server's history (``rewound``), or has dropped rows that this server has not
    read."""

    def __init__(self, message: str, *, rewound: bool = False) -> None:
        super().__init__(message)
        self.rewound = rewound


class Diverged(Exception):
    """Memory and database disagree about the outcome of a batch: a bug, after which the view cannot be trusted."""


class OwnBatch:
    """Transactions in flight; ``answer`` is set once they are visible."""

    __slots__ = ("answer", "mark", "transactions")

    def __init__(self, transactions: Sequence[Transaction], mark: int) -> None:
        self.transactions = transactions
        self.mark = mark
        self.answer: asyncio.Future[Sequence[Result]] = asyncio.get_running_loop().create_future()


class Feed:
    def __init__(
        self, replica: Replica, attrs_of: AttrsOf, on_published: Callable[[OwnBatch, int, Sequence[Event]], None]
    ) -> None:
        """``on_published`` is called for each own batch with events: the batch, the mark before it, the events."""
        self._replica = replica
        self._attrs_of = attrs_of
        self._on_published = on_published
        self.revision = 0
        self.mark = 0
        self._own: dict[int, OwnBatch] = {}
        self._answered: list[
            tuple[int, int, OwnBatch]
        ] = []  # base, newest: own batches that wait for foreign ones before them
        self._hints: dict[int, Sequence[LogRow]] = {}  # keyed by the revision before them
        self._recent: deque[Event] = deque(maxlen=_RECENT)

    def begin(self, revision: int, mark: int) -> None:
        """Start after a load up to this revision. Batches in flight belong to the old history."""
        self.revision, self.mark = revision, mark
        self._recent.clear()
        self._hints.clear()
        self._answered.clear()
        own, self._own = self._own, {}
        for batch in own.values():
            _answer(batch, [StoreUnavailable("the database has lost its newest writes")] * len(batch.transactions))

    def sent(self, batch: OwnBatch) -> None:
        self._own[batch.mark] = batch

    def given_up(self, batch: OwnBatch) -> None:
        """Treat the batch as a foreign one from now on, in case the database still commits it."""
        self._own.pop(batch.mark, None)

    def committed(self, batch: OwnBatch, base: int, newest: int) -> None:
        """The database has decided ``batch`` on top of revision ``base``; the rows before it were passed to ``read``,
        unless they were too many."""
        if batch.answer.done():
            return
        if newest > base and base < self.revision:
            raise Diverged(f"revision {base + 1} is ours and was published as another's")
        if newest == base <= self.revision:
            self._refuse(batch, base)
        else:
            self._answered.append((base, newest, batch))
            self._advance()

    def read(self, rows: Iterable[LogRow]) -> None:
        """Take rows of the log: complete batches, in order. Known rows are skipped."""
        foreign: list[LogRow] = []
        for row in rows:
            own = self._own.get(row.mark)
            if own is None:
                if row.revision > self.revision:
                    foreign.append(row)
                continue
            self._publish_foreign(foreign)
            foreign = []
            if row.revision > self.revision:
                self._check(row, self.revision, self.mark)
                self._publish_own(own, None)
        self._publish_foreign(foreign)
        self._advance()

    def hint(self, rows: Sequence[LogRow]) -> None:
        """Take a batch that another server has announced."""
        if rows[-1].revision > self.revision and rows[0].mark not in self._own:
            if len(self._hints) < _HINTS:
                self._hints[rows[0].revision - 1] = rows
            self._advance()

    def _advance(self) -> None:
        """Publish batches that wait for the current revision."""
        while self._advance_own() or self._advance_hint():
            pass
        if self._answered:
            self._answered = [waiting for waiting in self._answered if not waiting[2].answer.done()]
        if self._hints:
            self._hints = {before: rows for before, rows in self._hints.items() if before >= self.revision}

    def _advance_own(self) -> bool:
        for waiting in self._answered:
            base, newest, batch = waiting
            if base == self.revision or (newest == base < self.revision):
                self._answered.remove(waiting)
                if not batch.answer.done():
                    if newest == base:
                        self._refuse(batch, base)
                    else:
                        self._publish_own(batch, newest)
                return True
        return False

    def _advance_hint(self) -> bool:
        rows = self._hints.pop(self.revision, None)
        if rows is None:
            return False
        try:
            events = self._events(rows)
        except Exception:  # a hint may contain anything: the log is authoritative
            return False
        self._publish(events, rows[-1])
        return True

    def _publish_foreign(self, rows: Sequence[LogRow]) -> None:
        if rows:
            self._publish(self._events(rows), rows[-1])

    def _publish(self, events: Sequence[Event], last: LogRow) -> None:
        self.revision, self.mark = last.revision, last.mark
        self._recent.extend(events)
        self._replica.publish(events)

    def _events(self, rows: Sequence[LogRow]) -> list[Event]:
        """The events of the rows on top of the visible state; raises HistoryChanged if they do not continue it."""
        events: list[Event] = []
        pending: dict[Key, Entry | None] = {}
        get = self._replica.get
        revision, mark = self.revision, self.mark
        for row in rows:
            self._check(row, revision, mark)
            revision, mark = row.revision, row.mark
            event = event_of(row, lambda key: pending[key] if key in pending else get(key), self._attrs_of)
            if event is None:
                raise HistoryChanged(f"revision {row.revision} deletes what this server does not have")
            pending[event.entry.key] = None if event.type is EventType.DELETED else event.entry
            events.append(event)
        return events

    @staticmethod
    def _check(row: LogRow, revision: int, mark: int) -> None:
        if row.revision != revision + 1:
            raise HistoryChanged(f"the log continues at {row.revision}, this server is at {revision}")
        if row.prior != mark:
            raise HistoryChanged(f"revision {row.revision} continues another history", rewound=True)

    def _refuse(self, batch: OwnBatch, base: int) -> None:
        self._own.pop(batch.mark, None)
        if base < self.revision and (not self._recent or self._recent[0].entry.revision > base + 1):
            reason = StoreUnavailable("the database refused this write, and too many writes followed to say why")
            _answer(batch, [reason] * len(batch.transactions))
            return
        results, events = decide(batch.transactions, self._lookup_at(base), base)
        if events:
            raise Diverged(f"a batch refused by the database at revision {base} succeeds in memory")
        _answer(batch, results)

    def _publish_own(self, batch: OwnBatch, newest: int | None) -> None:
        before = self.mark
        results, events = decide(batch.transactions, self._replica.get, self.revision)
        if not events or (newest is not None and events[-1].entry.revision != newest):
            raise Diverged(f"a batch on top of revision {self.revision} ends at another revision than in the database")
        self._own.pop(batch.mark, None)
        self.revision, self.mark = events[-1].entry.revision, batch.mark
        self._recent.extend(events)
        self._replica.publish(events)
        _answer(batch, results)
        self._on_published(batch, before, events)

    def _lookup_at(self, base: int) -> Callable[[Key], Entry | None]:
        """The objects as they were at ``base``."""
        if base >= self.revision:
            return self._replica.get
        before: dict[Key, Entry | None] = {}
        for event in self._recent:
            if event.entry.revision > base:
                before.setdefault(event.entry.key, event.previous)
        return lambda key: before[key] if key in before else self._replica.get(key)


def _answer(batch: OwnBatch, results: Sequence[Result]) -> None:
    if not batch.answer.done():
        batch.answer.set_result(results)
