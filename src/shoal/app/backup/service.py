"""Creates, verifies and restores backups of state directories and of the databases outside them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from shoal import __version__
from shoal.app.backup.archive import ArchiveWriter, extract, new_archive, work_folder
from shoal.app.backup.selection import CLUSTER, CONTROL, NAVIGATOR, BackupPart, chosen, part_in, parts_of
from shoal.app.files import DirectoryLock, make_private_dir
from shoal.base.clock import Clock
from shoal.base.files import make_private_dirs, write_private
from shoal.base.ids import Ids
from shoal.base.table_copies import check_file, is_database
from shoal.control.database.backup import dump_database, load_database
from shoal.errors import ConfigError
from shoal.navigator.manager.backup import dump_rows, load_rows
from shoal.store.model import Key
from shoal.store.snapshot import read_snapshot, restore_store, snapshot_store
from shoal.store.urls import SQLITE

MAIN = "main"  # the only database of a part, unless a control plane has several


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupOptions:
    """What ``create`` and ``restore`` work on."""

    dir: Path
    only: Sequence[str] = ()
    store: str = ""  # of the cluster, where it is not in its directory
    databases: Mapping[str, str] = field(default_factory=dict)  # of the control plane, by name, likewise
    navigator: str = ""  # database of the navigator, likewise

    def urls_of(self, part: BackupPart) -> dict[str, str]:
        """The databases of a part, by name."""
        if part.kind == CONTROL and self.databases:
            return dict(self.databases)
        named = {CLUSTER: self.store, NAVIGATOR: self.navigator}.get(part.kind, "")
        return {MAIN: named or part.database_url}


Told = Callable[[str], None]


async def create_backup(path: Path, options: BackupOptions, *, clock: Clock, tell: Told) -> None:
    """Write a backup of the parts to ``path`` while their processes go on."""
    parts = {part.name: part for part in parts_of(options.dir)}
    wanted = [parts[name] for name in chosen(parts, options.only)]
    _check_single_cluster(options, [part.kind for part in wanted])
    now = clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
    with work_folder(path.parent) as folder, new_archive(path, version=__version__, created_at=now) as archive:
        for part in wanted:
            await _add_part(archive, part, options, folder, tell)


async def verify_backup(path: Path, *, tell: Told) -> None:
    """Check the checksums of all members, and read every database."""
    with work_folder(path.parent) as folder:
        manifest = await asyncio.to_thread(extract, path, folder)
        for name, part in manifest["parts"].items():
            for database in part["databases"]:
                told = await _read(part["kind"], folder / _member(name, database))
                tell(f"{name}: {told}")


async def restore_backup(
    path: Path,
    options: BackupOptions,
    *,
    fence_of: Callable[[Key, bytes], str],
    clock: Clock,
    ids: Ids,
    tell: Told,
    force: bool = False,
) -> None:
    """Put the parts of a backup in their place. Everything is verified first: if the backup is damaged, or a process
    uses a directory, nothing changes."""
    make_private_dir(options.dir)
    with work_folder(options.dir) as folder, ExitStack() as locks:
        manifest = await asyncio.to_thread(extract, path, folder)
        found = manifest["parts"]
        names = chosen(found, options.only)
        _check_single_cluster(options, [found[name]["kind"] for name in names])
        parts = [
            part_in(options.dir, found[name]["kind"], name, alone=bool(found[name].get("alone"))) for name in names
        ]
        for part in parts:
            for database in found[part.name]["databases"]:
                await _read(part.kind, folder / _member(part.name, database))
            _check_databases(part, options, found[part.name]["databases"], force=force)
            make_private_dir(part.folder)
            locks.enter_context(DirectoryLock(part.lock))
        for part in parts:
            for database, url in options.urls_of(part).items():
                file = folder / _member(part.name, database)
                await _load(part, database, file, url, fence_of=fence_of, clock=clock, ids=ids, force=force)
            await asyncio.to_thread(_put_files, folder / part.name / "files", part.folder)
            tell(f"{part.name}: restored to {part.folder}")


async def _add_part(archive: ArchiveWriter, part: BackupPart, options: BackupOptions, folder: Path, tell: Told) -> None:
    urls = options.urls_of(part)
    for database, url in urls.items():
        with work_folder(folder) as own:
            file = own / "database"
            await _dump(part, database, url, file)
            told = await _read(part.kind, file)
            await asyncio.to_thread(archive.add, _member(part.name, database), file)
        tell(f"{part.name}: {told}")
    for name, content in part.files():
        archive.add_bytes(f"{part.name}/files/{name}", content)
    archive.parts[part.name] = {"kind": part.kind, "alone": part.folder == options.dir, "databases": list(urls)}


async def _dump(part: BackupPart, name: str, url: str, file: Path) -> None:
    if part.kind == CLUSTER:
        await snapshot_store(url, file)
    elif part.kind == CONTROL:
        await dump_database(name, url, file)
    else:
        await dump_rows(url, file)


async def _load(
    part: BackupPart, name: str, file: Path, url: str, *,
    fence_of: Callable[[Key, bytes], str], clock: Clock, ids: Ids, force: bool,
) -> None:  # fmt: skip
    if part.kind == CLUSTER:
        await restore_store(file, url, fence_of=fence_of, force=force, ids=ids)
    elif part.kind == CONTROL:
        await load_database(name, file, url, clock=clock, ids=ids, force=force)
    else:
        await load_rows(file, url, force=force)


async def _read(kind: str, file: Path) -> str:
    """What a database of a backup holds, in words; raises ``ShoalError`` if it is damaged."""
    if kind == CLUSTER:
        taken = await read_snapshot(file)
        return f"{taken.objects} objects at revision {taken.revision}"
    tables = await check_file(file)
    return f"{sum(tables.values())} rows in {len(tables)} tables"


def _put_files(source: Path, target: Path) -> None:
    for path in sorted(source.rglob("*")):
        if path.is_file():
            to = target / path.relative_to(source)
            make_private_dirs(to.parent)
            write_private(to, path.read_bytes())


def _member(part: str, database: str) -> str:
    return f"{part}/databases/{database}.db"


def _check_single_cluster(options: BackupOptions, kinds: Sequence[str]) -> None:
    for setting, value, kind in (
        ("store", options.store, CLUSTER),
        ("database", options.databases, CONTROL),
        ("navigator-database", options.navigator, NAVIGATOR),
    ):
        if value and kinds.count(kind) != 1:
            raise ConfigError(f"--{setting} is set, and there are {kinds.count(kind)} parts of kind {kind}: use --only")


def _check_databases(part: BackupPart, options: BackupOptions, found: Sequence[str], *, force: bool) -> None:
    urls = options.urls_of(part)
    if set(found) != set(urls):
        raise ConfigError(
            f"the backup of {part.name} has the databases {', '.join(found)}: name each with --database NAME=URL"
        )
    for url in urls.values():  # those on servers are checked when they are loaded
        path = Path(url.removeprefix(SQLITE))
        if url.startswith(SQLITE) and is_database(path) and not force:
            raise ConfigError(f"{part.name} has a database, {path}: choose another --dir, or replace it with --force")
