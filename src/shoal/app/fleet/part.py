"""The agent as a part of a cluster's process."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from shoal.app.components import ComponentDeps
from shoal.app.embedded import EmbeddedPart
from shoal.app.fleet.agent import AgentProcessDeps, make_agent
from shoal.krane import rbac
from shoal.krane.config import KraneConfig

USER = f"system:serviceaccount:{rbac.NAMESPACE}:{rbac.SERVICE_ACCOUNT}"


class AgentPart(EmbeddedPart):
    name = "krane"

    def __init__(self, deps: ComponentDeps, join: Path, folder: Path) -> None:
        super().__init__(deps)
        # one agent per directory: no other candidate
        self._config = KraneConfig(join=join, dir=folder / "krane", agent=deps.identity, elect=False)

    def manifests(self) -> Iterable[dict[str, Any]]:
        return rbac.manifests()

    async def act(self) -> None:
        deps = self.deps
        process = AgentProcessDeps(deps.clock, deps.ids, deps.random, deps.metrics)
        agent, connection = await make_agent(self._config, deps.connect(USER), deps.connect(USER), process)
        self.readyz = agent.readyz
        try:
            await agent.run()
        finally:
            await connection.close()
