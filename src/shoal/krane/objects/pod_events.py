"""Reads the warnings of pods that do not become ready and whose status does not say why: a volume that cannot be
mounted, a sandbox that cannot be made.

Such pods are few, so their events are asked for by pod, each time they are looked at less often. A watch would bring
the events of the whole cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from shoal.base.clock import Clock
from shoal.base.logs import get_logger
from shoal.client import Client, Scope, TransportError, builtin
from shoal.errors import ApiError
from shoal.kube.objects import Obj

log = get_logger("krane.objects")

LOOK_S = 5.0
_AGAIN_S, _AGAIN_MOST_S = 15.0, 240.0
_AT_ONCE = 10  # pods that are asked for in one look
_MESSAGE_LENGTH = 1000
_EVENTS = builtin("events")


@dataclass(slots=True)
class _Lookup:
    """A pod that was unexplained at the last look."""

    next_s: float  # when to ask for its events
    pause_s: float = _AGAIN_S
    warning: tuple[str, str] = ("", "")


class PodEvents:
    """``run`` it as a task. ``unexplained`` gives the pods that nothing else explains; ``changed`` is called with a pod
    of which something new is known."""

    def __init__(
        self,
        client: Client,
        *,
        clock: Clock,
        unexplained: Callable[[], Iterable[Obj]],
        changed: Callable[[Obj], None],
    ) -> None:
        self._client = client
        self._clock = clock
        self._unexplained = unexplained
        self._changed = changed
        self._asked: dict[str, _Lookup] = {}  # by uid

    def warning(self, pod: Obj) -> tuple[str, str]:
        """Reason and message of its newest warning, as far as known."""
        asked = self._asked.get(pod["metadata"].get("uid", ""))
        return asked.warning if asked is not None else ("", "")

    async def run(self) -> None:
        while True:
            await self._clock.sleep(LOOK_S)
            await self.look()

    async def look(self) -> None:
        """Pods that were unexplained at the look before too are asked for."""
        now = self._clock.monotonic()
        pods = {pod["metadata"]["uid"]: pod for pod in self._unexplained()}
        self._asked = {uid: self._asked.get(uid) or _Lookup(now) for uid in pods}
        due = sorted((uid for uid, each in self._asked.items() if each.next_s < now), key=self._due)
        for uid in due[:_AT_ONCE]:
            asked = self._asked[uid]
            asked.next_s, asked.pause_s = now + asked.pause_s, min(2 * asked.pause_s, _AGAIN_MOST_S)
            try:
                found = await self._newest(pods[uid])
            except (ApiError, TransportError) as error:  # an administrator has not granted it, or it passes
                log.debug("the events of a pod cannot be read", pod=pods[uid]["metadata"]["name"], reason=str(error))
                return
            if found != asked.warning:
                asked.warning = found
                self._changed(pods[uid])

    def _due(self, uid: str) -> float:
        return self._asked[uid].next_s

    async def _newest(self, pod: Obj) -> tuple[str, str]:
        about = pod["metadata"]
        selector = f"involvedObject.uid={about['uid']},type=Warning"
        found = await self._client.of(_EVENTS).list(Scope(namespace=about["namespace"], field_selector=selector))
        if not found.items:
            return "", ""
        newest = max(found.items, key=_seen_at)
        return str(newest.get("reason") or ""), str(newest.get("message") or "")[:_MESSAGE_LENGTH]


def _seen_at(event: Obj) -> str:
    """When it was seen last. All forms begin alike, so they compare as text."""
    series = event.get("series") or {}
    times = (series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime"))
    return max((str(each) for each in times if each), default="")
