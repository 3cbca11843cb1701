"""Finds sentinel pods that have not reached their API server for a while.

Each pod writes its counters at least every 15 s (``shoal.sentinel.stats``). A pod that cannot reach the API server
keeps serving its last configuration, looks ready, and hears of no new route or instance: its counters stand still. Only
the agent's own time counts, because clocks of nodes differ; and while the agent itself does not see the counters, none
is judged.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from shoal.base.clock import Clock
from shoal.reconcile import Change

STALE_S = 30.0
LOOK_S = 5.0


class Silence:
    """``saw`` takes the changes of the ConfigMaps of counters; ``run`` it as a task."""

    def __init__(self, *, clock: Clock, watching: Callable[[], bool], changed: Callable[[str], None]) -> None:
        self._clock = clock
        self._watching = watching
        self._changed = changed
        self._seen: dict[str, float] = {}  # by pod
        self._stale: frozenset[str] = frozenset()
        self._heard: set[str] = set()  # pods that were seen to write since they were first seen, or went silent

    def saw(self, change: Change) -> None:
        before, after = [(obj or {}).get("data") or {} for obj in (change.old, change.new)]
        now = self._clock.monotonic()
        for pod in before.keys() - after.keys():
            self._seen.pop(pod, None)
            self._heard.discard(pod)
        self._heard |= {pod for pod, text in after.items() if pod in before and before[pod] != text}
        self._seen |= {pod: now for pod, text in after.items() if before.get(pod) != text}

    async def run(self) -> None:
        while True:
            await self._clock.sleep(LOOK_S)
            self.look()

    def look(self) -> None:
        """Judge every pod, and tell of those that went silent or are heard again."""
        now = self._clock.monotonic()
        if not self._watching():
            self._seen = dict.fromkeys(self._seen, now)
        stale = frozenset(pod for pod, at in self._seen.items() if now - at > STALE_S)
        told, self._stale = self._stale ^ stale, stale
        self._heard -= stale
        for pod in sorted(told):
            self._changed(pod)

    def is_heard(self, pod: str) -> bool:
        """Whether it was seen to write. One that is not stale may only not have been watched for long enough."""
        return pod in self._heard

    def stale(self, pods: Collection[str]) -> list[str]:
        """Those of ``pods`` that are silent, in order."""
        return sorted(self._stale.intersection(pods))
