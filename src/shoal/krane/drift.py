"""How often drift of one object is corrected. Pure: ``now`` is given.

If another client keeps changing an object, the agent must not write without end: each correction of the same object
waits twice as long as the one before. An object without drift for a while starts again with the shortest wait.
"""

from __future__ import annotations

_FORGOTTEN_AFTER = 4  # times the wait


class Drift:
    def __init__(self, *, base_s: float, cap_s: float) -> None:
        self._base_s = base_s
        self._cap_s = cap_s
        self._last: dict[str, tuple[float, int]] = {}  # when, and how many in a row

    def correct(self, key: str, now: float) -> float:
        """0: correct it now, which counts. Otherwise in how many seconds to look again."""
        last_s, count = self._last.get(key, (0.0, 0))
        wait_s = min(self._cap_s, self._base_s * 2.0 ** min(count - 1, 30)) if count else 0.0
        if count and now - last_s >= wait_s * _FORGOTTEN_AFTER:
            count, wait_s = 0, 0.0
        left_s = last_s + wait_s - now
        if count and left_s > 0:
            return left_s
        self._last[key] = (now, count + 1)
        return 0.0

    def forget(self, key: str) -> None:
        self._last.pop(key, None)
