"""How long the tests of this folder go on. SHOAL_CHAOS_ROUNDS multiplies it: 1 for `make chaos`, more for `make soak`."""

from __future__ import annotations

import os

ROUNDS = int(os.environ.get("SHOAL_CHAOS_ROUNDS", "1"))


def seeds(first: int = 1) -> range:
    """A seed for each round."""
    return range(first, first + ROUNDS)
