"""Metrics and traces of the objects that a stream sends."""

from __future__ import annotations

from shoal.base import tracing
from shoal.base.metrics import Distribution, Value
from shoal.control.service.desired.model import Loaded
from shoal.sync.keys import Place


class StreamCounts:
    """One per kind of stream. ``sent`` measures from the commit of a change until it was sent."""

    __slots__ = ("_changes", "_sent", "_sync_s", "_syncs")

    def __init__(self, *, changes: Value, syncs: Value, sent: Distribution, sync_s: Distribution) -> None:
        self._changes = changes
        self._syncs = syncs
        self._sent = sent
        self._sync_s = sync_s

    def item(self, key: str, loaded: Loaded, place: Place, *, syncing: bool, wall_s: float) -> None:
        if syncing:
            self._syncs.inc()
            return
        self._changes.inc()
        if loaded.committed_ms:
            self._sent.observe(max(0.0, wall_s - loaded.committed_ms / 1000))
            if tracing.is_on() and loaded.trace:
                _trace(key, loaded, place)

    def synced(self, seconds: float) -> None:
        self._sync_s.observe(seconds)


class PlainCounts:
    """For streams of which only the objects are counted, those of syncs apart or with the others: those of relays."""

    __slots__ = ("_changes", "_syncs")

    def __init__(self, changes: Value, syncs: Value) -> None:
        self._changes = changes
        self._syncs = syncs

    def item(self, key: str, loaded: Loaded, place: Place, *, syncing: bool, wall_s: float) -> None:
        (self._syncs if syncing else self._changes).inc()
        if loaded.trace and not syncing and tracing.is_on():
            _trace(key, loaded, place)

    def synced(self, seconds: float) -> None:
        return


def _trace(key: str, loaded: Loaded, place: Place) -> None:
    """From the commit of a change until it was sent."""
    with tracing.span("stream.send", parent=loaded.trace, since_ms=loaded.committed_ms, key=key, place=str(place)):
        pass
