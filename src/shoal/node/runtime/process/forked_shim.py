"""The entry of a shim that the fork server has forked: it may fork its container's program too."""

from __future__ import annotations

from shoal.node.forks import server
from shoal.node.runtime.process.shim import main as shim

FUNCTION = f"{__name__}:run"


def run(folder: str) -> None:
    """File descriptor 3 takes the result of the start."""
    shim.main(folder, server.FORKED)
