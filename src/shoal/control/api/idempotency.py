"""Idempotency keys: a request that a client sends twice with the same key is executed once and answered alike.

The answer is written in the transaction of the change, so neither exists without the other. It is stored without what
is shown once only: a new API key is in the first answer and nowhere else.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import orjson
from sqlalchemy import select

from shoal.control.api.answers import applied_json
from shoal.control.api.parameters import Call
from shoal.control.database.engine import Database, Databases
from shoal.control.database.tables import Idempotency
from shoal.control.database.transaction import Tx
from shoal.control.domain.fingerprints import FingerprintKeys
from shoal.control.domain.model import Applied
from shoal.control.domain.objects import SEALED, workspace_of
from shoal.errors import ApiError, BadRequest

ONCE = "key"  # in the status of a new ApiKey
_is_key = re.compile(r"[\x21-\x7e]{1,128}").fullmatch


class KeyReused(ApiError):
    """An idempotency key came back with another request."""

    reason, code = "IdempotencyKeyReused", 422


@dataclass(frozen=True, slots=True)
class Remembered:
    """The answer that was given to a request."""

    status: int
    answer: dict[str, Any]


class Answers:
    """The answers of the requests that carried a key."""

    def __init__(self, databases: Databases, fingerprints: FingerprintKeys) -> None:
        self._databases = databases
        self._fingerprints = fingerprints

    async def keyed(self, call: Call, key: str | None, kind: str, document: Any) -> KeyedRequest | None:
        """The request with its key, if it carries one."""
        if key is None:
            return None
        if not _is_key(key):
            raise BadRequest("Idempotency-Key must be 1 to 128 visible ASCII characters")
        workspace_id = call.caller.who.workspace_id
        database = self._databases.of(workspace_of(kind, workspace_id))
        content = [call.request.method, call.request.path, document]
        if kind in SEALED:  # values can be guessed, so their digest needs a key that is not in the database
            digest = (await self._fingerprints.of(database)).digest(content)
        else:
            text = orjson.dumps(content, option=orjson.OPT_SORT_KEYS)
            digest = hmac.new(database.signing_key, text, hashlib.sha256).hexdigest()
        return KeyedRequest(database, workspace_id, key, digest)


@dataclass(frozen=True, slots=True)
class KeyedRequest:
    """One request with a key."""

    database: Database
    workspace_id: str
    key: str
    digest: str

    async def answered(self) -> Remembered | None:
        """Return the stored answer; raise ``KeyReused`` if the key belongs to a different request."""
        async with self.database.reading() as session:
            row = await session.scalar(
                select(Idempotency).where(Idempotency.workspace_id == self.workspace_id, Idempotency.key == self.key)
            )
        if row is None:
            return None
        if not hmac.compare_digest(row.request, self.digest):
            raise KeyReused("this Idempotency-Key was used for another request: use a new one")
        return Remembered(row.status, row.answer)

    def remember(self, status: int) -> Callable[[Tx, Applied], Awaitable[None]]:
        """To be called inside of the transaction of the change."""

        async def write(tx: Tx, applied: Applied) -> None:
            answer = applied_json(applied)
            shown = answer["object"]
            kept = {name: value for name, value in shown["status"].items() if name != ONCE}
            answer["object"] = {**shown, "status": kept}
            if kept != shown["status"]:
                answer["warnings"] = [
                    *answer["warnings"],
                    "the key was shown in the first answer only: rotate it if it is lost",
                ]
            tx.session.add(
                Idempotency(
                    workspace_id=self.workspace_id,
                    key=self.key,
                    request=self.digest,
                    status=status,
                    answer=answer,
                    created_at=tx.now,
                )  # fmt: skip
            )

        return write
