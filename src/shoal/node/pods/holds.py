"""Containers of a pod whose start failed: the waiting reason in the status, and the time of the next attempt."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from shoal.node.containers import ContainerWait

SANDBOX = ""  # in place of a container's name: the pod's volumes or sandbox
_SHOWN_S = 5.0  # how long ErrImagePull is shown before ImagePullBackOff


@dataclass(frozen=True, slots=True)
class _Hold:
    wait: ContainerWait
    retry_at: float
    later_at: float | None = None  # from then on ``later`` is shown
    later: ContainerWait | None = None


class Holds:
    """Holds by container name. ``backing_off`` gives the waiting reason that replaces a failed pull's."""

    def __init__(self, backing_off: Callable[[str, ContainerWait], ContainerWait]) -> None:
        self._backing_off = backing_off
        self._holds: dict[str, _Hold] = {}

    def set(self, name: str, wait: ContainerWait, retry_at: float) -> None:
        self._holds[name] = _Hold(wait, retry_at)

    def set_pull(self, name: str, wait: ContainerWait, retry_at: float, now: float) -> None:
        """Hold a container whose pull failed; its waiting reason changes to backing off after a few seconds."""
        self._holds[name] = _Hold(wait, retry_at, now + min(_SHOWN_S, (retry_at - now) / 2))

    def clear(self, name: str) -> None:
        self._holds.pop(name, None)

    def retry(self, *reasons: str) -> None:
        """Allow an immediate retry of containers held for these reasons, and of the sandbox."""
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
                hold = self._holds[name] = replace(hold, later=self._backing_off(name, hold.wait))
            if name != SANDBOX:
                found[name] = hold.later or hold.wait
        return found

    def next_at(self) -> float | None:
        """When the next waiting reason changes."""
        due = [hold.later_at for hold in self._holds.values() if hold.later is None and hold.later_at is not None]
        return min(due, default=None)
