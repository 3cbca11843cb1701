"""A transaction of the fleet's database, and what every change of it has in common.

A change takes the next *number*. Its transaction locks the counter's row until the commit, so numbers are in the
order of commits, and a reader that has seen number N has seen every change up to N. What agents should do is written
with ``want`` and ``unwant``: they change ``desired`` at once, and leave a row in ``changes`` when the block ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

import orjson
from sqlalchemy.ext.asyncio import AsyncSession

from shoal.control.database.rows import Ask
from shoal.control.database.statements import Statements
from shoal.sync.keys import Place, split_key, stream_of

_TRACE_LENGTH = 64
_ACTOR_LENGTH = 255

Removal = Literal["delete", "release"]


class TxSession(AsyncSession):
    """A session that is committed by the block it belongs to, after the changes were recorded."""

    async def commit(self) -> NoReturn:
        raise RuntimeError("a transaction is committed when its block ends")


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredObject:
    """An object that should be at a place. An empty namespace or name leaves what is known. ``correlation`` is of the
    request that it follows from; None: that of the transaction."""

    place: Place
    key: str
    workspace_id: str
    namespace: str = ""
    name: str = ""
    correlation: str | None = None


class Tx:
    """Made by ``Database.transaction``. Used by one task at a time.

    ``ask`` is the short way past the session, for plain statements: what the session holds back must have been flushed
    to be seen by it."""

    def __init__(
        self,
        session: AsyncSession,
        ask: Ask,
        statements: Statements,
        *,
        dialect: str,
        now: int,
        actor: str,
        by_user: bool,
        trace: str,
        correlation: str,
    ) -> None:
        self.session = session
        self.ask = ask
        self.dialect = dialect
        self.now = now  # milliseconds since 1970
        self.actor = actor[:_ACTOR_LENGTH]
        self.by_user = by_user
        self.trace = trace[:_TRACE_LENGTH]
        self.correlation = correlation[:_TRACE_LENGTH]
        self.accepted_at = 0  # when the request came, in milliseconds since 1970; 0: there was none
        self.incarnation = 0  # known once the counter is ours
        self._statements = statements
        self._begun: int | None = None  # where the counter stood when it became ours
        self._last = 0
        self._changes: list[tuple[int, str, str, str, str, str, str]] = []
        self._events: list[tuple[Any, ...]] = []
        self._audit: list[tuple[Any, ...]] = []

    async def claim(self) -> None:
        """Wait until no other transaction has the counter; from then on they wait for this one."""
        if self._begun is None:
            (counter,) = await self.ask(self._statements.claim, {})
            self.incarnation = counter.incarnation
            self._begun = self._last = counter.number

    async def number(self) -> int:
        """The next number; every call gives another."""
        await self.claim()
        self._last += 1
        return self._last

    @contextmanager
    def caused_by(self, correlation: str) -> Iterator[None]:
        """What is wanted, removed and told inside follows from the request with this id."""
        before, self.correlation = self.correlation, correlation
        try:
            yield
        finally:
            self.correlation = before

    @property
    def taken(self) -> int:
        """The last number that was taken; 0 for none."""
        return self._last if self._last != (self._begun or 0) else 0

    async def want(self, place: Place, key: str, *, workspace_id: str, namespace: str = "", name: str = "") -> int:
        """The object should be at the place, in its current state. Returns the number of this change."""
        one = DesiredObject(place=place, key=key, workspace_id=workspace_id, namespace=namespace, name=name)
        return (await self.want_many([one]))[0]

    async def want_many(self, wanted: Sequence[DesiredObject]) -> list[int]:
        """``want`` for many at once; returns their numbers, in the same order."""
        if not wanted:
            return []
        await self.claim()
        numbers: list[int] = []
        rows: dict[tuple[Place, str], tuple[Any, ...]] = {}  # of the same object twice, the later
        for one in wanted:
            kind, object_id = split_key(one.key)
            stream, number = str(stream_of(one.key)), await self.number()
            place = (one.place.cluster, one.place.shard)
            cause = self.correlation if one.correlation is None else one.correlation
            rows[one.place, one.key] = (
                *place, stream, one.key, one.workspace_id, kind, object_id, one.namespace, one.name, number, cause,
            )  # fmt: skip
            self._changes.append((number, one.workspace_id, stream, *place, one.key, cause))
            numbers.append(number)
        await self.ask(self._statements.want, self._stamped(rows.values()))
        return numbers

    async def unwant(self, place: Place, key: str, *, action: Removal = "delete") -> int:
        """The object should not be at the place any more. Returns the number of the change that said so: an earlier
        one when that is known already, 0 when the object was never wanted there."""
        return (await self.unwant_many([(place, key)], action=action))[0]

    async def unwant_many(self, objects: Sequence[tuple[Place, str]], *, action: Removal = "delete") -> list[int]:
        """``unwant`` for many at once; returns the numbers, in the same order."""
        if not objects:
            return []
        rows = {
            (place, key): (place.cluster, place.shard, str(stream_of(key)), key, await self.number())
            for place, key in objects
        }
        stamped = {**self._stamped(rows.values()), "action": action, "correlation": self.correlation}
        changed = await self.ask(self._statements.unwant, stamped)
        found = {(Place(row.cluster_id, row.shard), row.key): row.number for row in changed}
        numbers: list[int] = []
        for place, key in objects:
            number = found.get((place, key))
            numbers.append(await self._number_of(place, key) if number is None else number)
        self._changes += sorted(
            (row.number, row.workspace_id, row.stream, row.cluster_id, row.shard, row.key, self.correlation)
            for row in changed
        )
        return numbers

    def event(
        self,
        *,
        workspace_id: str,
        kind: str,
        object_id: str,
        name: str,
        reason: str,
        message: str,
        type: str = "Normal",
        region: str = "",
    ) -> None:
        """Something happened to an object, for people."""
        self._events.append(
            (workspace_id, self.now, type, reason, kind, object_id, name, region, message, self.correlation)
        )

    def audit(
        self, *, workspace_id: str, action: str, kind: str, object_id: str, name: str, diff: list[Any] | None
    ) -> None:
        """The actor of this transaction changed an object. ``diff`` must be free of secrets."""
        self._audit.append(
            (
                workspace_id,
                self.now,
                self.actor,
                action,
                kind,
                object_id,
                name,
                self.correlation,
                self.accepted_at,
                diff,
            )
        )

    async def finish(self) -> None:
        """Write the collected rows. Called once, before the commit."""
        await self.session.flush()
        if self._events:
            await self.ask(self._statements.events, {"rows": _json(self._events)})
        if self._audit:
            await self.ask(self._statements.audit, {"rows": _json(self._audit)})
        if self._changes:
            await self.ask(self._statements.record, {"rows": _json(self._changes), "now": self.now})
        if self.taken:
            await self.ask(self._statements.advance, {"number": self._last})

    def _stamped(self, rows: Iterable[tuple[Any, ...]]) -> dict[str, Any]:
        return {"rows": _json(list(rows)), "by_user": self.by_user, "now": self.now, "trace": self.trace}

    async def _number_of(self, place: Place, key: str) -> int:
        where = {"cluster_id": place.cluster, "shard": place.shard, "stream": str(stream_of(key)), "key": key}
        found = await self.ask(self._statements.number_of, where)
        return found[0].number if found else 0


def _json(rows: list[Any]) -> str:
    return orjson.dumps(rows).decode()
