"""A node for tests of the sandbox runtime.

machine = SandboxMachine(folder)
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
from shoal.node.runtime.process.addresses import PodAddresses
from shoal.node.runtime.process.config import ProcessConfig
from shoal.node.runtime.process.images import load_table
from shoal.node.runtime.process.runtime import ProcessRuntime, ProcessRuntimeDeps
from shoal.node.runtime.sandbox.client import end_helper
from shoal.node.runtime.sandbox.config import SandboxConfig
from shoal.node.runtime.sandbox.isolation import SandboxDeps, SandboxIsolation
from shoal.node.runtime.sandbox.network import SandboxNetwork
from shoal.node.runtime.sandbox.roots import MachineRoots, RootSource


class SandboxMachine:
    """One node with its state in a folder, and the helper of its cluster."""

    def __init__(
        self,
        folder: Path,
        *,
        node: str = "node-1",
        process: dict[str, Any] | None = None,
        roots: RootSource | None = None,
        **config: Any,
    ) -> None:
        self.helper = folder / "sandbox"
        self._node = node
        self._roots = roots or MachineRoots(load_table())
        self.process = ProcessConfig(root=folder / node, covered=(folder,), **(process or {}))
        self.config = SandboxConfig(helper=self.helper, **config)

    def runtime(self, **process: Any) -> ProcessRuntime:
        """A runtime with the sandboxes and containers of earlier runtimes."""
        own, roots, clock = replace(self.process, **process), self._roots, RealClock()
        isolation = SandboxIsolation(own, self.config, SandboxDeps(clock=clock, environ=dict(os.environ), roots=roots))
        addresses = PodAddresses(SandboxNetwork(self.helper), self._node)
        deps = ProcessRuntimeDeps(clock=clock, new_id=Ids().new_uid)
        return ProcessRuntime(own, roots, addresses, isolation, deps)

    async def halt(self) -> None:
        """End and remove all sandboxes, and the helper."""
        runtime = self.runtime()
        await runtime.open()
        for sandbox in (await runtime.list()).sandboxes:
            await runtime.remove_sandbox(sandbox.id)
        await runtime.close()
        await end_helper(self.helper, clock=RealClock())
