"""The shim of a container in a sandbox: that of the process runtime, with limits by control groups."""

from __future__ import annotations

import os
import time

from shoal.node.runtime.process.shim import processes, system
from shoal.node.runtime.process.shim.main import Shim

from . import container, limits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class SandboxShim(Shim):
    """One container. Works in the container's folder."""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__(config)
        self._groups: dict[str, str] = config["cgroup"]
        self._resources: dict[str, int] = config["resources"]
        self._set_limits()

    def run(self, ready: int) -> None:
        if self._groups:
            limits.make(self._groups, self._resources)
        try:
            super().run(ready)
        finally:
            limits.remove(self._groups, lambda: time.sleep(0.002))

    def _spawn(self, argv: list[str], streams: tuple[int, int, int], inside: int = 0) -> int:
        return container.spawn(self._config, argv, streams, inside)

    def _set_limits(self) -> None:
        """What the kernel does not limit is watched."""
        self._memory_limit = 0 if "memory" in self._groups else self._resources["memory"]
        self._most_processes = 0 if "pids" in self._groups else self._resources["watched_processes"]

    def _change_limits(self, request: dict[str, Any]) -> None:
        self._resources = {**self._resources, **request["resources"]}
        limits.apply(self._groups, self._resources)
        self._set_limits()

    def _watches(self) -> bool:
        return bool(self._memory_limit or self._most_processes)

    def _look(self) -> None:
        super()._look()
        if self._most_processes and len(processes.descendants(self._pid)) > self._most_processes:
            os.kill(self._pid, system.SIGKILL)  # all of them end with the first

    def _is_out_of_memory(self) -> bool:
        return super()._is_out_of_memory() or limits.was_out_of_memory(self._groups)
