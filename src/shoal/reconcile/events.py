"""The event recorder: writes Kubernetes events for users, without delaying the component.

``record`` puts the event into a bounded queue and returns; a task writes it. When the queue is full, the oldest event
is dropped and counted. A repeated event increases the count of the existing one, and an object that causes too many is
muted for a while.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field
from enum import StrEnum

from shoal.base.bounded import Closed, DroppingQueue
from shoal.base.clock import Clock
from shoal.base.logs import get_logger
from shoal.client import Client, TransportError, builtin
from shoal.errors import ApiError, ConfigError, NotFound
from shoal.kube.objects import Obj
from shoal.kube.times import format_micro_time, format_time
from shoal.reconcile.queue import TokenBucket

log = get_logger("reconcile.events")

_MESSAGE_LIMIT = 1024


class EventType(StrEnum):
    NORMAL = "Normal"
    WARNING = "Warning"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecorderConfig:
    """Limits of a recorder."""

    new_api: bool = False  # write events.k8s.io/v1 instead of core/v1
    queue: int = 1000
    remembered: int = 4096  # events and objects remembered to detect repeats
    series_s: float = 600.0  # after a longer pause, the same event is a new one
    burst: int = 25  # events per object before it is muted
    refill_s: float = 300.0  # time after which one more is allowed

    def __post_init__(self) -> None:
        if min(self.queue, self.remembered, self.burst) < 1 or min(self.series_s, self.refill_s) <= 0:
            raise ConfigError("events: queue, remembered and burst must be 1 or more, series_s and refill_s above 0")


@dataclass(frozen=True, slots=True)
class _Occurrence:
    """One call of ``record``: the fields that identify a repeat, and the time."""

    reference: tuple[tuple[str, str], ...]
    type: str
    reason: str
    message: str
    action: str
    component: str
    at: float = field(compare=False)  # wall time
    namespace: str = field(compare=False, default="default")


@dataclass(slots=True)
class _Written:
    """The event object of all repeats of one ``_Occurrence``."""

    name: str
    count: int
    last_at: float


class EventRecorder:
    """Records events of one component. ``run`` is its task; ``stop`` writes queued events and ends it."""

    def __init__(
        self,
        client: Client,
        component: str,
        instance: str,
        *,
        clock: Clock,
        new_suffix: Callable[[], str],
        config: RecorderConfig | None = None,
    ) -> None:
        self._config = config or RecorderConfig()
        group = "events.k8s.io" if self._config.new_api else ""
        self._events = client.of(builtin("events", group))
        self._component = component
        self._instance = instance
        self._clock = clock
        self._new_suffix = new_suffix
        self._queue: DroppingQueue[_Occurrence] = DroppingQueue(self._config.queue)
        self._written: OrderedDict[_Occurrence, _Written] = OrderedDict()  # least recently used first
        self._budgets: OrderedDict[tuple[tuple[str, str], ...], TokenBucket] = OrderedDict()
        self.name = f"events/{component}"
        self.muted = 0  # not written because their object caused too many
        self.failed = 0  # not written because the server refused them

    @property
    def dropped(self) -> int:
        """Number of events dropped because the queue was full."""
        return self._queue.dropped

    def named(self, component: str) -> EventRecorder:
        """A recorder for another component of the same process, sharing this one's queue and task."""
        other = copy(self)
        other._component = component
        return other

    def record(
        self,
        obj: Obj,
        type: EventType,
        reason: str,
        message: str,
        *,
        action: str = "",
        kind: str = "",
        field_path: str = "",
    ) -> None:
        """Record an event about ``obj``, or about its part at ``field_path``. Never waits and never fails. ``reason``
        is one word from a closed set; ``kind`` is needed for objects without ``kind``."""
        about = obj["metadata"]
        reference = {
            "apiVersion": obj.get("apiVersion", ""),
            "kind": kind or obj.get("kind", ""),
            "namespace": about.get("namespace") or "",
            "name": about["name"],
            "uid": about.get("uid") or "",
            "fieldPath": field_path,
        }
        said = _Occurrence(
            tuple((name, value) for name, value in reference.items() if value),
            type.value,
            reason,
            message if len(message.encode()) <= _MESSAGE_LIMIT else _shortened(message),
            action or reason,
            self._component,
            self._clock.wall_s(),
            reference["namespace"] or "default",
        )
        try:
            self._queue.put(said)
        except Closed:
            self.failed += 1

    async def run(self) -> None:
        """Write events until ``stop``."""
        while True:
            try:
                said = await self._queue.get()
            except Closed:
                return
            try:
                await self._write(said)
            except (ApiError, TransportError) as error:
                self.failed += 1
                log_at = log.info if _namespace_is_gone(error) else log.warning
                log_at("event not written", reason=str(error), event=said.reason)

    def stop(self) -> None:
        self._queue.close()

    async def _write(self, said: _Occurrence) -> None:
        if not self._allowed(said):
            self.muted += 1
            return
        known = self._written.get(said)
        if known is not None and said.at - known.last_at <= self._config.series_s:
            try:
                await self._events.patch(known.name, self._repeat(said, known.count + 1), said.namespace)
            except NotFound:
                pass  # it has expired: create a new one
            else:
                known.count += 1
                known.last_at = said.at
                self._written.move_to_end(said)
                return
        # names sort by time, so that lists and descriptions show events in order
        name = f"{dict(said.reference)['name'][:200]}.{int(said.at * 1e9):x}{self._new_suffix()}"
        await self._events.create(self._event(said, name))
        self._written[said] = _Written(name, 1, said.at)
        self._written.move_to_end(said)
        if len(self._written) > self._config.remembered:
            self._written.popitem(last=False)

    def _allowed(self, said: _Occurrence) -> bool:
        budget = self._budgets.get(said.reference)
        if budget is None:
            budget = TokenBucket(1 / self._config.refill_s, self._config.burst, clock=self._clock)
            self._budgets[said.reference] = budget
            if len(self._budgets) > self._config.remembered:
                self._budgets.popitem(last=False)
        self._budgets.move_to_end(said.reference)
        return budget.take()

    def _event(self, said: _Occurrence, name: str) -> Obj:
        about = {"name": name, "namespace": said.namespace}
        reference, at = dict(said.reference), said.at
        if self._config.new_api:
            return {
                "metadata": about,
                "eventTime": format_micro_time(at),
                "reportingController": said.component,
                "reportingInstance": self._instance,
                "action": said.action,
                "reason": said.reason,
                "regarding": reference,
                "note": said.message,
                "type": said.type,
            }
        return {
            "metadata": about,
            "involvedObject": reference,
            "reason": said.reason,
            "message": said.message,
            "source": {"component": said.component},
            "firstTimestamp": format_time(at),
            "lastTimestamp": format_time(at),
            "count": 1,
            "type": said.type,
            "reportingComponent": said.component,
            "reportingInstance": self._instance,
        }

    def _repeat(self, said: _Occurrence, count: int) -> Obj:
        if self._config.new_api:
            return {"series": {"count": count, "lastObservedTime": format_micro_time(said.at)}}
        return {"count": count, "lastTimestamp": format_time(said.at)}


def _namespace_is_gone(error: Exception) -> bool:
    """Whether the namespace of the event is deleted or terminating, so that the event can be dropped."""
    if isinstance(error, NotFound):
        return True
    return isinstance(error, ApiError) and any(each.get("reason") == "NamespaceTerminating" for each in error.causes)


def _shortened(message: str) -> str:
    return message.encode()[: _MESSAGE_LIMIT - 3].decode(errors="ignore") + "..."
