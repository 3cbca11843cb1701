"""The network of sandboxes: the seam, and the addresses of pods.

Every cluster has a network namespace, to which each pod has a routed link of its own; nothing of it is visible in the
machine's network. So clusters use the same ranges, as real ones do.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from shoal.base.files import create_private
from shoal.node.runtime.model import CreateFailure, SandboxSpec

POD_CIDR = "10.244.0.0/16"
OWN_CIDR = "10.97.0.0/24"  # of the cluster itself
API_ADDRESS = "10.97.0.1"  # where pods reach the API server
_BLOCKS = range(256)


class PodNetwork(Protocol):
    """What attaches pods to a network, and opens sockets in it for who is outside."""

    async def attach(self, sandbox_id: str, spec: SandboxSpec, address: str) -> None:
        """Make the pod's namespaces and its link, with this address; raises ``CreateFailure``."""

    async def detach(self, sandbox_id: str) -> None:
        """Give namespaces and link up. Succeeds if there are none."""

    async def sockets(self, sandbox_id: str, *, family: int, kind: int, count: int = 1) -> list[socket.socket]:
        """New sockets in a pod's network, or in that of the cluster if ``sandbox_id`` is empty; raises
        ``ConnectionError`` if the pod has none. They stay there, whoever uses them."""


@dataclass(frozen=True, slots=True)
class SandboxNetwork:
    """The pod addresses of one cluster: a block of 256 for each node, which the node takes in ``folder``."""

    folder: Path

    def blocks(self, node: str) -> list[int]:
        return [block for block in _BLOCKS if self._owner(block) == node]

    def take_block(self, node: str) -> int:
        for block in _BLOCKS:
            path = self._path(block)
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            if create_private(path, node.encode()) or path.read_text() == node:
                return block
        raise CreateFailure(f"no free pod address in {POD_CIDR}")

    def pod_address(self, block: int, host: int) -> str:
        return f"10.244.{block}.{host}"

    def _owner(self, block: int) -> str | None:
        try:
            return self._path(block).read_text()
        except FileNotFoundError:
            return None

    def _path(self, block: int) -> Path:
        return self.folder / "blocks" / str(block)
