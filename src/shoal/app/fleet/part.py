"""The agent as a part of a cluster's process: with an account, rights and a client of its own, never the admin's."""

from __future__ import annotations

import asyncio
from pathlib import Path

from shoal.app.components import Host
from shoal.app.connect import SETUP
from shoal.app.fleet.agent import Surroundings, make_agent
from shoal.base.logs import get_logger
from shoal.base.tasks import wait_first
from shoal.client import Client, TransportError
from shoal.errors import ApiError
from shoal.krane import rbac
from shoal.krane.config import KraneConfig

log = get_logger("krane")

USER = f"system:serviceaccount:{rbac.NAMESPACE}:{rbac.SERVICE_ACCOUNT}"
_AFTER_FAILURE_S = 1.0


class AgentPart:
    """Runs beside the components, and like them starts over when it fails."""

    name = "krane"

    def __init__(self, host: Host, join: Path, folder: Path) -> None:
        self._host = host
        # one agent in a process of its own directory: nobody else stands for election
        self._config = KraneConfig(join=join, dir=folder / "krane", agent=host.identity, elect=False)
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        """Until ``stop``."""
        while not self._stopping.is_set():
            try:
                await wait_first(self._act(), self._stopping.wait())
            except Exception as error:
                log.error("the agent failed; starting it again", error=error)
                await wait_first(self._host.clock.sleep(_AFTER_FAILURE_S), self._stopping.wait())

    def stop(self) -> None:
        self._stopping.set()

    async def _act(self) -> None:
        host = self._host
        await self._install(host.connect(SETUP))
        around = Surroundings(host.clock, host.ids, host.random, host.metrics)
        agent, connection = await make_agent(self._config, host.connect(USER), host.connect(USER), around)
        try:
            await agent.run()
        finally:
            await connection.close()

    async def _install(self, admin: Client) -> None:
        """The agent's account and rights, as `shoal krane manifests` prints them for other clusters."""
        while True:
            try:
                for manifest in rbac.manifests():
                    kind = await admin.by_kind(manifest["kind"], manifest["apiVersion"])
                    await kind.apply(manifest, force=True)
                return
            except (ApiError, TransportError) as error:
                log.warning("the agent's rights could not be set up yet", reason=str(error))
                await self._host.clock.sleep(_AFTER_FAILURE_S)
