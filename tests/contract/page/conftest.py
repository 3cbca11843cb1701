"""Lets the tests here use the world of the unit tests of the API."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[2] / "unit" / "control" / "api")]
