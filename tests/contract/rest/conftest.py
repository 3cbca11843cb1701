"""Lets the tests here use the worlds of the unit tests of both APIs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

UNIT = Path(__file__).parents[2] / "unit"
sys.path.insert(0, str(UNIT / "control" / "api"))
sys.path.insert(0, str(UNIT / "navigator" / "answers"))


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """One loop for the tests of a module: they share the APIs, which take long to start."""
    return "asyncio"
