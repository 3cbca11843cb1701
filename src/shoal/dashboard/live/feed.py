"""A feed: rows that many pages show, computed once while at least one shows them.

A *source* is a generator that yields all rows whenever there may be something new. The feed finds what differs and
hands it to its subscriptions. A subscription holds one difference, to which later ones are added while its page is
slow; when that has grown larger than the rows themselves, the page gets these instead. So a page costs at most what it
shows, however slow it is.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import msgspec
import orjson

from shoal.base.backoff import Backoff
from shoal.base.clock import Clock
from shoal.base.logs import get_logger
from shoal.dashboard.live.plan import NOTHING, Patch, Rows, difference, together
from shoal.errors import ApiError, InternalError

_AGAIN = Backoff(base_s=0.5, cap_s=10.0)
_FEW = 64  # rows in a difference that is never too large

_log = get_logger("dashboard")


@dataclass(frozen=True, slots=True)
class Look:
    """All rows, as they were at a moment in milliseconds."""

    rows: Rows
    at_ms: int


Source = Callable[[], AsyncGenerator[Look, None]]


class Feed:
    """``run`` is started and ended by its owner."""

    def __init__(self, name: str, source: Source, clock: Clock) -> None:
        self.name = name
        self.subscriptions: set[Subscription] = set()
        self.idle_since_s = clock.monotonic()
        self._source = source
        self._clock = clock
        self._rows: Rows = {}
        self._at_ms = 0  # 0: there are no rows yet
        self._error: bytes = b""
        self._whole: bytes = b""  # encoded once for all who need everything

    @property
    def size(self) -> int:
        return len(self._rows)

    async def run(self) -> None:
        """Follow the source; what it raises is shown, and it is asked again after a while."""
        failures = 0
        while True:
            try:
                async with aclosing(self._source()) as looks:
                    async for look in looks:
                        failures = 0
                        self._take(look)
            except ApiError as error:
                self._fail(error)
            except Exception as error:
                _log.error("what a page shows cannot be computed", topic=self.name, error=error)
                self._fail(InternalError("internal error: find the details in the server's log"))
            failures += 1
            await self._clock.sleep(_AGAIN.bound_s(failures))

    def whole(self) -> bytes:
        """The message's part for a page that has nothing yet; empty before there is anything to tell."""
        if self._error:
            return self._error
        if not self._at_ms:
            return b""
        if not self._whole:
            self._whole = b'"reset":true,"rows":' + _json(self._rows) + b',"at":%d' % self._at_ms
        return self._whole

    def _take(self, look: Look) -> None:
        if not self._at_ms or self._error:
            self._rows, self._at_ms, self._error, self._whole = look.rows, look.at_ms, b"", b""
            for each in self.subscriptions:
                each.begin_again()
            return
        patch = difference(self._rows, look.rows)
        self._at_ms = look.at_ms
        if not patch:
            return
        self._rows, self._whole = look.rows, b""
        if self.subscriptions:
            shared = Encoded(patch, look.at_ms)
            for each in self.subscriptions:
                each.offer(shared)

    def _fail(self, error: ApiError) -> None:
        told = b'"error":' + _json({"code": error.reason, "message": error.message, "fix": _fix(error)})
        if told != self._error:
            self._error, self._whole = told, b""
            for each in self.subscriptions:
                each.begin_again()


class Encoded:
    """A difference as text, made when the first page needs it."""

    __slots__ = ("_text", "at_ms", "patch")

    def __init__(self, patch: Patch, at_ms: int) -> None:
        self.patch = patch
        self.at_ms = at_ms
        self._text = b""

    def text(self) -> bytes:
        if not self._text:
            parts = []
            if self.patch.dropped:
                parts.append(b'"drop":' + _json(sorted(self.patch.dropped)))
            if self.patch.changed:
                parts.append(b'"set":' + _json(self.patch.changed))
            self._text = b",".join([*parts, b'"at":%d' % self.at_ms])
        return self._text


class Subscription:
    """A feed on one page, under the id that the page has given it."""

    __slots__ = ("_feed", "_id", "_is_new", "_waiting", "_wake")

    def __init__(self, feed: Feed, id_: int, wake: Callable[[], None]) -> None:
        self._feed = feed
        self._id = id_
        self._wake = wake
        self._is_new = True  # the page gets everything next
        self._waiting: Encoded | None = None

    def begin_again(self) -> None:
        self._is_new, self._waiting = True, None
        self._wake()

    def offer(self, told: Encoded) -> None:
        if self._is_new:
            return  # what it will get has this already
        before = self._waiting.patch if self._waiting is not None else NOTHING
        added = Encoded(together(before, told.patch), told.at_ms) if before else told
        if len(added.patch.changed) + len(added.patch.dropped) > max(_FEW, self._feed.size):
            return self.begin_again()
        self._waiting = added
        self._wake()

    def take(self) -> bytes:
        """The next message; empty when there is nothing to say."""
        if self._is_new:
            body = self._feed.whole()
            self._is_new = not body
        else:
            body, self._waiting = self._waiting.text() if self._waiting is not None else b"", None
        return b'{"id":%d,%b}' % (self._id, body) if body else b""


def _json(value: Any) -> bytes:
    return orjson.dumps(value, default=msgspec.to_builtins)


def _fix(error: ApiError) -> str:
    return str(error.details.get("fix") or "")
