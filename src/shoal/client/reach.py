"""Whether a cluster's API server answers this process, as its own requests show.

All clients of one cluster share one ``Reach``. It costs no request of its own. The first request that fails logs one
line, and so does the first that succeeds again: whoever else sees ``TransportError.told`` need not repeat it.
"""

from __future__ import annotations

from typing import Protocol

from shoal.base.clock import Clock
from shoal.base.logs import get_logger
from shoal.client.errors import TransportError

OUTAGE_S = 10.0  # shorter ones are no news to others than the log

log = get_logger("client")


class Outage(Protocol):
    """Whether the API server can be used."""

    def problem(self, at_least_s: float = 0.0) -> str:
        """Why not; empty when it can, or when that began less than ``at_least_s`` ago."""

    @property
    def problem_s(self) -> float:
        """For how long it could not be used."""

    @property
    def unheard_s(self) -> float:
        """How long ago it answered last."""


class NoOutage:
    """In the process of the API server."""

    problem_s = 0.0
    unheard_s = 0.0

    def problem(self, at_least_s: float = 0.0) -> str:
        return ""


class Reach:
    """Implements ``Outage``."""

    def __init__(self, url: str, *, clock: Clock) -> None:
        self._url = url
        self._clock = clock
        self._since_s: float | None = None  # of the first failure since the last success, on the monotonic clock
        self._told = False
        self.reason = ""  # why the last request failed; empty: it succeeded
        self._answered_s = clock.monotonic()

    def answered(self, status: int, reason: str = "") -> None:
        """The server answered a request. A refusal of the credentials is as bad as none; so is an error of its own, as
        long as nothing succeeds."""
        if status == 401:
            self._fail(f"it refuses the credentials: {reason or 'Unauthorized'}", tell=True)
        elif status >= 500:
            self._fail(f"it answers {status}: {reason or 'an internal error'}", tell=False)
        else:
            self._succeed()

    def failed(self, error: Exception) -> None:
        """No answer came, or there are no credentials to ask with."""
        self._fail(str(error) or type(error).__name__, tell=True)
        if isinstance(error, TransportError):
            error.told = True

    def problem(self, at_least_s: float = 0.0) -> str:
        return self.reason if self._since_s is not None and self.problem_s >= at_least_s else ""

    @property
    def problem_s(self) -> float:
        return 0.0 if self._since_s is None else self._clock.monotonic() - self._since_s

    @property
    def unheard_s(self) -> float:
        return self._clock.monotonic() - self._answered_s

    def _fail(self, reason: str, *, tell: bool) -> None:
        self.reason = reason
        if self._since_s is None:
            self._since_s = self._clock.monotonic()
        if not self._told and (tell or self.problem_s >= OUTAGE_S):
            self._told = True
            log.warning("the cluster's API server cannot be used", url=self._url, reason=reason)

    def _succeed(self) -> None:
        self._answered_s = self._clock.monotonic()
        if self._told:
            log.warning("the cluster's API server answers again", url=self._url, outage_s=round(self.problem_s, 1))
        self._since_s, self._told, self.reason = None, False, ""
