"""A part of a cluster's process that is nobody special there: it has an account, rights and a client of its own.

Agents, edges and shard managers run on any Kubernetes; in a process of ours they are tasks beside the components. They
must not be able to do more there than elsewhere, so each installs the rights that its manifests ask for and uses them.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

from shoal.app.components import ComponentDeps
from shoal.app.connect import SETUP
from shoal.base.logs import get_logger
from shoal.base.tasks import wait_first
from shoal.client import TransportError
from shoal.errors import ApiError

log = get_logger("parts")

_AFTER_FAILURE_S = 1.0


class EmbeddedPart(ABC):
    """Runs beside the components, and like them starts over when it fails. Say what it needs and does."""

    name = ""

    def __init__(self, deps: ComponentDeps) -> None:
        self.deps = deps
        self._stopping = asyncio.Event()

    @abstractmethod
    def manifests(self) -> Iterable[dict[str, Any]]:
        """Its account and rights, as the command prints them for other clusters."""

    @abstractmethod
    async def act(self) -> None:
        """Until cancelled."""

    async def run(self) -> None:
        """Until ``stop``."""
        while not self._stopping.is_set():
            try:
                await wait_first(self._begin(), self._stopping.wait())
            except Exception as error:
                log.error("a part of the process failed; starting it again", part=self.name, error=error)
                await wait_first(self.deps.clock.sleep(_AFTER_FAILURE_S), self._stopping.wait())

    def stop(self) -> None:
        self._stopping.set()

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
                log.warning("its rights could not be set up yet", part=self.name, reason=str(error))
                await self.deps.clock.sleep(_AFTER_FAILURE_S)
