"""The manager's stored data: the clusters' rows, current and past, the claims of clusters, and tokens.

The history consists of intervals: when a row is replaced or removed, its old data goes to the history with the start
and end of its validity. So a first sync writes each object once. The state at a moment consists of the current rows
that are older and the intervals that contain it. Retention deletes intervals by their end.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from shoal.navigator.manager.protocol import Put
from shoal.navigator.model import KindStatus
from shoal.navigator.view import Moment

PIECE_ROWS = 1000  # of what is read in pieces


class RowKey(NamedTuple):
    cluster: str
    kind: str
    key: str


class StoredRow(NamedTuple):
    """A row, current or past, with the start of its validity."""

    cluster: str
    kind: str
    key: str
    fingerprint: int
    since_ms: int
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredCluster:
    name: str
    edge: str
    epoch: int
    software: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    interval_s: float = 30.0
    first_ms: int = 0  # when it was first claimed
    heard_ms: int = 0
    statuses: tuple[KindStatus, ...] = ()


class StoredSession(NamedTuple):
    """The time in which an edge held a cluster. ``ended_ms`` 0: it still does."""

    cluster: str
    edge: str
    epoch: int
    connected_ms: int
    ended_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredToken:
    """A token of an edge is bound to a cluster; others read what their scopes allow (``shoal.base.access``). Times are
    wall, 0 is never."""

    id: str
    kind: str  # edge, viewer, admin
    cluster: str
    digest: str
    created_ms: int
    expires_ms: int = 0
    revoked_ms: int = 0
    previous_digest: str = ""  # works until previous_until_ms
    previous_until_ms: int = 0
    scopes: tuple[str, ...] = ()


class StoredOption(NamedTuple):
    """An option of the edge of a cluster, or of all edges where ``cluster`` is empty."""

    cluster: str
    name: str
    value: str


# Writes, which are committed together


@dataclass(frozen=True, slots=True)
class ClusterClaimed:
    """``cluster.epoch`` holds the cluster from ``cluster.heard_ms`` on; sessions of older epochs have ended."""

    cluster: StoredCluster


@dataclass(frozen=True, slots=True)
class RowsChanged:
    cluster: str
    at_ms: int
    puts: Sequence[Put]
    removals: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class ClusterHeard:
    cluster: str
    heard_ms: int
    statuses: Sequence[KindStatus]


@dataclass(frozen=True, slots=True)
class SessionEnded:
    cluster: str
    epoch: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class ClusterRemoved:
    """The cluster and all its rows are removed; the history keeps them for the retention."""

    cluster: str
    at_ms: int


StoredWrite = ClusterClaimed | RowsChanged | ClusterHeard | SessionEnded | ClusterRemoved


class Rows(Protocol):
    """Methods raise ``ServiceUnavailable`` when the database is unavailable. All but ``commit`` may be called
    concurrently."""

    async def open(self, *, manager: bool = True) -> None:
        """Make or migrate the tables. There is one manager at a time, which ends the sessions that the one before
        left open; commands that deal with tokens are none."""

    async def close(self) -> None: ...

    async def clusters(self) -> list[StoredCluster]:
        """By name."""

    def load(self) -> AsyncIterator[list[StoredRow]]:
        """Every current row, in pieces."""

    async def commit(self, writes: Sequence[StoredWrite]) -> None:
        """All or none, in order. Idempotent."""

    async def objects(self, wanted: Sequence[RowKey]) -> list[bytes | None]:
        """Current data."""

    async def versions(self, wanted: Sequence[tuple[RowKey, int]]) -> list[bytes | None]:
        """Data of the rows, current or past, that are valid since ``since_ms``."""

    async def replaced(self, wanted: Sequence[tuple[RowKey, int]]) -> list[bytes | None]:
        """Data of the rows that were valid until ``until_ms`` and then replaced; None: nothing was replaced then."""

    def past(self, at_ms: int, cluster: str = "") -> AsyncIterator[list[StoredRow]]:
        """Rows that were valid at the moment and are not any more, in pieces; of one cluster, or of all."""

    async def sessions(self, at_ms: int) -> list[StoredSession]:
        """For every cluster the newest session that had begun by then."""

    async def first_session_ms(self) -> int:
        """When the oldest stored session began; 0: there is none."""

    async def between(
        self, from_ms: int, to_ms: int, *, cluster: str = "", kind: str = "", key: str = "", limit: int = 1000
    ) -> list[Moment]:
        """Changes and removals between the moments, both included, in order of time."""

    async def expire(self, before_ms: int, *, transient: bool = False) -> int:
        """Delete some intervals that ended before, of all kinds or of transient ones; returns their number. Call it
        again until that is 0."""

    async def prepare(self, now_ms: int) -> None:
        """Create partitions for new rows, where the database needs them."""

    async def tokens(self) -> list[StoredToken]:
        """All tokens, also revoked ones."""

    async def save_token(self, token: StoredToken) -> None:
        """Insert or replace it by id; durable also after a power cut."""

    async def options(self) -> list[StoredOption]:
        """By cluster and name."""

    async def replace_options(self, cluster: str, options: Mapping[str, str]) -> None:
        """Store the options of a cluster, or of all with an empty name, instead of those before; durable also after a
        power cut."""


def to_signed(fingerprint: int) -> int:
    """Databases have signed integers of 64 bits."""
    return fingerprint - (1 << 64) if fingerprint >= 1 << 63 else fingerprint


def from_signed(stored: int) -> int:
    return stored + (1 << 64) if stored < 0 else stored
