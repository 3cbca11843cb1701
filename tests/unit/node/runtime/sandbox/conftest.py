"""Nodes with sandboxes for these tests, each in a folder of its own and gone with all it runs at the end."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for the modules that the tests here share

from sandbox_nodes import OnNode, SandboxNode

from shoal.testing.sandboxes import SandboxMachine


@pytest.fixture
def on_node(tmp_path: Path) -> OnNode:
    """A node; keywords are settings of its sandboxes."""

    @asynccontextmanager
    async def node(**config: Any) -> AsyncIterator[SandboxNode]:
        machine = SandboxMachine(tmp_path / "cluster", **config)
        found = SandboxNode(machine, machine.runtime())
        await found.runtime.open()
        try:
            yield found
        finally:
            await found.runtime.close()
            await machine.halt()

    return node


@pytest.fixture
def as_root() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root")


@pytest.fixture
def many_users() -> None:
    if os.geteuid() != 0 and not shutil.which("newuidmap"):
        pytest.skip("needs users beyond the own one")
