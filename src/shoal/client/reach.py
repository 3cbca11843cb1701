"""Whether a cluster's API server answers this process, as its own requests show.

All clients of one cluster share one ``Reach``. It costs no request of its own. The first request that fails logs one
line, and so does the first that succeeds again: whoever else sees ``TransportError.told`` need not repeat it.
"""

from __future__ import annotations

from shoal.base.clock import Clock
from shoal.base.logs import get_logger
from shoal.client.errors import TransportError

OUTAGE_S = 10.0  # shorter ones are no news to others than the log

log = get_logger("client")


class Reach:
    def __init__(self, url: str, *, clock: Clock) -> None:
        self._url = url
        self._clock = clock
        self._since_s: float | None = None  # of the first failure since the last success, on the monotonic clock
        self._told = False
        self.reason = ""  # why the last request failed; empty: it succeeded
        self.heard_s: float | None = None  # when the server last sent anything, on the monotonic clock

    def heard(self) -> None:
        """Something came from the server, for example on a watch."""
        self.heard_s = self._clock.monotonic()

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
        """Why the cluster cannot be reached; empty when it can, or when this began less than ``at_least_s`` ago."""
        return self.reason if self._since_s is not None and self.problem_s >= at_least_s else ""

    @property
    def problem_s(self) -> float:
        """For how long it could not be reached."""
        return 0.0 if self._since_s is None else self._clock.monotonic() - self._since_s

    def _fail(self, reason: str, *, tell: bool) -> None:
        self.reason = reason
        if self._since_s is None:
            self._since_s = self._clock.monotonic()
        if not self._told and (tell or self.problem_s >= OUTAGE_S):
            self._told = True
            log.warning("the cluster's API server cannot be used", url=self._url, reason=reason)

    def _succeed(self) -> None:
        self.heard()
        if self._told:
            log.warning("the cluster's API server answers again", url=self._url, outage_s=round(self.problem_s, 1))
        self._since_s, self._told, self.reason = None, False, ""
