"""The fork server for pods of ``shoal up``: one for all its clusters, whose pods share the memory of our modules.

It is another process than the fork server of the children, with an address space and an environment of its own:
nothing of the control plane's is in the memory of a pod.
"""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from pathlib import Path

from shoal.node.forks import server

# what programs of pods and service proxies import
MODULES = (
    "shoal.node.runtime.process.forked_shim", "shoal.app.main", "shoal.app.processes", "shoal.base.tracing", "uvloop",
    "shoal.app.demo.server", "shoal.app.commands.shard", "shoal.app.sharding.worker", "shoal.app.demo.websites",
    "shoal.app.commands.sentinel", "shoal.app.fleet.gateway", "shoal.app.fleet.reloading", "shoal.sentinel.service",
    "shoal.node.proxy.serve", "cryptography.hazmat.primitives.serialization", "cryptography.x509", "encodings.idna",
    "prometheus_client", "typer._click.decorators",
)  # fmt: skip
PACKAGES = ("shoal", "shoal.app.demo")  # programs that may be forked: python -m PACKAGE
SOCKET = "forks.sock"
_END_S = 2.0


class PodForks:
    """Runs the server in the state directory of ``up``, which pods do not see."""

    def __init__(self, folder: Path, listed: str = __name__) -> None:
        """``listed`` names the module with ``MODULES`` and ``PACKAGES``."""
        self.socket = folder / SOCKET
        self._listed = listed
        self.process: Process | None = None

    async def start(self) -> None:
        """Start it: it begins to import. Without it programs are executed."""
        if sys.platform != "linux":
            return
        self.process = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", server.__name__, str(self.socket), self._listed, server.WORDS_ROOM,
            stdin=PIPE, stdout=DEVNULL, stderr=DEVNULL, env=server.environment(os.environ),
        )  # fmt: skip

    async def end(self) -> None:
        """End it; what it has forked lives on."""
        process, self.process = self.process, None
        if process is None or process.stdin is None:
            return
        process.stdin.close()
        try:
            async with asyncio.timeout(_END_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
        self.socket.unlink(missing_ok=True)


__all__ = ["MODULES", "PACKAGES", "SOCKET", "PodForks"]
