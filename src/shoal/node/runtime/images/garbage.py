"""Which images have to go so that the rest fits into the budget; pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

_LOW_PERCENT = 80  # of the budget are left, so that the next image does not start all over


@dataclass(frozen=True, slots=True)
class Candidate:
    """An image as the choice sees it."""

    id: str
    layers: Mapping[str, int]  # sizes by diff id
    used_at: float


def to_remove(
    images: Iterable[Candidate], *, budget_bytes: int, in_use: Collection[str], used_since: float
) -> list[str]:
    """The ids of images to remove, least recently used first: none if all fit, and never one that a container uses or
    that was used after ``used_since``. A layer counts once, and is free when its last image goes."""
    known = sorted(images, key=lambda each: (each.used_at, each.id))
    holders: dict[str, int] = {}
    sizes: dict[str, int] = {}
    for each in known:
        for layer, size in each.layers.items():
            holders[layer] = holders.get(layer, 0) + 1
            sizes[layer] = size
    total = sum(sizes.values())
    if total <= budget_bytes:
        return []
    goal, found = budget_bytes * _LOW_PERCENT // 100, []
    for each in known:
        if total <= goal:
            break
        if each.id in in_use or each.used_at > used_since:
            continue
        found.append(each.id)
        for layer in each.layers:
            holders[layer] -= 1
            if not holders[layer]:
                total -= sizes[layer]
    return found
