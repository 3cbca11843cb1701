"""What the tests of secrets share."""

from __future__ import annotations

import base64
import stat
from pathlib import Path

from shoal.testing.seeded import seeded_bytes


def key_text(seed: int) -> str:
    """A master key as people write it."""
    return base64.b64encode(seeded_bytes(seed)(32)).decode()


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def lines(path: Path) -> list[str]:
    return path.read_text().split()


def names(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.iterdir())
