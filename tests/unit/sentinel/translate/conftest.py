"""Lets these tests import what draws inputs, which tests with a real Envoy use too."""

from __future__ import annotations

import sys
from pathlib import Path

_TESTS = Path(__file__).parents[3]
sys.path[:0] = [str(_TESTS / "cluster" / "sentinel"), str(Path(__file__).parent)]
