"""Tokens that need no further look-up for a while, because the ends of tokens are read several times a second.

An agent calls every few seconds, so a short cache would mean a look-up per call. Here a token is cached for a minute,
but only while the list of ended tokens was read a moment ago. Ended tokens are dropped at once, and tokens that are
being rotated are not cached at all. Nothing here waits.
"""

from __future__ import annotations

from shoal.base.ids import token_digest
from shoal.control.database.tokens import Principal

_BELIEVED_S = 60.0
_GUARD_S = 0.9  # how old the guard's last look may be
_MOST = 20_000


class TokenCache:
    def __init__(self) -> None:
        self._known: dict[str, tuple[Principal, float]] = {}  # by digest, until a monotonic moment
        self._looked_at = float("-inf")
        self._doubted: frozenset[str] = frozenset()

    def get(self, text: str, now: float) -> Principal | None:
        if now - self._looked_at > _GUARD_S:
            return None
        found = self._known.get(token_digest(text))
        if found is None or found[1] <= now or found[0].token_id in self._doubted:
            return None
        return found[0]

    def put(self, digest: str, principal: Principal, asked_at: float) -> None:
        """``asked_at`` is when the database was asked: a look of the guard after that knows more."""
        if asked_at < self._looked_at or principal.token_id in self._doubted:
            return
        if len(self._known) >= _MOST:
            self._known.clear()
        self._known[digest] = (principal, asked_at + _BELIEVED_S)

    def looked(self, asked_at: float, doubted: set[str]) -> None:
        """The guard has asked, and these tokens ended or are being replaced."""
        self._looked_at = asked_at
        if doubted != self._doubted:
            self._doubted = frozenset(doubted)
        if doubted:
            self._known = {digest: known for digest, known in self._known.items() if known[0].token_id not in doubted}
