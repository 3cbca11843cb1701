"""The circuit breaker around the calls of one part of the agent: the agent itself (joining, heartbeats) or a controller
(opening its stream, reports, questions). Each part has its own, so that one that fails does not stop the others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from shoal.base.breaker import Breaker, BreakerState
from shoal.base.clock import Clock
from shoal.errors import ApiError, BadRequest, Forbidden, NotFound, Unauthorized
from shoal.krane.config import Limits
from shoal.krane.model import NextAddress

_ANSWERS = (NotFound, BadRequest, Forbidden, Unauthorized)  # errors that only a working control plane gives
_NUMBER = {BreakerState.CLOSED: 0.0, BreakerState.HALF_OPEN: 1.0, BreakerState.OPEN: 2.0}


class _AlreadyCounted(BaseException):
    """A failure that is counted with another call; like a cancelled one it says nothing to the breaker."""

    def __init__(self, error: ApiError) -> None:
        self.error = error


class Guard:
    def __init__(self, name: str, *, clock: Clock, limits: Limits) -> None:
        self._clock = clock
        self._breaker = Breaker(
            f"control plane ({name})", clock=clock, threshold=limits.breaker_threshold, open_s=limits.breaker_open_s
        )
        self._outage_s = float("-inf")  # when a call failed last, on the monotonic clock

    @contextmanager
    def calling(self) -> Iterator[None]:
        """Around a call of the control plane. An answer counts as success, whatever it says; calls that were under way
        together and fail together, because one connection broke, count as one. ``ServiceUnavailable`` while open."""
        began_s = self._clock.monotonic()
        answer: ApiError
        try:
            with self._breaker:
                try:
                    yield
                    return
                except _ANSWERS as error:
                    answer = error
                except NextAddress as error:
                    raise _AlreadyCounted(error) from None  # only all of them together are the control plane
                except ApiError as error:
                    if began_s <= self._outage_s:
                        raise _AlreadyCounted(error) from None
                    self._outage_s = self._clock.monotonic()
                    raise
        except _AlreadyCounted as same:
            raise same.error from None
        raise answer

    async def until_allowed(self) -> None:
        """Return once a call may be tried."""
        while (wait_s := self._breaker.retry_after_s) > 0:
            await self._clock.sleep(wait_s)

    def heard(self) -> None:
        """The control plane is known to answer from another part's calls."""
        self._breaker.succeeded()

    @property
    def paused(self) -> bool:
        return self._breaker.state is BreakerState.OPEN

    @property
    def state(self) -> str:
        return str(self._breaker.state)

    @property
    def number(self) -> float:
        """The state as its metric has it."""
        return _NUMBER[self._breaker.state]
