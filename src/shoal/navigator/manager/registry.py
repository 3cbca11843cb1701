"""Claims of clusters by edges: one edge per cluster at a time, by numbered claims.

Pure; ``now`` is in monotonic seconds. A claim gets the next epoch of its cluster, and older epochs are refused from
then on. While an edge holds a cluster, other edges are refused. When it is lost, only the same edge may return during
the grace period. A refused standby is given the time of its next attempt, so that it takes over when that period ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

_STANDBY_LONGEST_S = 5.0
_STANDBY_SHORTEST_S = 0.5


class RejectionReason(StrEnum):
    """Why a claim is refused; the names are those of the wire, without their prefix."""

    ACTIVE_CONNECTION_EXISTS = "ACTIVE_CONNECTION_EXISTS"
    RECENT_DISCONNECTION = "RECENT_DISCONNECTION"
    BAD_TOKEN = "BAD_TOKEN"
    STALE_EPOCH = "STALE_EPOCH"
    INVALID_IDENTIFICATION = "INVALID_IDENTIFICATION"
    INVALID_MESSAGE = "INVALID_MESSAGE"


@dataclass(frozen=True, slots=True)
class ClaimRefused:
    """``retry_after_s`` 0: the edge decides when to retry."""

    code: RejectionReason
    message: str
    retry_after_s: float = 0.0


@dataclass(frozen=True, slots=True)
class ClaimGranted:
    """``replaced`` is the epoch of the stream to end, 0 for none."""

    epoch: int
    replaced: int = 0


@dataclass(slots=True)
class _Holder:
    edge: str
    epoch: int  # the newest granted one
    active: bool
    lost_at: float = float("-inf")  # when it was last lost
    removing: bool = False  # its cluster is being removed: no edge may claim it


class ClaimRegistry:
    def __init__(self, *, grace_s: float) -> None:
        self._grace_s = grace_s
        self._holders: dict[str, _Holder] = {}

    def restore(self, cluster: str, edge: str, epoch: int, now: float) -> None:
        """Restore a stored claim of an earlier process; its edge counts as lost now."""
        self._holders[cluster] = _Holder(edge, epoch, active=False, lost_at=now)

    def claim(self, cluster: str, edge: str, now: float) -> ClaimGranted | ClaimRefused:
        holder = self._holders.get(cluster)
        if holder is None:
            self._holders[cluster] = _Holder(edge, 1, active=True)
            return ClaimGranted(1)
        if holder.removing:
            return ClaimRefused(
                RejectionReason.RECENT_DISCONNECTION, f"cluster {cluster!r} is being removed", _STANDBY_SHORTEST_S
            )
        if holder.edge != edge and (refused := self._occupied(cluster, holder, now)) is not None:
            return refused
        replaced = holder.epoch if holder.active else 0
        holder.edge, holder.epoch, holder.active = edge, holder.epoch + 1, True
        return ClaimGranted(holder.epoch, replaced)

    def release(self, cluster: str, epoch: int, now: float) -> bool:
        """The stream of this epoch has ended; False when a newer epoch holds the cluster."""
        if not self.holds(cluster, epoch):
            return False
        holder = self._holders[cluster]
        holder.active, holder.lost_at = False, now
        return True

    def begin_removal(self, cluster: str) -> bool:
        """Reserve a cluster while its data are removed; False when an edge holds it, or it is being removed already.
        Claims are refused until ``end_removal``."""
        holder = self._holders.setdefault(cluster, _Holder("", 0, active=False))
        if holder.active or holder.removing:
            return False
        holder.removing = True
        return True

    def end_removal(self, cluster: str, *, removed: bool) -> None:
        """The data are ``removed``, so the epochs start at 1 again, or the removal has failed."""
        if removed:
            del self._holders[cluster]
        else:
            self._holders[cluster].removing = False

    def holds(self, cluster: str, epoch: int) -> bool:
        holder = self._holders.get(cluster)
        return holder is not None and holder.active and holder.epoch == epoch

    def epoch(self, cluster: str) -> int:
        """The newest granted epoch; 0: none."""
        holder = self._holders.get(cluster)
        return holder.epoch if holder is not None else 0

    def _occupied(self, cluster: str, holder: _Holder, now: float) -> ClaimRefused | None:
        if holder.active:
            # Often enough to retry within a grace period, whose end is then given exactly.
            again_s = min(_STANDBY_LONGEST_S, max(_STANDBY_SHORTEST_S, self._grace_s / 2))
            return ClaimRefused(
                RejectionReason.ACTIVE_CONNECTION_EXISTS,
                f"cluster {cluster!r} is held by edge {holder.edge!r}: one edge per cluster",
                again_s,
            )
        left_s = holder.lost_at + self._grace_s - now
        if left_s > 0:
            return ClaimRefused(
                RejectionReason.RECENT_DISCONNECTION,
                f"edge {holder.edge!r} was lost a moment ago and may return to cluster {cluster!r}",
                left_s,
            )
        return None
