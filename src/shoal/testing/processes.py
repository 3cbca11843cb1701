"""A node for tests of the process runtime.

machine = ProcessMachine(folder, registry=folder / "networks")
runtime = machine.runtime()         # a later one finds the containers of an earlier one
...
await machine.halt()
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from shoal.base.clock import RealClock
from shoal.base.ids import Ids
from shoal.node.forks.client import NO_FORKS, ForkClient
from shoal.node.runtime.process.addresses import PodAddresses, claim_network
from shoal.node.runtime.process.config import ProcessConfig
from shoal.node.runtime.process.images import load_table
from shoal.node.runtime.process.isolation import SharedMachine
from shoal.node.runtime.process.runtime import ProcessRuntime, ProcessRuntimeDeps
from shoal.node.runtime.process.table_images import TableImages


class ProcessMachine:
    """One node with its state in a folder. Its network is registered, so that tests do not share one."""

    def __init__(
        self, folder: Path, *, registry: Path, node: str = "node-1", forks: ForkClient = NO_FORKS, **config: Any
    ) -> None:
        self.network = claim_network(folder, registry=registry)
        self._node = node
        self._forks = forks
        self._config = ProcessConfig(root=folder / node, **config)

    def runtime(self, **config: Any) -> ProcessRuntime:
        """A runtime with the sandboxes and containers of earlier runtimes."""
        around = ProcessRuntimeDeps(clock=RealClock(), new_id=Ids().new_uid)
        addresses, own = PodAddresses(self.network, self._node), replace(self._config, **config)
        isolation = SharedMachine(own, os.environ, around.host_address, forks=self._forks)
        return ProcessRuntime(own, TableImages(load_table()), addresses, isolation, around)

    async def halt(self) -> None:
        """End and remove all sandboxes."""
        runtime = self.runtime()
        await runtime.open()
        for sandbox in (await runtime.list()).sandboxes:
            await runtime.remove_sandbox(sandbox.id)
        await runtime.close()
