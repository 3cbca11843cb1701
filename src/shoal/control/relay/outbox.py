"""Reports and heartbeats that wait while the control plane is unreachable: the newest report per object and the newest
heartbeat per place, forwarded in order afterwards. Bounded and pure.

Reports keep their sequence numbers, so the control plane orders them as if they came directly from the agent. New
reports of a place queue behind its waiting ones, and its heartbeat comes last: by then the reports in its digest have
been forwarded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shoal.sync.keys import Place, StreamKind
from shoal.wire.fleet.v1 import cluster_pb as pb

Report = pb.DeploymentReport | pb.SentinelReport


@dataclass(frozen=True, slots=True)
class Sender:
    """An agent as it spoke: its identity, and the token it showed."""

    identity: pb.Identity
    token: str

    @property
    def place(self) -> Place:
        return Place(self.identity.cluster, self.identity.shard)


@dataclass(frozen=True, slots=True)
class Forward:
    """To be passed on now: reports of one sequence, or a heartbeat."""

    sender: Sender
    stream: StreamKind | None  # None: a heartbeat
    sequence: int
    reports: tuple[Report, ...] = ()
    times: tuple[pb.HopTimes, ...] = ()
    heartbeat: pb.HeartbeatRequest | None = None


@dataclass(frozen=True, slots=True)
class _Kept:
    sender: Sender
    sequence: int
    report: Report
    times: pb.HopTimes | None

    @property
    def order(self) -> tuple[int, int]:
        return self.sender.identity.epoch, self.sequence


class Outbox:
    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._count = 0
        self._reports: dict[Place, dict[tuple[StreamKind, str], _Kept]] = {}
        self._heartbeats: dict[Place, tuple[Sender, pb.HeartbeatRequest]] = {}
        self._working: set[Place] = set()

    def __len__(self) -> int:
        """Reports that wait."""
        return self._count

    def waiting(self, place: Place) -> bool:
        """Whether something of the place must go first."""
        return place in self._reports or place in self._heartbeats or place in self._working

    @property
    def has_ready(self) -> bool:
        """Whether ``take`` would give something."""
        return any(place not in self._working for place in (*self._reports, *self._heartbeats))

    def put(
        self,
        sender: Sender,
        stream: StreamKind,
        sequence: int,
        reports: Sequence[Report],
        times: Sequence[pb.HopTimes] = (),
    ) -> bool:
        """Keep the reports; False, and nothing kept, when there is no room for them."""
        of_key = {one.key: one for one in times}
        kept = self._reports.get(sender.place, {})
        fresh = sum((stream, report.key) not in kept for report in reports)
        if self._count + fresh > self._limit:
            return False
        for report in reports:
            one, key = _Kept(sender, sequence, report, of_key.get(report.key)), (stream, report.key)
            known = kept.get(key)
            if known is not None and known.order > one.order:
                continue
            self._count += known is None
            kept[key] = one
        if kept:
            self._reports[sender.place] = kept
        return True

    def put_heartbeat(self, sender: Sender, request: pb.HeartbeatRequest) -> None:
        self._heartbeats[sender.place] = (sender, request)

    def take(self) -> Forward | None:
        """The next forward of a place that is not in work; ``done`` or ``later`` must follow."""
        for place, kept in self._reports.items():
            if place in self._working:
                continue
            self._working.add(place)
            stream, first = min(((key[0], one) for key, one in kept.items()), key=lambda pair: pair[1].order)
            together = [one for key, one in kept.items() if key[0] == stream and one.order == first.order]
            times = tuple(one.times for one in together if one.times is not None)
            return Forward(first.sender, stream, first.sequence, tuple(one.report for one in together), times)
        for place, (sender, request) in self._heartbeats.items():
            if place not in self._working and place not in self._reports:
                self._working.add(place)
                return Forward(sender, None, 0, heartbeat=request)
        return None

    def done(self, forward: Forward) -> None:
        """It was passed on, or refused for good: what has been replaced meanwhile stays."""
        place = forward.sender.place
        self._working.discard(place)
        if forward.stream is None:
            if self._heartbeats.get(place) == (forward.sender, forward.heartbeat):
                del self._heartbeats[place]
            return
        kept = self._reports.get(place, {})
        for report in forward.reports:
            one = kept.get((forward.stream, report.key))
            if one is not None and one.report is report:
                del kept[forward.stream, report.key]
                self._count -= 1
        if not kept:
            self._reports.pop(place, None)

    def later(self, forward: Forward) -> None:
        self._working.discard(forward.sender.place)

    def forget(self, place: Place, epoch: int) -> None:
        """An agent of this epoch or an older one is not heard any more."""
        kept = self._reports.get(place, {})
        for key in [key for key, one in kept.items() if one.sender.identity.epoch <= epoch]:
            del kept[key]
            self._count -= 1
        if not kept:
            self._reports.pop(place, None)
        heartbeat = self._heartbeats.get(place)
        if heartbeat is not None and heartbeat[0].identity.epoch <= epoch:
            del self._heartbeats[place]
