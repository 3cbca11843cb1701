"""Identifiers: object uids, name suffixes and secret tokens, each from a source of randomness that can be replaced.

A component is given ``new_uid`` or ``new_suffix`` as a function; tests give it one made from a seed.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from os import urandom

RandomBytes = Callable[[int], bytes]

# No vowels and none of the signs people confuse, so that a suffix neither spells a word nor is misread; the same set
# Kubernetes uses for generated names.
SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
SUFFIX_LENGTH = 5

_ALPHABET_SIZE = len(SUFFIX_ALPHABET)
_FAIR_LIMIT = 256 - 256 % _ALPHABET_SIZE  # bytes from here on would make the first letters more likely

_POOL_BYTES = 4096  # one system call for 256 uids


def format_uid(random: bytes) -> str:
    """The version 4 UUID that these 16 random bytes make."""
    text = random.hex()
    variant = "89ab"[random[8] >> 4 & 3]
    return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-{variant}{text[17:20]}-{text[20:]}"


class Ids:
    """Makes uids and suffixes, drawing randomness in large pieces. Not thread-safe: one per event loop."""

    def __init__(self, random_bytes: RandomBytes = urandom) -> None:
        self._random_bytes = random_bytes
        self._pool = b""
        self._used = 0

    def _take(self, count: int) -> bytes:
        start, end = self._used, self._used + count
        if end > len(self._pool):
            self._pool = self._random_bytes(_POOL_BYTES)
            start, end = 0, count
        self._used = end
        return self._pool[start:end]

    def new_uid(self) -> str:
        """A random UUID, as ``metadata.uid`` has it."""
        return format_uid(self._take(16))

    def new_suffix(self, length: int = SUFFIX_LENGTH) -> str:
        """Letters to append to a ``generateName`` prefix."""
        letters: list[str] = []
        while len(letters) < length:
            letters += [SUFFIX_ALPHABET[b % _ALPHABET_SIZE] for b in self._take(length) if b < _FAIR_LIMIT]
        return "".join(letters[:length])


def new_token(size_bytes: int = 32) -> str:
    """A random bearer token, safe in URLs and headers. Always from the system's secure source."""
    return secrets.token_urlsafe(size_bytes)


def token_digest(token: str) -> str:
    """The digest to store instead of a token: it recognises the token, but cannot be used as one."""
    return hashlib.sha256(token.encode()).hexdigest()
