"""Seals what servers of one store tell each other through Redis, which is trusted with nothing but delivery.

The key is in the database (``shoal.event_key``): a user who may write there may write the log. ``rotate`` adds a key;
servers begin to use it within ``REFRESH_S``, and accept what the key before it has sealed for another ``OVERLAP``.

AES-256-GCM must never use a nonce twice under one key, and many servers share the key of the database. So no server
seals with that key: at its start it draws a sender of 16 random bytes, derives a key of its own from both
(HKDF-SHA256), and counts its nonces from 0. It draws another sender when the database's key changes.

    seal   1 │ number of the key (8) │ sender (16) │ nonce (12) │ tag (16)

The parts of an entry are encrypted together, in order, and cut again where they were cut before: the ciphertext has the
length of the plaintext. The lengths, and the context that the caller gives (the entry's place in the log), are
authenticated with them, so that no part, and no entry, can take the place of another.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from datetime import timedelta
from os import urandom
from struct import Struct
from typing import TYPE_CHECKING

from shoal.base.ids import RandomBytes

if TYPE_CHECKING:
    import asyncpg
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

REFRESH_S = 30.0
OVERLAP = timedelta(minutes=10)
_KEY_BYTES = 32
_TAG_BYTES = 16
_SENDER_BYTES = 16
_SENDERS = 256  # whose keys are kept
_VERSION = 1
_HEAD = Struct(">BQ16s12s")
_PURPOSE = b"shoal events 1\0"

_USABLE = """
SELECT k.id, k.key FROM (SELECT id, key, lead(made) OVER (ORDER BY id) AS replaced FROM shoal.event_key) k
WHERE k.replaced IS NULL OR k.replaced > clock_timestamp() - $1::interval ORDER BY k.id
"""
_ADD = "INSERT INTO shoal.event_key (key) VALUES ($1)"
_DROP = """
DELETE FROM shoal.event_key WHERE id IN (
    SELECT k.id FROM (SELECT id, lead(made) OVER (ORDER BY id) AS replaced FROM shoal.event_key) k
    WHERE k.replaced < clock_timestamp() - $1::interval
)
"""


class NotSealed(ValueError):
    """These bytes were not sealed with a key of this database, or were changed since."""


class EventKeys:
    """The keys of one database, as one server uses them."""

    def __init__(self, random_bytes: RandomBytes = urandom) -> None:
        self._random_bytes = random_bytes
        self._keys: dict[int, bytes] = {}
        self._newest = 0
        self._sender = b""
        self._own: AESGCM | None = None
        self._nonce = 0
        self._others: dict[tuple[int, bytes], AESGCM] = {}  # of senders that have sealed something
        self.stale = True  # a key is missing: read them again

    async def refresh(self, connection: asyncpg.Connection) -> None:
        """Read the keys, and make the first one."""
        while not (found := await connection.fetch(_USABLE, OVERLAP)):
            await connection.execute(_ADD, self._random_bytes(_KEY_BYTES))
        self.use({row["id"]: row["key"] for row in found})

    def use(self, keys: dict[int, bytes]) -> None:
        """Seal with the key of the highest number, and open with all of them."""
        self.stale = False
        if keys == self._keys:
            return
        self._keys = keys
        self._others.clear()
        if max(keys) != self._newest:
            self._newest = max(keys)
            self._sender, self._nonce = self._random_bytes(_SENDER_BYTES), 0
            self._own = self._cipher(self._newest, self._sender)

    def seal(self, context: bytes, parts: Sequence[bytes]) -> tuple[bytes, list[bytes]]:
        """The seal, and the parts as they may be shown to anyone."""
        if self._own is None:
            raise RuntimeError("the keys were not read")
        nonce = self._nonce.to_bytes(12, "big")
        self._nonce += 1
        text = self._own.encrypt(nonce, b"".join(parts), _bound(context, parts))
        head = _HEAD.pack(_VERSION, self._newest, self._sender, nonce)
        return head + text[-_TAG_BYTES:], _cut(text, parts)

    def open(self, seal: bytes, context: bytes, parts: Sequence[bytes]) -> list[bytes]:
        """The parts as they were before; raise NotSealed if anything about them has changed."""
        from cryptography.exceptions import InvalidTag

        if len(seal) != _HEAD.size + _TAG_BYTES or seal[0] != _VERSION:
            raise NotSealed("not a seal of this version")
        _, number, sender, nonce = _HEAD.unpack_from(seal)
        if number not in self._keys:
            self.stale = True
            raise NotSealed("sealed with an unknown key")
        cipher = self._others.get((number, sender)) or self._cipher(number, sender)
        try:
            text = cipher.decrypt(nonce, b"".join(parts) + seal[_HEAD.size :], _bound(context, parts))
        except InvalidTag:
            raise NotSealed("the seal does not fit") from None
        if (number, sender) not in self._others:
            if len(self._others) >= _SENDERS:
                self._others.clear()
            self._others[number, sender] = cipher
        return _cut(text, parts)

    def _cipher(self, number: int, sender: bytes) -> AESGCM:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        # HKDF (RFC 5869) with the sender as salt; one block is a whole key
        extracted = hmac.digest(sender, self._keys[number], "sha256")
        return AESGCM(hmac.digest(extracted, _PURPOSE + b"\1", "sha256"))


async def rotate(connection: asyncpg.Connection, random_bytes: RandomBytes = urandom) -> None:
    """Add a key, and delete those that are no longer accepted."""
    await connection.execute(_ADD, random_bytes(_KEY_BYTES))
    await connection.execute(_DROP, OVERLAP)


def _bound(context: bytes, parts: Sequence[bytes]) -> bytes:
    lengths = b",".join(b"%d" % len(part) for part in parts)
    return b"%b%d:%b%b" % (_PURPOSE, len(context), context, lengths)


def _cut(text: bytes, parts: Sequence[bytes]) -> list[bytes]:
    cut, at = [], 0
    for part in parts:
        cut.append(text[at : at + len(part)])
        at += len(part)
    return cut
