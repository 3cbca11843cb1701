"""Which of the control planes and relays in a join file an agent calls.

The first URL is preferred. One that does not answer is left for the next, without a pause; only a caller that has tried
all of them waits. One that answers is kept; while it is not the first, the first is tried again from time to time.
"""

from __future__ import annotations

from shoal.base.clock import Clock

_PATIENCE_S = 10.0  # a control plane that answers, but only that it is unavailable, is left after this time


class Addresses:
    """One per connection. Each caller remembers in a set which URLs have failed it since it was last answered."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._urls: tuple[str, ...] = ()
        self._at = 0
        self._left_s = 0.0  # when the first was left, or tried last
        self._refusing_s: float | None = None  # since when the current one has only said that it is unavailable

    def choose(self, urls: tuple[str, ...]) -> str:
        """The URL to call, of those that the join file has now."""
        if urls != self._urls:
            kept = self._urls[self._at] if self._urls else ""
            self._at = urls.index(kept) if kept in urls else 0
            self._urls = urls
        return urls[self._at]

    def answered(self, url: str) -> None:
        if url == self._urls[self._at]:
            self._refusing_s = None

    def silent(self, url: str, tried: set[str]) -> bool:
        """``url`` did not answer. True when there is another one to try at once, which ``choose`` gives."""
        self._leave(url)
        tried.add(url)
        if all(each in tried for each in self._urls):
            tried.clear()
            return False
        return True

    def refused(self, url: str, tried: set[str]) -> bool:
        """``url`` answered that it is unavailable. As for ``silent``, once that has lasted."""
        now_s = self._clock.monotonic()
        if url != self._urls[self._at]:
            return self.silent(url, tried)
        if self._refusing_s is None:
            self._refusing_s = now_s
        return now_s - self._refusing_s >= _PATIENCE_S and self.silent(url, tried)

    def to_return_to(self, every_s: float) -> str:
        """The first URL, when another one is in use and it is time to try the first again; else nothing."""
        now_s = self._clock.monotonic()
        if self._at == 0 or now_s - self._left_s < every_s:
            return ""
        self._left_s = now_s
        return self._urls[0]

    def returned(self) -> None:
        self._at, self._refusing_s = 0, None

    def _leave(self, url: str) -> None:
        if url != self._urls[self._at]:
            return  # another call has left it
        if self._at == 0:
            self._left_s = self._clock.monotonic()
        self._at = (self._at + 1) % len(self._urls)
        self._refusing_s = None
