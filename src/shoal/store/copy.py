"""Moves a store to another SQLite file or PostgreSQL database, while its servers keep serving reads and watches.

The source is *frozen* first: it refuses writes with a reason that clients see. Every current object is then written to
the target with its revision, its created revision and its bytes, in chunks, so stores of any size work. The revision
counter is copied too, so an object's resourceVersion stays valid for gets and updates. History is not copied: the
floors of the target equal its revision. A watch from there continues; one from an older revision gets 410 and lists
again. The target is a separate log and has a new incarnation.

Until everything has been read back and compared, the target is marked as unfinished and refuses writes. Then the source
is marked as moved, and only after that the target accepts writes: the two never accept writes at the same time, even if
the copy dies. A copy that fails earlier leaves the source as it was and removes the target.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Protocol

from shoal.base.ids import Ids
from shoal.errors import ConfigError, ShoalError
from shoal.store.copy_model import BEING_COPIED, UNFINISHED, CopyHead, CopySource, CopyTarget, Row
from shoal.store.model import Key
from shoal.store.urls import POSTGRES, SQLITE, shown

Progress = Callable[[str, int, int], None]  # step, objects done, objects in total

_SUM = 1 << 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """The result of a copy."""

    objects: int
    revision: int
    digest: str


class Tally:
    """Number and digest of rows, independent of their order."""

    def __init__(self) -> None:
        self.count = 0
        self._sum = 0

    def add(self, rows: Iterable[Row]) -> None:
        for revision, resource, namespace, name, created, hole, value in rows:
            key = f"{resource}\0{namespace}\0{name}".encode()
            hashed = blake2b(b"%d %d %d %d\0" % (revision, created, hole, len(key)), digest_size=16)
            hashed.update(key)
            hashed.update(value)
            self._sum = (self._sum + int.from_bytes(hashed.digest(), "big")) % _SUM
            self.count += 1

    @property
    def digest(self) -> str:
        return f"{self._sum:032x}"


async def copy_store(
    source_url: str,
    target_url: str,
    *,
    fence_of: Callable[[Key, bytes], str],
    force: bool = False,
    progress: Progress = lambda doing, done, total: None,
    ids: Ids | None = None,
) -> Copied:
    """Move the store at ``source_url`` to ``target_url``. When this returns, the target accepts writes and the source
    refuses them. When it raises or is cancelled, the source is as it was, or the error says otherwise.
    ``fence_of`` returns ``Attrs.fence`` of an object."""
    ids = ids or Ids()
    shown_source, shown_target = shown(source_url), shown(target_url)
    if source_url == target_url:
        raise ConfigError(f"store {shown_source} cannot be copied to itself; choose another target")
    source, target = source_at(source_url, shown_source), target_at(target_url, shown_target, fence_of, ids)
    try:
        existing = await target.open(force=force)
        head = await source.freeze(f"{BEING_COPIED} to {shown_target}")
        if existing.incarnation == head.incarnation:
            raise ConfigError(f"{shown_source} and {shown_target} are the same store; choose another target")
        copied = await transfer(
            source, target, replace(head, incarnation=ids.new_uid()), shown_source, shown_target, progress
        )
        try:
            await source.keep(f"it was moved to {shown_target}")
            await target.activate()
        except ShoalError as error:
            raise ShoalError(
                f"the copy at {shown_target} is complete but not in use: {error}. Make exactly one accept writes: "
                f"`shoal store thaw {shown_target}`, or `shoal store thaw {shown_source}` to keep using the old one"
            ) from error
        return copied
    finally:
        try:
            await target.close()
        finally:
            await source.close()


class RowSource(Protocol):
    def rows(self) -> AsyncIterator[list[Row]]:
        """The current objects, in chunks."""


async def transfer(
    source: RowSource, target: CopyTarget, head: CopyHead, shown_source: str, shown_target: str, progress: Progress
) -> Copied:
    """Write the rows of ``source`` to an open ``target``, make them durable under ``head``, read them back, compare,
    and hand the target over. It still refuses writes."""
    await target.begin(f"{UNFINISHED} of {shown_source}")
    copied = Tally()
    async for rows in source.rows():
        copied.add(rows)
        await target.write(rows)
        progress("copied", copied.count, head.objects)
    await target.finish(head)
    await _verify(target, copied, head, progress, shown_target)
    await target.hand_over()
    return Copied(objects=copied.count, revision=head.revision, digest=copied.digest)


async def _verify(target: CopyTarget, copied: Tally, head: CopyHead, progress: Progress, shown_target: str) -> None:
    found = Tally()
    async for rows in target.rows():
        found.add(rows)
        progress("verified", found.count, head.objects)
    if copied.count != head.objects or (found.count, found.digest) != (copied.count, copied.digest):
        raise ShoalError(
            f"{shown_target} differs from the source: it has {found.count} objects with digest {found.digest}; "
            f"{copied.count} of {head.objects} ({copied.digest}) were read; the source is unchanged; try again"
        )


async def thaw_store(url: str) -> str:
    """Let the store at ``url`` accept writes again; return why it refused them, empty if it did not."""
    if url.startswith(SQLITE):
        from shoal.store.copy_sqlite import thaw

        return await thaw(Path(url.removeprefix(SQLITE)), shown(url))
    if url.startswith(POSTGRES):
        from shoal.store import copy_postgres

        return await copy_postgres.thaw(url, shown(url))
    raise _unknown(url)


async def rotate_event_key(url: str) -> None:
    """Replace the key that seals what the servers of the store at ``url`` tell each other through Redis."""
    if not url.startswith(POSTGRES):
        raise ConfigError(f"store {url!r} has no key for events: only servers on PostgreSQL tell each other of writes")
    from shoal.store import copy_postgres

    await copy_postgres.rotate_event_key(url, shown(url))


def source_at(url: str, shown_url: str) -> CopySource:
    if url.startswith(SQLITE):
        from shoal.store.copy_sqlite import SqliteSource

        return SqliteSource(Path(url.removeprefix(SQLITE)), shown_url)
    if url.startswith(POSTGRES):
        from shoal.store.copy_postgres import PostgresSource

        return PostgresSource(url, shown_url)
    raise _unknown(url)


def target_at(url: str, shown_url: str, fence_of: Callable[[Key, bytes], str], ids: Ids) -> CopyTarget:
    if url.startswith(SQLITE):
        from shoal.store.copy_sqlite import SqliteTarget

        return SqliteTarget(Path(url.removeprefix(SQLITE)), shown_url)
    if url.startswith(POSTGRES):
        from shoal.store.copy_postgres import PostgresTarget

        return PostgresTarget(url, shown_url, fence_of, ids)
    raise _unknown(url)


def _unknown(url: str) -> ConfigError:
    if url.startswith("memory:"):
        return ConfigError(f"store {url!r} is in memory and cannot be copied; use sqlite:///PATH or postgresql://…")
    return ConfigError(f"store {shown(url)!r} is not supported; use sqlite:///PATH or postgresql://USER@HOST/DATABASE")
