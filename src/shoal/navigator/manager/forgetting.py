"""Forgets a cluster: its rows go to the history, and its claim is free for any edge. Makes the tokens of edges.

The claim is reserved until the rows are removed on disk and in memory. An edge that took it earlier would be told that
the manager holds rows which it is about to remove, and would never send them again.
"""

from __future__ import annotations

from shoal.base.logs import get_logger
from shoal.errors import Conflict, NotFound
from shoal.navigator.manager.clusters import Clusters
from shoal.navigator.manager.registry import ClaimRegistry
from shoal.navigator.manager.row_writer import RowWriter
from shoal.navigator.manager.rows import ClusterRemoved, StoredToken
from shoal.navigator.manager.tokens import EDGE, NavigatorTokens

_log = get_logger("navigator.forgetting")


class ClusterForgetter:
    """Implements ``ClusterAdmin``."""

    def __init__(
        self, registry: ClaimRegistry, clusters: Clusters, row_writer: RowWriter, tokens: NavigatorTokens
    ) -> None:  # fmt: skip
        self._registry = registry
        self._clusters = clusters
        self._row_writer = row_writer
        self._tokens = tokens

    async def forget(self, cluster: str, *, revoke: bool = False) -> None:
        """Return when it is removed. ``revoke`` also revokes the tokens of its edges, which ends their streams."""
        if cluster not in self._clusters.known:
            raise NotFound(f"cluster {cluster[:100]!r} not found")
        if revoke:
            await self.revoke_edge_tokens(cluster)
        if not self._registry.begin_removal(cluster):
            known = self._clusters.known[cluster]
            raise Conflict(
                f"edge {known.edge!r} reports cluster {cluster!r}: stop it first, or revoke the cluster's tokens too "
                "(revoke=true, `--revoke`)"
            )
        removed = False
        try:
            await self._row_writer.write(ClusterRemoved(cluster, self._row_writer.stamp_ms()))
            self._clusters.forget(cluster)
            removed = True
        finally:
            self._registry.end_removal(cluster, removed=removed)
        _log.info("cluster forgotten", cluster=cluster)

    async def edge_token(self, cluster: str) -> str:
        """A cluster has one usable token at a time, which is rotated, so that joining again adds none."""
        usable = [token for token in await self._of_edges(cluster) if self._tokens.works(token.id)]
        if usable:
            text, _ = await self._tokens.rotate(usable[-1].id)
        else:
            text, _ = await self._tokens.create(kind=EDGE, cluster=cluster)
        return text

    async def revoke_edge_tokens(self, cluster: str) -> None:
        for token in await self._of_edges(cluster):
            if not token.revoked_ms:
                await self._tokens.revoke(token.id)

    async def _of_edges(self, cluster: str) -> list[StoredToken]:
        return [token for token in await self._tokens.list_() if token.kind == EDGE and token.cluster == cluster]
