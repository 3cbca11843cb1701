"""The navigator's edge as a part of a cluster's process."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from shoal.app.components import Host
from shoal.app.navigator.edge import Surroundings, opened_edge
from shoal.app.parts import Lodger
from shoal.navigator.edge import rbac
from shoal.navigator.edge.config import EdgeConfig
from shoal.navigator.edge.metrics import EdgeMetrics
from shoal.navigator.edge.requests.proxies import ProxiedPorts

USER = f"system:serviceaccount:{rbac.NAMESPACE}:{rbac.SERVICE_ACCOUNT}"


class EdgePart(Lodger):
    """``edge`` stays the same over restarts of the process, so that the manager lets it return at once: there is one
    edge per directory."""

    name = "navigator-edge"

    def __init__(self, host: Host, join: Path, edge: str) -> None:
        super().__init__(host)
        self._config = EdgeConfig(join=join, edge=edge)
        self._metrics = EdgeMetrics(host.metrics)  # one for all starts

    def manifests(self) -> Iterable[dict[str, Any]]:
        return rbac.manifests(in_process=True)

    async def act(self) -> None:
        host = self.host
        client = host.connect(USER)
        around = Surroundings(host.clock, host.ids, host.random, self._metrics)
        async with opened_edge(self._config, client, ProxiedPorts(client), around) as edge:
            await edge.run()
