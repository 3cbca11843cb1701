"""Repeatable random bytes for tests and simulations, never for secrets: ``Ids(seeded_bytes(1))``."""

from __future__ import annotations

from random import Random

from shoal.base.ids import RandomBytes


def seeded_bytes(seed: int) -> RandomBytes:
    return Random(seed).randbytes
