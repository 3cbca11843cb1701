"""Fleets of real processes; the tests of one file share theirs where they do not break it."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
