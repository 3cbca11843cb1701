"""Lets the tests here use the worlds of the unit tests of both APIs."""

from __future__ import annotations

import sys
from pathlib import Path

_UNIT = Path(__file__).parents[2] / "unit"
sys.path[:0] = [
    str(each) for each in (Path(__file__).parent, _UNIT / "control" / "api", _UNIT / "navigator" / "answers")
]
