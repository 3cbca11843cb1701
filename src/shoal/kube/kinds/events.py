"""One Event in two shapes: core/v1, which is stored, and events.k8s.io/v1."""

from __future__ import annotations

from typing import Final

from shoal.kube.objects import Obj

CORE_VERSION: Final = "v1"
EVENTS_VERSION: Final = "events.k8s.io/v1"

# field of core/v1 -> field of events.k8s.io/v1; other fields have the same name in both
_RENAMED: Final = {
    "involvedObject": "regarding",
    "source": "deprecatedSource",
    "message": "note",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
    "reportingComponent": "reportingController",
}
_OMITTED_IF_EMPTY: Final = ("reportingController", "reportingInstance")  # core/v1 always has them
_RENAMED_BACK: Final = {new: old for old, new in _RENAMED.items()}


def to_events_v1(event: Obj) -> Obj:
    """A core/v1 Event as events.k8s.io/v1; values are shared, not copied."""
    made = {_RENAMED.get(name, name): value for name, value in event.items()}
    for name in _OMITTED_IF_EMPTY:
        if not made.get(name):
            made.pop(name, None)
    made["apiVersion"] = EVENTS_VERSION
    made["kind"] = "Event"
    return made


def to_core_v1(event: Obj) -> Obj:
    """An events.k8s.io/v1 Event as core/v1; values are shared, not copied."""
    made = {_RENAMED_BACK.get(name, name): value for name, value in event.items()}
    made["apiVersion"] = CORE_VERSION
    made["kind"] = "Event"
    return made
