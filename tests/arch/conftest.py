"""Lets the architecture tests import the module that reads the source tree."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One worker reads the source tree, not each of them."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.xdist_group("arch"))


@pytest.fixture(autouse=True)
def kept_trees() -> Iterator[None]:
    """The syntax trees stay for the whole run, so the garbage collector need not walk their millions of nodes."""
    gc.disable()
    yield
    gc.freeze()
    gc.enable()
