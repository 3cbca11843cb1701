"""The agent as a part of a cluster's process."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from shoal.app.components import Host
from shoal.app.fleet.agent import Surroundings, make_agent
from shoal.app.parts import Lodger
from shoal.base.metrics import Metrics
from shoal.krane import rbac
from shoal.krane.config import KraneConfig

USER = f"system:serviceaccount:{rbac.NAMESPACE}:{rbac.SERVICE_ACCOUNT}"


class AgentPart(Lodger):
    name = "krane"

    def __init__(self, host: Host, join: Path, folder: Path) -> None:
        super().__init__(host)
        # one agent in a process of its own directory: nobody else stands for election
        self._config = KraneConfig(join=join, dir=folder / "krane", agent=host.identity, elect=False)

    def manifests(self) -> Iterable[dict[str, Any]]:
        return rbac.manifests()

    async def act(self) -> None:
        host = self.host
        around = Surroundings(host.clock, host.ids, host.random, Metrics())  # of its own: each start registers anew
        agent, connection = await make_agent(self._config, host.connect(USER), host.connect(USER), around)
        try:
            await agent.run()
        finally:
            await connection.close()
