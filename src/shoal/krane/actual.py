"""Actual state of the cluster: reports it, and corrects drift.

A report joins what the observer sees with the state of its key. Drift (a changed field, a deleted
object) is corrected by applying the same version again, unless the object says that drift is only to be reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from shoal.base.clock import Timer
from shoal.krane.context import ControllerContext
from shoal.krane.drift import Drift
from shoal.krane.model import Report
from shoal.krane.protocol import wire_version
from shoal.wire.fleet.v1 import cluster_pb as pb

DELETED = "(deleted)"  # marks the drift of an object that does not exist

_BUSY_S = 5.0  # how long to leave a key alone that is being applied


class Actual:
    """``blank`` makes an empty report of the controller's kind."""

    def __init__(self, context: ControllerContext, *, blank: Callable[[], Report]) -> None:
        self._context = context
        self._blank = blank
        self._drift = Drift(base_s=context.limits.drift_base_s, cap_s=context.limits.drift_cap_s)
        self._looks: dict[str, Timer] = {}  # to look at drift again, when it may be corrected

    def describe(self, key: str) -> Report | None:
        """The report of a key as of now; None when there is nothing to say about it."""
        key_state, observer = self._context.key_state, self._context.observer
        seen = observer.report(key)
        applied, failure = key_state.applied.get(key), key_state.failures.get(key)
        if seen is not None:
            key_state.seen.add(key)
        elif applied is None and failure is None:
            return None
        elif applied is not None and applied.removed and not observer.synced:
            return None  # whether it is gone is not known yet
        report = seen if seen is not None else self._blank()
        report.key = key
        report.observed_ms = self._context.now_ms()
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
        return {*self._context.observer.keys(), *self._context.key_state.applied, *self._context.key_state.failures}

    def correct_drift(self, key: str, *, missing: bool = False) -> None:
        """Correct changed or removed objects; ``missing``: the cluster was asked and does not have it."""
        context = self._context
        if key not in context.machine.desired or not context.key_state.is_running(key):
            return
        seen = context.observer.report(key)
        if seen is not None:
            context.key_state.seen.add(key)
        if not missing and not self._vanished(key, seen) and not getattr(seen, "drift", ()):
            return
        if context.inbox.pending(key) is not None:
            self._look_later(key, _BUSY_S)  # what is seen may be of before
            return
        item = context.cache.get(key)
        if item is None or _only_reports(item):
            return
        delay_s = self._drift.correct(key, context.clock.monotonic())
        if delay_s > 0:
            self._look_later(key, delay_s)
        elif context.inbox.offer(item):
            context.key_state.seen.discard(key)
            context.metrics.corrections.labels(context.stream, "drift").inc()
            context.log.info("correcting drift", key=key, missing=seen is None)

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
        key_state = self._context.key_state
        return seen is None and key in key_state.seen and key_state.is_running(key) and self._context.observer.synced

    def _look_later(self, key: str, delay_s: float) -> None:
        def look() -> None:
            self._looks.pop(key, None)
            self.correct_drift(key)

        if key not in self._looks:
            self._looks[key] = self._context.clock.call_later(delay_s, look)

    def _note_ready(self, report: Report) -> None:
        unready = self._context.key_state.unready
        if report.key in unready and report.available_replicas >= report.desired_replicas > 0:
            self._context.hop("ready", unready.pop(report.key))


def _only_reports(item: pb.Item) -> bool:
    state = item.action.value if item.action is not None else None
    return isinstance(state, pb.DeploymentState) and state.drift == pb.Drift.REPORT
