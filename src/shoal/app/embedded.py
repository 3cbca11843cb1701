"""An embedded component of a cluster's process, with its own service account, RBAC rights and client.

Agents, edges and shard managers run on any Kubernetes; in a cluster's process they are tasks next to components. They
have the same rights as elsewhere: each installs the RBAC objects of its manifests and uses that account.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

from shoal.app.components import ComponentDeps
from shoal.app.connect import SETUP
from shoal.base.logs import get_logger
from shoal.base.supervision import supervise
from shoal.base.tasks import wait_first
from shoal.client import TransportError
from shoal.errors import ApiError

log = get_logger("parts")

_AFTER_FAILURE_S = 1.0


class EmbeddedPart(ABC):
    """Runs beside the components and restarts after a failure. Subclasses define its manifests and ``act``."""

    name = ""

    def __init__(self, deps: ComponentDeps) -> None:
        self.deps = deps
        self.readyz: Callable[[], tuple[bool, dict[str, str]]] | None = (
            None  # set by ``act``, as in a process of its own
        )
        self._stopping = asyncio.Event()

    @abstractmethod
    def manifests(self) -> Iterable[dict[str, Any]]:
        """Its account and rights, as the command prints them for other clusters."""

    @abstractmethod
    async def act(self) -> None:
        """Do the component's work until cancelled."""

    async def run(self) -> None:
        """Until ``stop``."""
        # not ready while the control plane or the manager is away: that is no reason to start the process again
        await supervise(self.name, self._begin_unless_stopped, clock=self.deps.clock, until=self._stopping)

    def stop(self) -> None:
        self._stopping.set()

    def problem(self) -> str:
        """Why it is not ready; empty: it is."""
        if self.readyz is None:
            return "not started"
        good, checks = self.readyz()
        return "" if good else "; ".join(f"{name}: {text}" for name, text in checks.items())

    async def _begin_unless_stopped(self) -> None:
        try:
            await wait_first(self._begin(), self._stopping.wait())
        finally:
            self.readyz = None

    async def _begin(self) -> None:
        await self._install()
        await self.act()

    async def _install(self) -> None:
        admin = self.deps.connect(SETUP)
        while True:
            try:
                for manifest in self.manifests():
                    kind = await admin.by_kind(manifest["kind"], manifest["apiVersion"])
                    await kind.apply(manifest, force=True)
                return
            except (ApiError, TransportError) as error:
                log.warning("setting up RBAC failed; retrying", part=self.name, reason=str(error))
                await self.deps.clock.sleep(_AFTER_FAILURE_S)
