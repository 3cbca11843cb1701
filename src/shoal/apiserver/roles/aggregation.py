"""Aggregates ClusterRoles: fills the rules of roles that have an aggregationRule.

Every server runs it: the result depends only on the stored roles, so servers agree, and the second one finds
nothing to write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from shoal.apiserver import objects
from shoal.apiserver.authz.index import CLUSTER_ROLES
from shoal.apiserver.context import Core
from shoal.apiserver.write import Writer
from shoal.apiserver.writing.model import Author, Retry, Write
from shoal.base.logs import get_logger
from shoal.base.supervision import SupervisedLoops
from shoal.errors import ApiError
from shoal.kube.kinds.rbac import aggregated_rules
from shoal.kube.objects import Obj
from shoal.store import Event, StoreReadOnly, StoreUnavailable

_AUTHOR = Author("clusterrole-aggregation-controller")
_RETRY_S = 0.2


class Aggregation:
    """A supervised loop that runs after every change of a ClusterRole."""

    def __init__(self, core: Core, writer: Writer) -> None:
        self.core, self.writer = core, writer
        self.idle = asyncio.Event()  # set while every role is as it should be
        self._wake = asyncio.Event()
        self._loops = SupervisedLoops(core.clock)
        self._unsubscribe: Callable[[], None] | None = None
        self._log = get_logger("aggregation")

    def start(self) -> None:
        self._unsubscribe = self.core.store.subscribe(CLUSTER_ROLES, self._on_events)
        self._loops.start("aggregation", self._run)

    async def stop(self) -> None:
        if self._unsubscribe is not None:
            self._unsubscribe()
        await self._loops.stop()

    def _on_events(self, events: Sequence[Event]) -> None:
        self.idle.clear()
        self._wake.set()

    async def _run(self) -> None:
        self._wake.set()
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self.gather()
            except (ApiError, Retry, StoreReadOnly, StoreUnavailable) as error:
                self._log.info("role aggregation failed, will retry", error=str(error))
                await self.core.clock.sleep(_RETRY_S)
                self._wake.set()
            if not self._wake.is_set():
                self.idle.set()

    async def gather(self) -> None:
        """Update every aggregated role. A role may aggregate another aggregated role: writing the inner one triggers
        the next pass, so each pass reads only stored roles."""
        entries = self.core.store.range(CLUSTER_ROLES).entries
        roles = [objects.decode(entry) for entry in entries]
        served = self.core.registry.stored(CLUSTER_ROLES)
        assert served is not None
        for entry, role in zip(entries, roles, strict=True):
            if not role.get("aggregationRule"):
                continue
            wanted = aggregated_rules(role, roles)
            if wanted == (role.get("rules") or []):
                continue
            new: Obj = {**role, "metadata": dict(role["metadata"]), "rules": wanted}
            await self.writer.store(Write.own(served, new, entry, _AUTHOR))
