"""The agent as a part of a cluster's process."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from shoal.app.components import ComponentDeps
from shoal.app.embedded import EmbeddedPart
from shoal.app.fleet.agent import AgentProcessDeps, make_agent
from shoal.app.settings import KRANE, read_settings
from shoal.client.reach import NoOutage
from shoal.krane import rbac
from shoal.krane.config import KraneConfig

USER = f"system:serviceaccount:{rbac.NAMESPACE}:{rbac.SERVICE_ACCOUNT}"


def embedded_config(join: Path, folder: Path, identity: str, environ: Mapping[str, str]) -> KraneConfig:
    """The settings of the agent in a cluster's process: SHOAL_KRANE_* variables apply to it too."""
    fixed = {
        "join": join,
        "dir": folder,
        "agent": identity,
        "elect": False,
    }  # one agent per directory: no other candidate
    read: KraneConfig = read_settings(KRANE, fixed, environ=environ)
    return read


class AgentPart(EmbeddedPart):
    name = "krane"

    def __init__(self, deps: ComponentDeps, join: Path, folder: Path) -> None:
        super().__init__(deps)
        self._config = embedded_config(join, folder / "krane", deps.identity, os.environ)

    def manifests(self) -> Iterable[dict[str, Any]]:
        return rbac.manifests()

    async def act(self) -> None:
        deps = self.deps
        process = AgentProcessDeps(deps.clock, deps.ids, deps.random, deps.metrics)
        agent, connection = make_agent(self._config, deps.connect(USER), deps.connect(USER), process, NoOutage())
        self.readyz = agent.readyz
        try:
            await agent.run()
        finally:
            await connection.close()
