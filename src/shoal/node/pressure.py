"""Watches the usage of pods and evicts pods when the node runs short of resources."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from shoal.base.clock import Clock
from shoal.base.logs import get_logger
from shoal.kube.objects import Obj
from shoal.node.config import EvictionConfig
from shoal.node.eviction import PodUse, Pressure, eviction_failure, victim
from shoal.node.pod_failure import PodFailure
from shoal.node.runtime.model import ContainerStats, Runtime, RuntimeFailure

log = get_logger("node.pressure")

Usage = Callable[[], tuple[int, int]]  # used and total bytes of the disk


def disk_usage(root: Path) -> tuple[int, int]:
    found = shutil.disk_usage(root)
    return found.used, found.total


class PressureWatch:
    """Checks the node's memory and disk every few seconds; ``stats`` has the last statistics."""

    def __init__(
        self,
        runtime: Runtime,
        config: EvictionConfig,
        *,
        clock: Clock,
        memory_bytes: int,
        disk: Usage,
        pods: Callable[[], Iterable[Obj]],
        evict: Callable[[str, PodFailure], None],
    ) -> None:
        self._runtime = runtime
        self._config = config
        self._clock = clock
        self._memory_bytes = memory_bytes
        self._disk = disk
        self._pods = pods
        self._evict = evict
        self._since: dict[str, float] = {}  # condition -> monotonic time it was last met
        self.stats: tuple[ContainerStats, ...] = ()

    def conditions(self) -> frozenset[str]:
        """The current pressure conditions. A condition stays for ``pressure_s``, so that it does not flap."""
        now = self._clock.monotonic()
        return frozenset(kind for kind, at in self._since.items() if now - at < self._config.pressure_s)

    async def run(self) -> None:
        while True:
            try:
                await self.check()
            except RuntimeFailure as failure:
                log.warning("reading statistics failed", reason=str(failure))
            await self._clock.sleep(self._config.period_s)

    async def check(self) -> None:
        """Read statistics, and evict one pod under pressure."""
        self.stats = await self._runtime.stats()
        uses = self._uses()
        for pressure in self._pressures(uses):
            self._since[pressure.condition] = self._clock.monotonic()
            found = victim(pressure, uses)
            if found is not None:
                about = found.pod["metadata"]
                name = f"{about['namespace']}/{about['name']}"
                log.warning("evicting a pod", pod=name, resource=pressure.resource)
                self._evict(about["uid"], eviction_failure(pressure, found))
                return

    def _uses(self) -> list[PodUse]:
        found = []
        for pod in self._pods():
            own = [each for each in self.stats if each.pod_uid == pod["metadata"]["uid"]]
            containers = {
                each.name: {"memory": each.memory_working_set_bytes, "ephemeral-storage": each.disk_used_bytes}
                for each in own
            }
            total = {
                "memory": sum(each.memory_working_set_bytes for each in own),
                "ephemeral-storage": sum(each.disk_used_bytes for each in own),
            }
            found.append(PodUse(pod, total, containers))
        return found

    def _pressures(self, uses: Iterable[PodUse]) -> list[Pressure]:
        found = []
        threshold = self._config.memory_available_bytes
        left = self._memory_bytes - sum(each.total["memory"] for each in uses)
        if threshold and self._memory_bytes and left < threshold:
            found.append(Pressure("memory", threshold, max(0, left)))
        used, total = self._disk()
        least = int(total * self._config.disk_available_part)
        if least and total - used < least:
            found.append(Pressure("ephemeral-storage", least, total - used))
        return found
