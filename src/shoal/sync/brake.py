"""The deletion brake: an agent that is about to delete much more than usual stops and asks a person.

It counts the deletions of the last ten minutes. Past the larger of five and a tenth of all objects, it holds back
every further one until a user confirms. Deletions by a user's request do not count. Pure: ``now`` is given.
"""

from __future__ import annotations

from collections import deque

WINDOW_S = 600.0
LEAST = 5
FRACTION = 0.10


class DeletionBrake:
    def __init__(self, *, window_s: float = WINDOW_S, least: int = LEAST, fraction: float = FRACTION) -> None:
        self._window_s = window_s
        self._least = least
        self._fraction = fraction
        self._done: deque[tuple[float, str]] = deque()
        self._held: dict[str, float] = {}  # key → since when

    def allow(self, key: str, now: float, known: int) -> bool:
        """Whether a key may be deleted now, out of ``known`` objects; if not, it is held until confirmed."""
        self._expire(now)
        if any(done == key for _, done in self._done):
            return True  # the same deletion, tried again
        limit = max(self._least, int(self._fraction * (known + len(self._done))))
        if self._held.keys() - {key} or len(self._done) >= limit:
            self._held.setdefault(key, now)
            return False
        self._held.pop(key, None)
        self._done.append((now, key))
        return True

    def room(self, now: float, known: int) -> int:
        """How many more keys may be deleted now, out of ``known`` objects; none while something is held."""
        self._expire(now)
        limit = max(self._least, int(self._fraction * (known + len(self._done))))
        return 0 if self._held else max(0, limit - len(self._done))

    def remember(self, key: str, at: float) -> None:
        """A deletion that was done before this brake was made; it counts, and is not judged again."""
        self._done.append((at, key))

    def hold(self, key: str, now: float) -> None:
        """Hold a key back regardless of the count, because many come at once or it needs a confirmation."""
        self._held.setdefault(key, now)

    def confirm(self, now: float) -> list[str]:
        """A user confirms all held keys: return them and restart the count."""
        released = list(self._held)
        self._held.clear()
        self._done.clear()
        self._done.extend((now, key) for key in released)
        return released

    def forget(self, key: str) -> None:
        """The key is wanted again, or was deleted by a user."""
        self._held.pop(key, None)

    @property
    def held(self) -> list[str]:
        """Keys that wait for a user's confirmation."""
        return list(self._held)

    def reason(self) -> str:
        """The reason for holding, for users; empty while nothing is held."""
        if not self._held:
            return ""
        minutes = int(self._window_s // 60)
        return (
            f"{len(self._done)} objects were deleted within {minutes} minutes and {len(self._held)} more should be: "
            "more than usual, so they wait; check that they should be deleted, then confirm"
        )

    def _expire(self, now: float) -> None:
        while self._done and self._done[0][0] <= now - self._window_s:
            self._done.popleft()
