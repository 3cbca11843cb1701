"""State of each cluster besides its rows: its edge, the time of its last message, the status of its kinds.

Freshness is derived, never stored: a cluster is healthy while its stream is connected, the last message is at most
three intervals old, and its edge can read something. Each edge reports its interval, and keep-alives are more frequent,
so the state does not flap.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from shoal.navigator.manager.index import Index
from shoal.navigator.manager.protocol import SYNCED, WAITING, EdgeSession, Identified
from shoal.navigator.manager.rows import StoredCluster
from shoal.navigator.model import CONTROL_PLANE_CONFIG, Cluster, Freshness, KindStatus

FAILING = "failing"
_READ = (SYNCED, FAILING)


@dataclass(slots=True, kw_only=True)
class KnownCluster:
    """``heard_s`` is monotonic; values in ``ms`` are wall time."""

    name: str
    edge: str
    epoch: int
    software: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    interval_s: float = 30.0
    first_ms: int = 0
    heard_ms: int = 0
    heard_s: float = float("-inf")
    saved_ms: int = 0  # the ``heard_ms`` that is stored
    connected_ms: int = 0  # 0: no edge is connected
    statuses: Mapping[str, KindStatus] = field(default_factory=dict)
    session: EdgeSession | None = None  # while an edge is connected
    described: tuple[tuple[object, ...], Cluster] | None = None  # the last description, and what it depended on

    def stored(self) -> StoredCluster:
        return StoredCluster(
            name=self.name, edge=self.edge, epoch=self.epoch, software=self.software, metadata=self.metadata,
            interval_s=self.interval_s, first_ms=self.first_ms, heard_ms=self.heard_ms,
            statuses=tuple(self.current_statuses().values()),
        )  # fmt: skip

    def current_statuses(self) -> Mapping[str, KindStatus]:
        return self.session.statuses if self.session is not None else self.statuses


def freshness(known: KnownCluster, now_s: float, *, limit_s: float) -> Freshness:
    if known.session is None:
        return Freshness.DISCONNECTED
    if now_s - known.heard_s > limit_s:
        return Freshness.STALE
    if known.session.complete and unreadable(known.session.statuses):
        return Freshness.STALE
    return Freshness.HEALTHY if known.session.complete else Freshness.INITIALIZING


def unreadable(statuses: Mapping[str, KindStatus]) -> str:
    """Why nothing of the cluster can be read, as while its API server is away; empty when something can. A kind that it
    does not serve, or that the edge may not read, says nothing about the others."""
    read = [each for each in statuses.values() if each.kind != CONTROL_PLANE_CONFIG.name and each.state in _READ]
    if not read or any(each.state == SYNCED for each in read):
        return ""
    return read[0].error or FAILING


class Clusters:
    """All known clusters, connected or not."""

    def __init__(
        self, index: Index, *, stale_intervals: float, keep_alive_s: float,
        changed: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        """``changed`` is called when a cluster is claimed, lost or forgotten."""
        self._index = index
        self._stale_intervals = stale_intervals
        self._keep_alive_s = keep_alive_s
        self._changed = changed
        self.known: dict[str, KnownCluster] = {}

    def restore(self, stored: StoredCluster) -> None:
        self.known[stored.name] = KnownCluster(
            name=stored.name, edge=stored.edge, epoch=stored.epoch, software=stored.software, metadata=stored.metadata,
            interval_s=stored.interval_s, first_ms=stored.first_ms, heard_ms=stored.heard_ms, saved_ms=stored.heard_ms,
            statuses={status.kind: status for status in stored.statuses},
        )  # fmt: skip

    def prepared(self, claim: Identified, session: EdgeSession, now_ms: int) -> KnownCluster:
        """The new state of a cluster, to be used once its claim is stored."""
        before = self.known.get(claim.cluster)
        return KnownCluster(
            name=claim.cluster, edge=claim.edge, epoch=session.epoch, software=claim.software, metadata=claim.metadata,
            interval_s=claim.interval_s, first_ms=before.first_ms if before is not None else now_ms, heard_ms=now_ms,
            saved_ms=now_ms, connected_ms=now_ms, session=session,
        )  # fmt: skip

    def claimed(self, known: KnownCluster, now_s: float) -> None:
        known.heard_s = now_s
        self.known[known.name] = known
        self._changed()

    def heard(self, known: KnownCluster, now_s: float, now_ms: int) -> None:
        known.heard_s, known.heard_ms = now_s, max(known.heard_ms, now_ms)

    def lost(self, known: KnownCluster) -> None:
        """The stream has ended; the known state stays, with its age."""
        known.statuses = dict(known.current_statuses())
        known.session, known.connected_ms = None, 0
        self._changed()

    def forget(self, name: str) -> None:
        self.known.pop(name, None)
        self._changed()

    def limit_s(self, known: KnownCluster) -> float:
        return self._stale_intervals * max(known.interval_s, self._keep_alive_s)

    def list_(self, now_s: float) -> list[Cluster]:
        return [self.describe(self.known[name], now_s) for name in sorted(self.known)]

    def get(self, name: str, now_s: float) -> Cluster | None:
        known = self.known.get(name)
        return self.describe(known, now_s) if known is not None else None

    def describe(self, known: KnownCluster, now_s: float) -> Cluster:
        """Cached, since every query needs all clusters and most have not changed."""
        index = self._index.clusters.get(known.name)
        state = freshness(known, now_s, limit_s=self.limit_s(known))
        sequence = known.session.sequence if known.session is not None else -1
        depends = (state, known.heard_ms, known.connected_ms, sequence, index, index.changes if index else 0)
        if known.described is None or known.described[0] != depends:
            known.described = depends, _describe(known, state, index.counts() if index is not None else {})
        return known.described[1]


def _describe(known: KnownCluster, state: Freshness, counts: Mapping[str, int]) -> Cluster:
    statuses = known.current_statuses()
    kinds = [
        KindStatus(kind=kind, state=found.state, error=found.error, since_s=found.since_s, rows=counts.get(kind, 0))
        if (found := statuses.get(kind)) is not None
        else KindStatus(kind=kind, state=SYNCED if counts.get(kind) else WAITING, rows=counts.get(kind, 0))
        for kind in sorted({*statuses, *counts})
    ]
    return Cluster(
        name=known.name, region=known.metadata.get("region", ""), metadata=known.metadata, freshness=state,
        edge=known.edge, epoch=known.epoch, connected_at_s=known.connected_ms / 1000,
        heard_at_s=known.heard_ms / 1000, kinds=tuple(kinds),
        reason=unreadable(statuses) if state is Freshness.STALE else "",
    )  # fmt: skip
