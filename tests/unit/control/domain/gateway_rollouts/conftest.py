"""Lets the tests here import the modules they share."""

from __future__ import annotations

import sys
from pathlib import Path

for folder in (Path(__file__).parent, Path(__file__).parent.parent):
    sys.path.insert(0, str(folder))
