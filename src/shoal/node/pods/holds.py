"""Why containers of a pod are not started for now, and until when."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from shoal.node.containers import ContainerWait

SANDBOX = ""  # the pod itself: its volumes or its sandbox
_SHOWN_S = 5.0  # how long a failed pull is shown as such before it is shown as backing off


@dataclass(frozen=True, slots=True)
class _Hold:
    wait: ContainerWait
    retry_at: float
    later_at: float | None = None  # from then on it is shown in other words
    later: ContainerWait | None = None


class Holds:
    """By container name. ``rename`` makes the words that a failed pull has once it is old news."""

    def __init__(self, rename: Callable[[str, ContainerWait], ContainerWait]) -> None:
        self._rename = rename
        self._holds: dict[str, _Hold] = {}

    def set(self, name: str, wait: ContainerWait, retry_at: float) -> None:
        self._holds[name] = _Hold(wait, retry_at)

    def set_pull(self, name: str, wait: ContainerWait, retry_at: float, now: float) -> None:
        """A pull failed: shown as such first, as backing off later."""
        self._holds[name] = _Hold(wait, retry_at, now + min(_SHOWN_S, (retry_at - now) / 2))

    def clear(self, name: str) -> None:
        self._holds.pop(name, None)

    def retry(self, *reasons: str) -> None:
        """Retry at once what was held for these reasons, or for its volumes."""
        for name, hold in tuple(self._holds.items()):
            if hold.wait.reason in reasons:
                self._holds[name] = replace(hold, retry_at=0.0)
        self.clear(SANDBOX)

    def retry_at(self) -> dict[str, float]:
        return {name: hold.retry_at for name, hold in self._holds.items()}

    def waits(self, now: float) -> dict[str, ContainerWait]:
        """The waiting reason of each held container."""
        found: dict[str, ContainerWait] = {}
        for name, hold in tuple(self._holds.items()):
            if hold.later is None and hold.later_at is not None and now >= hold.later_at:
                hold = self._holds[name] = replace(hold, later=self._rename(name, hold.wait))
            if name != SANDBOX:
                found[name] = hold.later or hold.wait
        return found

    def next_at(self) -> float | None:
        """When the words change next."""
        due = [hold.later_at for hold in self._holds.values() if hold.later is None and hold.later_at is not None]
        return min(due, default=None)
