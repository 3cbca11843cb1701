"""The position in a database's sequence of changes. Pure, so that machines without I/O can use it."""

from __future__ import annotations

from typing import NamedTuple


class Position(NamedTuple):
    """Changes up to ``oldest`` were forgotten: a reader before it must read everything."""

    incarnation: int
    number: int
    oldest: int
