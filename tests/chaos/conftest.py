"""Long tests that break things on purpose: only run when this folder is asked for (`make chaos`)."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ASKED_FOR = "SHOAL_CHAOS" in os.environ  # set by scripts/chaos.sh

sys.path.insert(0, str(HERE.parent / "cluster"))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    asked_for = ASKED_FOR or any("chaos" in argument for argument in config.args)
    return None if asked_for else True


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """`make chaos` chooses by marker, here and in the other folders."""
    for item in items:
        if ASKED_FOR and HERE in item.path.parents:
            item.add_marker("chaos")
