"""Logging in and out. Each way to log in is a ``LoginMethod``; attempts that fail are counted, and too many wait."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Protocol

import orjson

from shoal.base.clock import Clock
from shoal.control.database.sessions import OpenSession, Sessions
from shoal.errors import BadRequest, TooManyRequests

MOST_BODY_BYTES = 16 * 1024
_PEERS = 10_000  # remembered


class LoginMethod(Protocol):
    """One way to show who somebody is. ``field`` is that of the request's body which it reads."""

    field: str

    async def begin(self, text: str) -> OpenSession:
        """``Unauthorized`` says why not."""


class CodeLogin:
    """The code of a link, once."""

    field = "code"

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    async def begin(self, text: str) -> OpenSession:
        return await self._sessions.begin_with_code(text)


class TokenLogin:
    field = "token"

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    async def begin(self, text: str) -> OpenSession:
        return await self._sessions.begin_with_token(text)


class Allowance:
    """How many attempts may still fail: ``most`` at once, and ``per_s`` more as time passes."""

    def __init__(self, most: float, per_s: float) -> None:
        self._most = most
        self._per_s = per_s
        self._left = most
        self._at_s = 0.0

    def wait_s(self, now_s: float) -> float:
        """How long until the next attempt; 0: now."""
        self._left = min(self._most, self._left + (now_s - self._at_s) * self._per_s)
        self._at_s = now_s
        return max(0.0, (1.0 - self._left) / self._per_s)

    def add(self, attempts: float) -> None:
        self._left += attempts


class Login:
    """Begins sessions. Codes and tokens cannot be guessed: the limits keep attempts from being a load."""

    def __init__(self, methods: Sequence[LoginMethod], clock: Clock) -> None:
        self._methods = {method.field: method for method in methods}
        self._clock = clock
        self._everybody = Allowance(100, 10)
        self._peers: OrderedDict[str, Allowance] = OrderedDict()

    async def begin(self, body: bytes, peer: str) -> OpenSession:
        method, text = self._read(body)
        mine = self._allowance(peer)
        now_s = self._clock.monotonic()
        wait_s = max(mine.wait_s(now_s), self._everybody.wait_s(now_s))
        if wait_s > 0:
            raise TooManyRequests(
                f"too many attempts to log in failed: try again in {wait_s:.0f} s", retry_after_s=int(wait_s) + 1
            )
        mine.add(-1)  # at once, so that attempts beside each other count too
        self._everybody.add(-1)
        begun = await method.begin(text)
        mine.add(1)
        self._everybody.add(1)
        return begun

    def _read(self, body: bytes) -> tuple[LoginMethod, str]:
        try:
            found = orjson.loads(body)
        except orjson.JSONDecodeError:
            found = None
        if isinstance(found, dict) and len(found) == 1:
            ((field, text),) = found.items()
            if field in self._methods and isinstance(text, str) and text:
                return self._methods[field], text
        raise BadRequest(f"the body must be an object with one text: {' or '.join(self._methods)}")

    def _allowance(self, peer: str) -> Allowance:
        found = self._peers.pop(peer, None) or Allowance(20, 1 / 3)
        self._peers[peer] = found
        while len(self._peers) > _PEERS:
            self._peers.popitem(last=False)
        return found
