"""What the cluster shows: made into reports, and put back where somebody changed it.

A report joins what the observer sees with what the books know. Drift (a field somebody changed, an object somebody
deleted) is corrected by applying the same version again, unless the object says that drift is only to be reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from shoal.base.clock import Timer
from shoal.krane.drift import Drift
from shoal.krane.model import Report
from shoal.krane.protocol import wire_version
from shoal.krane.station import Station
from shoal.wire.fleet.v1 import cluster_pb as pb

DELETED = "(deleted)"  # stands in the drift of an object that is not there at all

_BUSY_S = 5.0  # how long to leave a key alone that is being applied


class Actual:
    """``blank`` makes an empty report of the controller's kind."""

    def __init__(self, station: Station, *, blank: Callable[[], Report]) -> None:
        self._station = station
        self._blank = blank
        self._drift = Drift(base_s=station.limits.drift_base_s, cap_s=station.limits.drift_cap_s)
        self._looks: dict[str, Timer] = {}  # to look at drift again, when it may be corrected

    def describe(self, key: str) -> Report | None:
        """The report of a key as of now; None when there is nothing to say about it."""
        books, observer = self._station.books, self._station.observer
        seen = observer.report(key)
        applied, failure = books.applied.get(key), books.failures.get(key)
        if seen is not None:
            books.seen.add(key)
        elif applied is None and failure is None:
            return None
        elif applied is not None and applied.removed and not observer.synced:
            return None  # whether it is gone is not known yet
        report = seen if seen is not None else self._blank()
        report.key = key
        report.observed_ms = self._station.now_ms()
        if applied is not None:
            report.applied = wire_version(applied.version)
            report.gone = applied.removed and seen is None
            if isinstance(report, pb.DeploymentReport):
                report.applied_ms = applied.at_ms
                if self._vanished(key, seen):
                    report.drift = [DELETED]
        if failure is not None:
            report.error = pb.ApplyError(
                version=wire_version(failure.version),
                reason=failure.reason,
                message=failure.message,
                attempts=failure.attempts,
                since_ms=failure.since_ms,
            )
        self._note_ready(report)
        return report

    def keys(self) -> Iterable[str]:
        """Everything that can be reported."""
        return {*self._station.observer.keys(), *self._station.books.applied, *self._station.books.failures}

    def correct_drift(self, key: str, *, missing: bool = False) -> None:
        """Put back what somebody changed or removed; ``missing``: the cluster was asked and does not have it."""
        station = self._station
        if key not in station.machine.desired or not station.books.is_running(key):
            return
        seen = station.observer.report(key)
        if seen is not None:
            station.books.seen.add(key)
        if not missing and not self._vanished(key, seen) and not getattr(seen, "drift", ()):
            return
        if station.inbox.pending(key) is not None:
            self._look_later(key, _BUSY_S)  # what is seen may be of before
            return
        item = station.cache.get(key)
        if item is None or _only_reports(item):
            return
        delay_s = self._drift.correct(key, station.clock.monotonic())
        if delay_s > 0:
            self._look_later(key, delay_s)
        elif station.inbox.offer(item):
            station.books.seen.discard(key)
            station.metrics.corrections.labels(station.stream, "drift").inc()
            station.log.info("correcting drift", key=key, missing=seen is None)

    def forget(self, key: str) -> None:
        """The key is removed for good."""
        self._drift.forget(key)
        timer = self._looks.pop(key, None)
        if timer is not None:
            timer.cancel()

    def close(self) -> None:
        for timer in self._looks.values():
            timer.cancel()
        self._looks.clear()

    def _vanished(self, key: str, seen: Report | None) -> bool:
        """Whether the object was there and is not any more; what was just applied may not be visible yet."""
        books = self._station.books
        return seen is None and key in books.seen and books.is_running(key) and self._station.observer.synced

    def _look_later(self, key: str, delay_s: float) -> None:
        def look() -> None:
            self._looks.pop(key, None)
            self.correct_drift(key)

        if key not in self._looks:
            self._looks[key] = self._station.clock.call_later(delay_s, look)

    def _note_ready(self, report: Report) -> None:
        unready = self._station.books.unready
        if report.key in unready and report.available_replicas >= report.desired_replicas > 0:
            self._station.hop("ready", unready.pop(report.key))


def _only_reports(item: pb.Item) -> bool:
    state = item.action.value if item.action is not None else None
    return isinstance(state, pb.DeploymentState) and state.drift == pb.Drift.REPORT
