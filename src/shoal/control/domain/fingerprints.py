"""Fingerprints of secrets: they tell whether values changed, and nothing about them to who reads the database.

A fingerprint is keyed twice: with the database's signing key, as it always was, and over that with a key that is stored
wrapped by the master key. The second one turns a fingerprint that an earlier version has stored into a current one
without the values, so neither the change of version nor the rotation of the master key looks like a change of a secret.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson
from sqlalchemy import select

from shoal.base.logs import get_logger
from shoal.control.database.engine import Database
from shoal.control.database.tables import ControlKey, Secret
from shoal.control.database.transaction import Tx
from shoal.control.domain.model import KeySealer
from shoal.sync.sealing import CannotOpen, new_key

_PURPOSE = "fingerprints"
_BATCH = 100  # fingerprints that are replaced in one transaction
_CURRENT = "2:"  # the format; what has none was made by an earlier version

_log = get_logger("control.fingerprints")


@dataclass(frozen=True, slots=True)
class FingerprintKey:
    """The keys of one database."""

    key: bytes = field(repr=False)
    signing_key: bytes = field(repr=False)

    def of(self, values: Mapping[str, str]) -> str:
        return _CURRENT + self.digest(values)

    def current(self, known: str) -> str:
        """The current form of a fingerprint, which an earlier version may have made."""
        return known if known.startswith(_CURRENT) else _CURRENT + self._over(known)

    def digest(self, content: Any) -> str:
        """Of what may hold values of secrets."""
        text = orjson.dumps(content, option=orjson.OPT_SORT_KEYS)
        return self._over(hmac.digest(self.signing_key, text, hashlib.sha256).hex())

    def _over(self, digest: str) -> str:
        return hmac.digest(self.key, digest.encode(), hashlib.sha256).hex()


class FingerprintKeys:
    """The keys of all databases. Each is made when it is first needed, and kept in memory once it was unwrapped."""

    def __init__(self, sealer: KeySealer) -> None:
        self._sealer = sealer
        self._known: dict[str, FingerprintKey] = {}  # by the database's name
        self._replaced: set[str] = set()
        self._reading = asyncio.Lock()

    async def of(self, database: Database) -> FingerprintKey:
        """Not to be called in a transaction: the master key may be on another machine."""
        known = self._known.get(database.name)
        if known is None:
            async with self._reading:
                known = self._known.get(database.name)
                if known is None:
                    found = FingerprintKey(await self._read(database), database.signing_key)
                    known = self._known[database.name] = found
        return known

    async def replace_old(self, database: Database) -> None:
        """Replace the fingerprints of an earlier version, which can be tried out by who reads the database. Takes no
        number and changes no version: nothing changes for users and agents."""
        if database.name in self._replaced:
            return
        key = await self.of(database)
        async with database.reading() as session:
            rows = (await session.execute(select(Secret.id, Secret.spec))).all()
        old = [row.id for row in rows if not row.spec.get("fingerprint", _CURRENT).startswith(_CURRENT)]
        for first in range(0, len(old), _BATCH):
            some = old[first : first + _BATCH]
            async with database.transaction() as tx:
                for row in await tx.session.scalars(select(Secret).where(Secret.id.in_(some))):
                    upgrade_row(key, row)
        self._replaced.add(database.name)

    async def _read(self, database: Database) -> bytes:
        async with database.reading() as session:
            row = await session.get(ControlKey, _PURPOSE)
        if row is not None:
            try:
                return await self._sealer.unwrap(row.data_key, row.master_key)
            except CannotOpen as error:  # what it sealed is lost with its master key, and is applied again
                _log.error("the key of fingerprints cannot be opened; making a new one", error=error)
        made = new_key()
        wrapped, master_key = await self._sealer.wrap(made)
        async with database.transaction() as tx:
            if not await _put(tx, wrapped, master_key, before=b"" if row is None else row.data_key):
                row = await tx.session.get_one(ControlKey, _PURPOSE)
                wrapped, master_key = row.data_key, row.master_key
        return await self._sealer.unwrap(wrapped, master_key)


def upgrade_row(key: FingerprintKey, secret: Secret) -> None:
    known = secret.spec.get("fingerprint")
    if known is not None and (current := key.current(known)) != known:
        secret.spec = {**secret.spec, "fingerprint": current}


async def _put(tx: Tx, wrapped: bytes, master_key: str, *, before: bytes) -> bool:
    """Store a key in place of ``before``; False where another process was faster."""
    row = await tx.session.get(ControlKey, _PURPOSE)
    if (row.data_key if row is not None else b"") != before:
        return False
    if row is None:
        row = ControlKey(id=_PURPOSE, created_at=tx.now)
        tx.session.add(row)
    row.data_key, row.master_key = wrapped, master_key
    return True
