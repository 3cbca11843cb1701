"""Read interface to the manager's state, used by the answers and implemented by the manager."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from shoal.kube.objects import Obj
from shoal.navigator.model import Cluster, Row


class View(Protocol):
    """All clusters at one moment, now or in the past. Reading rows never waits; objects come from the disk."""

    @property
    def at_s(self) -> float:
        """The moment, as wall time."""

    def clusters(self) -> Sequence[Cluster]:
        """By name."""

    def cluster(self, name: str) -> Cluster | None: ...

    def rows(self, kind: str, *, cluster: str = "", namespace: str = "") -> Iterable[Row]:
        """In no order. Empty ``cluster`` or ``namespace``: all of them."""

    def row(self, cluster: str, kind: str, key: str) -> Row | None: ...

    def labelled(self, kind: str, label: str, value: str, *, cluster: str = "") -> Iterable[Row]:
        """By one label, from an index."""

    async def objects(self, rows: Sequence[Row]) -> list[Obj | None]:
        """The objects, in the same order; None for one that was removed meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One entry of the history: an object after a change, or its removal."""

    cluster: str
    kind: str
    key: str
    at_s: float
    data: bytes | None  # None: removed
    before: bytes | None = None  # what it replaced; only for the first entry of an object in a list


class History(Protocol):
    """Past states, within the retention."""

    async def at(self, at_s: float, *, cluster: str = "") -> View:
        """The state at a moment. ``shoal.errors.Gone`` (or the tree's nearest) when it is older than what is kept."""

    async def first_s(self) -> float | None:
        """When the first cluster was connected, as far back as the history is kept; None: no cluster ever was."""

    async def between(
        self, from_s: float, to_s: float, *, cluster: str = "", kind: str = "", key: str = "", limit: int = 1000
    ) -> list[Moment]:
        """In order of time."""


class Edges(Protocol):
    """Sends requests to the connected edge of a cluster."""

    def ask(self, cluster: str, request: object, *, deadline_s: float) -> AsyncIterator[bytes]:
        """The parts of the answer to a ``wire`` Request body (PodLogs, ClusterEvents, ProxyConfig,
        ServiceConnections). ``ServiceUnavailable`` when no edge is connected, ``Timeout`` at the deadline."""


class ClusterAdmin(Protocol):
    """Changes what the manager knows of a cluster."""

    async def forget(self, cluster: str, *, revoke: bool = False) -> None:
        """Remove a cluster; the history keeps it. ``NotFound``; ``Conflict`` while an edge is connected, unless
        ``revoke``, which also revokes the tokens of its edges."""

    async def edge_token(self, cluster: str) -> str:
        """A new token for the edge of a cluster, known or not. The one before it works for an hour longer."""

    async def revoke_edge_tokens(self, cluster: str) -> None:
        """Revoke the tokens of a cluster's edges, which ends their streams."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeState:
    """The edge of a cluster, and its options."""

    cluster: str
    edge: str
    connected: bool
    options: Mapping[str, str]  # stored for this cluster
    taken: bool  # the edge uses them, and those of all
    error: str  # why it refused them
    settings: Mapping[str, str]  # the values that the edge uses now; empty when it has not said


class EdgeAdmin(Protocol):
    """Reads and changes the options of edges."""

    def for_all(self) -> Mapping[str, str]: ...

    def edges(self) -> list[EdgeState]:
        """By cluster."""

    def edge(self, cluster: str) -> EdgeState:
        """``NotFound`` when there is no such cluster."""

    async def change(self, cluster: str, put: Mapping[str, str], remove: Iterable[str]) -> None:
        """Of one cluster, or of all edges with an empty name. ``BadRequest`` when an option or its value is wrong; then
        nothing changes."""


class Fleet(Protocol):
    """Deployments of the control plane, which queries join with pods by labels."""

    def deployments(self) -> Iterator[Obj]:
        """As last read; empty when there is no control plane."""
