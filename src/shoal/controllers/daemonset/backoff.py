"""Backoff before a failed pod of a DaemonSet is deleted and replaced, per node."""

from __future__ import annotations

from typing import Final

_FIRST_S: Final = 1.0
_LONGEST_S: Final = 900.0

Key = tuple[str, int, str]  # uid and observed generation of the set, node


class FailedPods:
    """Backoff per node; the caller passes monotonic times."""

    def __init__(self) -> None:
        self._known: dict[Key, tuple[float, float]] = {}  # delay, start

    def remaining_s(self, key: Key, now_s: float) -> float:
        """How long to wait before the failed pod may be deleted; 0: now."""
        delay_s, since_s = self._known.get(key, (0.0, 0.0))
        return max(0.0, since_s + delay_s - now_s)

    def failed(self, key: Key, now_s: float) -> None:
        """Record that a failed pod is deleted now."""
        delay_s, since_s = self._known.get(key, (0.0, now_s))
        idle = now_s - since_s > 2 * _LONGEST_S
        self._known[key] = (_FIRST_S if idle or not delay_s else min(2 * delay_s, _LONGEST_S)), now_s

    def forget(self, uid: str) -> None:
        for key in [key for key in self._known if key[0] == uid]:
            del self._known[key]
