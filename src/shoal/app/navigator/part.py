"""The navigator's edge as a part of a cluster's process."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from shoal.app.components import ComponentDeps
from shoal.app.embedded import EmbeddedPart
from shoal.app.navigator.edge import EdgeProcessDeps, opened_edge
from shoal.client.reach import NoOutage
from shoal.navigator.edge import rbac
from shoal.navigator.edge.config import EdgeConfig
from shoal.navigator.edge.metrics import EdgeMetrics
from shoal.navigator.edge.requests.proxies import ProxiedPorts

USER = f"system:serviceaccount:{rbac.NAMESPACE}:{rbac.SERVICE_ACCOUNT}"


class EdgePart(EmbeddedPart):
    """``edge`` stays the same over restarts, so that the manager accepts it again at once: there is one edge per
    directory."""

    name = "navigator-edge"

    def __init__(self, deps: ComponentDeps, join: Path, edge: str) -> None:
        super().__init__(deps)
        self._config = EdgeConfig(join=join, edge=edge)
        self._metrics = EdgeMetrics(deps.metrics)  # one for all starts

    def manifests(self) -> Iterable[dict[str, Any]]:
        return rbac.manifests(in_process=True)

    async def act(self) -> None:
        deps = self.deps
        client = deps.connect(USER)
        process = EdgeProcessDeps(deps.clock, deps.ids, deps.random, self._metrics)
        async with opened_edge(self._config, client, ProxiedPorts(client), process, NoOutage()) as edge:
            self.readyz = edge.readyz
            await edge.run()
