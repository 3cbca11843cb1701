"""Rotation of the master key without downtime.

Every data key is unwrapped with the master key that wrapped it and wrapped with the current one, a few at a time.
Values, revisions and versions do not change, so agents notice nothing; a secret that a user changes meanwhile keeps the
change. After an interruption the same call continues. Until the rotation has ended, the older master keys must stay
available.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

from sqlalchemy import CursorResult, func, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from shoal.base.logs import get_logger
from shoal.control.database.engine import Database, Databases
from shoal.control.database.tables import (
    FLEET,
    ControlKey,
    Credential,
    Environment,
    GatewayCertificate,
    Project,
    Secret,
)
from shoal.control.database.transaction import Tx
from shoal.control.secrets.masters import UnknownMasterKey, Wrapped
from shoal.control.secrets.sealer import EnvelopeSealer
from shoal.errors import ServiceUnavailable
from shoal.sync.sealing import CannotOpen

_BATCH = 50  # data keys of one transaction, which takes a few milliseconds
_PASSES = 5  # over secrets that were changed under our hands

_log = get_logger("control.secrets")


@dataclass(frozen=True, slots=True)
class Unmoved:
    """A secret that is still under its old master key, and why."""

    database: str
    secret_id: str
    name: str  # project, environment and name
    master_key: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotation:
    """The result of a rotation."""

    master_key: str  # that seals now
    moved: int
    unmoved: tuple[Unmoved, ...]
    complete: bool = True  # everything was looked at; else call again


@dataclass(frozen=True, slots=True)
class _Found:
    secret_id: str
    name: str  # project, environment and name
    wrapped: Wrapped
    table: type[Secret] | type[Credential] | type[GatewayCertificate] | type[ControlKey]


@dataclass(slots=True)
class _Walk:
    """One database while it is walked through."""

    database: Database
    sealer: EnvelopeSealer
    current: str
    actor: str
    batch: int
    limit: float  # stop once so many were moved
    moved: int = 0
    raced: int = 0  # changed by another process between reading and writing
    unmoved: dict[str, Unmoved] = field(default_factory=dict)


async def rotate_secrets(
    databases: Databases,
    sealer: EnvelopeSealer,
    *,
    actor: str = "system",
    new_key: bool = True,
    limit: float = float("inf"),
) -> Rotation:
    """What ``shoal master-key rotate`` does: create a new master key unless there is one, and move everything to it."""
    if new_key:
        made = await sealer.masters.renew()
        _log.info("new master key in use", where=sealer.masters.where, master_key=made)
    return await rotate_master(databases, sealer, actor=actor, limit=limit)


async def rotate_master(
    databases: Databases,
    sealer: EnvelopeSealer,
    *,
    actor: str = "system",
    batch: int = _BATCH,
    limit: float = float("inf"),
) -> Rotation:
    """Bring every data key under the master key that seals, ``batch`` of them in a transaction, or as many as ``limit``
    (then it is not complete).

    A secret that cannot be opened is left as it is and named in the result. When the keys or a database are away
    (``ServiceUnavailable``) this ends where it is: call it again."""
    current = await sealer.masters.current()
    moved, unmoved = 0, list[Unmoved]()
    for database in databases.all:
        walk = _Walk(database, sealer, current, actor, batch, limit - moved)
        try:
            for _ in range(_PASSES):
                walk.raced = 0
                await _walk(walk)
                if not walk.raced:
                    break
        finally:
            if walk.moved:
                _log.info("data keys rewrapped", database=database.name, master_key=current, moved=walk.moved)
        moved += walk.moved
        unmoved += walk.unmoved.values()
        if moved >= limit:
            return Rotation(master_key=current, moved=moved, unmoved=tuple(unmoved), complete=False)
    return Rotation(master_key=current, moved=moved, unmoved=tuple(unmoved))


async def master_keys_in_use(databases: Databases) -> dict[str, int]:
    """How many secrets are under each master key: one that is not here may be thrown away. None at all are under one
    that only a key of the control plane still needs."""
    found: Counter[str] = Counter()
    for database in databases.all:
        async with database.reading() as session:
            for key in await session.scalars(select(ControlKey.master_key)):
                found[key] += 0
            for table in (Secret, Credential, GatewayCertificate):
                counted = select(table.master_key, func.count().label("secrets")).group_by(table.master_key)
                for row in await session.execute(counted):
                    found[row.master_key] += row.secrets
    return dict(found)


async def _walk(walk: _Walk) -> None:
    for read in (partial(_page, Secret), partial(_page, Credential), _certificates):
        after = ""
        while walk.moved < walk.limit:
            async with walk.database.reading() as session:
                page = await read(session, after, walk)
            if not page:
                break
            after = page[-1].secret_id
            await _move(walk, page)
    if walk.moved < walk.limit:
        await _move_control_keys(walk)


async def _page(table: type[Secret] | type[Credential], session: AsyncSession, after: str, walk: _Walk) -> list[_Found]:
    rows = await session.execute(
        select(
            table.id,
            Project.name.label("project"),
            Environment.name.label("environment"),
            table.name,
            table.master_key,
            table.data_key,
        )
        .join(Project, Project.id == table.project_id)
        .join(Environment, Environment.id == table.environment_id)
        .where(table.id > after, table.master_key != walk.current)
        .order_by(table.id)
        .limit(walk.batch)
    )
    return [
        _Found(row.id, f"{row.project}/{row.environment}/{row.name}", Wrapped(row.master_key, row.data_key), table)
        for row in rows
    ]


async def _certificates(session: AsyncSession, after: str, walk: _Walk) -> list[_Found]:
    table = GatewayCertificate
    rows = await session.execute(
        select(table.id, table.workspace_id, table.master_key, table.data_key)
        .where(table.id > after, table.master_key != walk.current)
        .order_by(table.id)
        .limit(walk.batch)
    )
    return [
        _Found(row.id, f"gateways of {row.workspace_id}", Wrapped(row.master_key, row.data_key), table) for row in rows
    ]


async def _move_control_keys(walk: _Walk) -> None:
    """Keys of the control plane itself. One that cannot be opened is replaced when it is needed next."""
    async with walk.database.reading() as session:
        rows = list(await session.scalars(select(ControlKey).where(ControlKey.master_key != walk.current)))
    for row in rows:
        found = _Found(row.id, row.id, Wrapped(row.master_key, row.data_key), ControlKey)
        try:
            resealed = await walk.sealer.reseal(found.wrapped)
        except (UnknownMasterKey, CannotOpen) as error:
            _log.warning("a key of the control plane stays under its old master key", key=row.id, error=str(error))
            continue
        await walk.database.run(partial(_rewrite, found=found, resealed=resealed), actor=walk.actor)


async def _move(walk: _Walk, page: Sequence[_Found]) -> None:
    ready: list[tuple[_Found, Wrapped]] = []
    away: ServiceUnavailable | None = None
    for found in page:
        try:
            ready.append((found, await walk.sealer.reseal(found.wrapped)))
            walk.unmoved.pop(found.secret_id, None)
        except (UnknownMasterKey, CannotOpen) as error:
            _leave(walk, found, str(error))
        except ServiceUnavailable as error:
            away = error
            break
    if ready:  # also when the keys went away in the middle
        moved = await walk.database.run(lambda tx: _write(tx, ready, walk.current), actor=walk.actor)
        walk.moved += moved
        walk.raced += len(ready) - moved
    if away is not None:
        raise away


def _leave(walk: _Walk, found: _Found, why: str) -> None:
    unmoved = Unmoved(walk.database.name, found.secret_id, found.name, found.wrapped.master_key, why)
    walk.unmoved[found.secret_id] = unmoved
    _log.warning("a secret stays under its old master key", secret_id=found.secret_id, name=found.name, error=why)


async def _write(tx: Tx, ready: Sequence[tuple[_Found, Wrapped]], current: str) -> int:
    """Only where the row is still as it was read. Takes no number: nothing changes for agents."""
    moved = 0
    for found, resealed in ready:
        moved += await _rewrite(tx, found, resealed)
    if moved:
        tx.audit(
            workspace_id=FLEET, action="rotate", kind="MasterKey", object_id=current, name=current,
            diff=[{"path": "secrets", "before": 0, "after": moved}],
        )  # fmt: skip
    return moved


async def _rewrite(tx: Tx, found: _Found, resealed: Wrapped) -> int:
    done = await tx.session.execute(
        update(found.table)
        .where(
            found.table.id == found.secret_id,
            found.table.data_key == found.wrapped.data_key,
            found.table.master_key == found.wrapped.master_key,
        )
        .values(data_key=resealed.data_key, master_key=resealed.master_key)
        .execution_options(synchronize_session=False)
    )
    return cast("CursorResult[Any]", done).rowcount
