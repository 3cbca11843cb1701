"""Fencing: an elected leader may write only while it certainly holds its lease.

A ``Fence`` knows the lease, the holder and the term (``leaseTransitions``), and until when, on this process'
monotonic clock, the lease is certainly held. A client with a fence drops writes past that deadline and sends the
fence with every other one; a server that understands the header checks it in the transaction of the write.
"""

from __future__ import annotations

from shoal.base.clock import Clock
from shoal.client.errors import LostLease

HEADER = "shoal-fence"


class Fence:
    """The lease holder and the deadline for its writes. The lease renewal moves it; clients read it."""

    __slots__ = ("_clock", "_deadline_s", "_holder", "_key", "_transitions")

    def __init__(self, namespace: str, lease: str, holder: str, *, clock: Clock) -> None:
        self._key = f"{namespace}/{lease}"
        self._holder = holder
        self._clock = clock
        self._transitions: int | None = None  # None: not held
        self._deadline_s = 0.0  # monotonic

    def begin(self, transitions: int, deadline_s: float) -> None:
        """A term starts; ``deadline_s`` is a reading of the monotonic clock."""
        self._transitions, self._deadline_s = transitions, deadline_s

    def extend(self, deadline_s: float) -> None:
        """The lease was renewed. Never moves the deadline back: a late answer must not."""
        self._deadline_s = max(self._deadline_s, deadline_s)

    def end(self) -> None:
        """The term is over: from now on no write passes."""
        self._transitions = None

    @property
    def held(self) -> bool:
        return self._transitions is not None and self._clock.monotonic() < self._deadline_s

    @property
    def remaining_s(self) -> float:
        """Seconds for which the lease is certainly held; 0 when it is not."""
        return max(0.0, self._deadline_s - self._clock.monotonic()) if self._transitions is not None else 0.0

    def header(self) -> str:
        """The header's value for a write that is sent now; ``LostLease`` when the lease is not held."""
        if not self.held:
            raise LostLease(f"the lease {self._key} is not held by {self._holder}; the write was not sent")
        return f"{self._key};{self._holder};{self._transitions}"
