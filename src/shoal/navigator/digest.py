"""The digest of a kind: one number for all its rows. Equal rows have equal digests; others differ but once in 2^64.

A row's fingerprint is a hash of kind, key and data as sent; the digest is the exclusive or of all fingerprints. So a
change costs two hashes at any size of the cluster, and a verification eight bytes per kind.
"""

from __future__ import annotations

from hashlib import blake2b


def fingerprint(kind: str, key: str, data: bytes) -> int:
    state = blake2b(f"{kind}\0{key}\0".encode(), digest_size=8)
    state.update(data)
    return int.from_bytes(state.digest(), "big")


class KindDigest:
    """Count and digest of one kind's rows; the caller remembers the fingerprints."""

    __slots__ = ("count", "value")

    def __init__(self, count: int = 0, value: int = 0) -> None:
        self.count = count
        self.value = value

    def add(self, print_: int) -> None:
        self.count += 1
        self.value ^= print_

    def change(self, old: int, new: int) -> None:
        self.value ^= old ^ new

    def remove(self, print_: int) -> None:
        self.count -= 1
        self.value ^= print_

    def equals(self, count: int, value: int) -> bool:
        return self.count == count and self.value == value
