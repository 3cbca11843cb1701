"""Options of edges: settings that the manager stores for the edge of one cluster or for all, and sends to them.

Those of one cluster win over those of all. A change is checked as an edge with default settings would check it, stored,
and then sent to the edges that it concerns. An edge whose own settings contradict them refuses all of them, and its
reason is shown here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from shoal.errors import BadRequest, ConfigError, NotFound
from shoal.navigator.edge.options import check_options
from shoal.navigator.manager.clusters import Clusters
from shoal.navigator.manager.rows import Rows
from shoal.navigator.view import EdgeState
from shoal.wire.navigator.v1 import navigator_pb as pb

ALL = ""


@dataclass(slots=True)
class _Taken:
    """What an edge has said about the options. ``revision`` 0: nothing yet."""

    revision: int = 0
    error: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)


class EdgeOptions:
    """Implements ``EdgeAdmin``. ``send`` is called with the clusters whose options have changed."""

    def __init__(self, rows: Rows, clusters: Clusters) -> None:
        self._rows = rows
        self._clusters = clusters
        self._stored: dict[str, dict[str, str]] = {}
        self._revision = 1
        self._changing = asyncio.Lock()
        self._taken: dict[str, _Taken] = {}
        self.send: Callable[[Iterable[str]], None] = lambda clusters: None

    async def load(self) -> None:
        stored: dict[str, dict[str, str]] = {}
        for cluster, name, value in await self._rows.options():
            stored.setdefault(cluster, {})[name] = value
        self._stored = stored

    # for streams

    def of(self, cluster: str) -> pb.Options:
        """What the edge of a cluster is sent."""
        return pb.Options(revision=self._revision, values=self._merged(cluster))

    def taken(self, cluster: str, said: pb.OptionsTaken) -> None:
        self._taken[cluster] = _Taken(said.revision, said.error, dict(said.settings))

    def connected(self, cluster: str) -> None:
        """A new stream: nothing is known of its edge yet."""
        self._taken.pop(cluster, None)

    # for people

    def for_all(self) -> Mapping[str, str]:
        return dict(sorted(self._stored.get(ALL, {}).items()))

    def edges(self) -> list[EdgeState]:
        return [self._edge(name) for name in sorted({*self._clusters.known, *self._stored} - {ALL})]

    def edge(self, cluster: str) -> EdgeState:
        if cluster not in self._clusters.known and cluster not in self._stored:
            raise NotFound(f"cluster {cluster[:100]!r} not found")
        return self._edge(cluster)

    async def change(self, cluster: str, put: Mapping[str, str], remove: Iterable[str]) -> None:
        """Change the options of a cluster, or of all edges with an empty name."""
        async with self._changing:
            if cluster:
                self.edge(cluster)
            wanted = {**self._stored.get(cluster, {}), **put}
            for name in remove:
                if wanted.pop(name, None) is None:
                    raise BadRequest(f"option {name[:100]!r} is not set" + (f" for {cluster!r}" if cluster else ""))
            self._check(cluster, wanted)
            await self._rows.replace_options(cluster, wanted)
            self._stored[cluster] = wanted
            if not wanted:
                del self._stored[cluster]
            self._revision += 1
            self.send([cluster] if cluster else list(self._clusters.known))

    def _check(self, cluster: str, wanted: Mapping[str, str]) -> None:
        """Together with the others that an edge would get."""
        others = [name for name in self._stored if name] if cluster == ALL else [cluster]
        try:
            check_options(wanted)
            for other in others:
                own = wanted if other == cluster else self._stored[other]
                check_options({**(wanted if cluster == ALL else self._stored.get(ALL, {})), **own})
        except ConfigError as error:
            raise BadRequest(str(error)) from None

    def _merged(self, cluster: str) -> dict[str, str]:
        return {**self._stored.get(ALL, {}), **self._stored.get(cluster, {})}

    def _edge(self, cluster: str) -> EdgeState:
        known = self._clusters.known.get(cluster)
        connected = known is not None and known.session is not None
        taken = self._taken.get(cluster, _Taken())
        return EdgeState(
            cluster=cluster,
            edge=known.edge if known is not None else "",
            connected=connected,
            options=dict(sorted(self._stored.get(cluster, {}).items())),
            taken=connected and taken.revision == self._revision and not taken.error,
            error=taken.error if connected else "",
            settings=dict(taken.settings) if connected else {},
        )
