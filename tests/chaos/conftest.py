"""Long tests that break things on purpose: only run when this folder is asked for (`make chaos`)."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "cluster"))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    asked_for = any("chaos" in argument for argument in config.args)
    return None if asked_for else True
