"""The consistent-hash ring, pure: keys to slots, and slots to shards by virtual nodes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from hashlib import blake2b

from shoal.sharding.model import SLOT_SHIFT, SLOTS

VIRTUAL_NODES = 100  # per shard: shares differ by about a tenth


def hash32(key: str) -> int:
    """A position on the ring. Part of the contract between managers: it never changes."""
    return int.from_bytes(blake2b(key.encode(), digest_size=4).digest())


def object_key(group: str, kind: str, namespace: str, name: str) -> str:
    """The key that an object is hashed by; without uid and version, which are not known at admission."""
    return f"{group}/{kind}/{namespace}/{name}"


def slot_of_key(key: str) -> int:
    return hash32(key) >> SLOT_SHIFT


@lru_cache(maxsize=4096)
def tokens(shard: str) -> tuple[int, ...]:
    """The positions of a shard's virtual nodes."""
    return tuple(hash32(f"{shard}#{number}") for number in range(VIRTUAL_NODES))


class Ring:
    """Shards on the ring. Immutable: for other shards make another one."""

    __slots__ = ("_owners", "_positions")

    def __init__(self, shards: Iterable[str]) -> None:
        # ties on a position go to the smaller name, so that the order of the shards does not matter
        placed = sorted((position, shard) for shard in set(shards) for position in tokens(shard))
        self._positions = [position for position, _ in placed]
        self._owners = [shard for _, shard in placed]

    def successors(self, slot: int) -> Iterator[str]:
        """The shards in the order in which a slot prefers them, each once."""
        owners = self._owners
        if not owners:
            return
        start = bisect_left(self._positions, slot << SLOT_SHIFT)
        seen: set[str] = set()
        for step in range(len(owners)):
            shard = owners[(start + step) % len(owners)]
            if shard not in seen:
                seen.add(shard)
                yield shard

    def first(self, slot: int, fits: Callable[[str], bool]) -> str:
        """The first shard that ``fits``, else the preferred one; empty on an empty ring."""
        preferred = ""
        for shard in self.successors(slot):
            preferred = preferred or shard
            if fits(shard):
                return shard
        return preferred

    def preferred(self, slot: int) -> str:
        """The shard a slot prefers; empty on an empty ring."""
        return next(self.successors(slot), "")

    def owners(self) -> list[str]:
        """The preferred shard of every slot."""
        return [self.preferred(slot) for slot in range(SLOTS)]


@lru_cache(maxsize=64)
def preferences(shards: frozenset[str]) -> tuple[str, ...]:
    """The shard that every slot prefers among these. Cached, since it is needed often while slots move."""
    return tuple(Ring(shards).owners())
