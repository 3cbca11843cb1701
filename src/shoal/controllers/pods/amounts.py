"""Numbers that may be given as a percentage. Pure."""

from __future__ import annotations


def scaled(value: int | str | None, total: int, *, round_up: bool) -> int:
    """``value``, or that percentage of ``total``; None is 0."""
    if value is None:
        return 0
    if isinstance(value, int):
        return value
    percent = int(value.removesuffix("%"))
    return -(-total * percent // 100) if round_up else total * percent // 100
