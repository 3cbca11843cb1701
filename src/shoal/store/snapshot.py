"""Backs a store up to a SQLite file while its servers go on writing, and restores a store from such a file.

A *snapshot* is a store of its own: the objects of one moment with their revisions. A server on SQLite writes it itself,
page by page between its batches; a store on PostgreSQL is read in one transaction. A snapshot of either kind can be
restored to either kind.

A restored store is a new history: it gets a new incarnation, and its counter jumps ahead of all revisions that clients
may have seen since the snapshot. A watch from one of these gets 410, and the client lists again.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from shoal.base.ids import Ids
from shoal.errors import ShoalError
from shoal.store.control import SNAPSHOT_S
from shoal.store.copy import Copied, Progress, Tally, target_at, transfer
from shoal.store.copy_postgres import PostgresSnapshot
from shoal.store.copy_sqlite import SnapshotFile, SqliteTarget, check_exists, control_of, explained
from shoal.store.model import Key
from shoal.store.sqlite import connect, lock_if_free
from shoal.store.urls import POSTGRES, SQLITE, shown

JUMP = 1_000_000_000  # revisions: more than a store writes between two backups


async def snapshot_store(url: str, path: Path, *, progress: Progress = lambda doing, done, total: None) -> Copied:
    """Write the store at ``url`` to the new file ``path``, which must be absolute: a server may write it."""
    if url.startswith(POSTGRES):
        return await _from_postgres(url, path, progress)
    await _from_sqlite(Path(url.removeprefix(SQLITE)), shown(url), path)
    return await read_snapshot(path)


async def read_snapshot(path: Path) -> Copied:
    """What a snapshot holds; raises ``ShoalError`` if it is damaged."""
    source = SnapshotFile(path)
    try:
        head, found = await source.open(), Tally()
        await source.check()
        async for rows in source.rows():
            found.add(rows)
        if found.count != head.objects:
            raise ShoalError(f"snapshot {path} is damaged: it has {found.count} of {head.objects} objects")
        return Copied(objects=found.count, revision=head.revision, digest=found.digest)
    finally:
        await source.close()


async def restore_store(
    path: Path,
    url: str,
    *,
    fence_of: Callable[[Key, bytes], str],
    force: bool = False,
    progress: Progress = lambda doing, done, total: None,
    ids: Ids | None = None,
) -> Copied:
    """Replace the store at ``url`` by the snapshot in ``path``. If this raises, the store is as it was."""
    ids = ids or Ids()
    source, target = SnapshotFile(path), target_at(url, shown(url), fence_of, ids)
    try:
        existing = await target.open(force=force)
        head = await source.open()
        revision = max(head.revision, existing.revision) + JUMP
        restored = replace(head, revision=revision, incarnation=ids.new_uid())
        copied = await transfer(source, target, restored, "a backup", shown(url), progress)
        await target.activate()
        return copied
    finally:
        try:
            await target.close()
        finally:
            await source.close()


async def _from_postgres(url: str, path: Path, progress: Progress) -> Copied:
    source, target = PostgresSnapshot(url, shown(url)), SqliteTarget(path, str(path))
    try:
        head = await source.open()
        await target.open(force=False)
        copied = await transfer(source, target, head, shown(url), str(path), progress)
        await target.activate()
        return copied
    finally:
        await target.close()
        await source.close()


async def _from_sqlite(store: Path, shown_url: str, path: Path) -> None:
    check_exists(store, shown_url)
    with explained(shown_url):
        fd = lock_if_free(store)
        if fd is not None:
            _copy_unused(store, path, fd)
            return
    control = await control_of(store, shown_url)
    try:
        await control.ask("snapshot", path=str(path), timeout_s=SNAPSHOT_S)
    except (OSError, TimeoutError) as error:
        raise ShoalError(f"the server on {shown_url} stopped during the backup; try again") from error
    finally:
        await control.close()


def _copy_unused(store: Path, path: Path, fd: int) -> None:
    try:
        source, target = connect(store), sqlite3.connect(path, isolation_level=None)
        try:
            source.backup(target)
        finally:
            target.close()
            source.close()
    finally:
        os.close(fd)
