"""``shoal backup``: creates, verifies and restores backups."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shoal.app.home import directory
from shoal.cli.apps import new_app

if TYPE_CHECKING:
    from shoal.app.backup.service import BackupOptions

app = new_app("Back up and restore clusters, the control plane and the navigator.", group=True)

_Dir = Annotated[Path | None, typer.Option(help="state directory; default $SHOAL_HOME, else ~/.shoal")]
_Only = Annotated[
    list[str] | None, typer.Option(help="only this part: control, navigator, clusters/NAME; may be repeated")
]
_Store = Annotated[str | None, typer.Option(help="URL of the cluster's store, if it is not in its directory")]
_Database = Annotated[
    list[str] | None,
    typer.Option(help="URL of the control plane's database, if it is not in its directory; several: NAME=URL"),
]
_Navigator = Annotated[str | None, typer.Option(help="URL of the navigator's database, if it is not in its directory")]
_File = Annotated[Path, typer.Argument(metavar="FILE")]


@app.command("create")
def create(
    file: _File,
    dir: _Dir = None,
    only: _Only = None,
    store: _Store = None,
    database: _Database = None,
    navigator_database: _Navigator = None,
) -> None:
    """Write a backup to FILE: databases, keys, certificates and tokens, while the processes run. FILE holds secrets."""
    from shoal.app.backup.service import create_backup
    from shoal.base.clock import RealClock

    path = file.expanduser().absolute()
    options = _options(dir, only, store, database, navigator_database)
    asyncio.run(create_backup(path, options, clock=RealClock(), tell=typer.echo))
    typer.echo(f"wrote {path} ({path.stat().st_size / 1e6:.1f} MB); it holds keys and secrets: store it as safely")


@app.command("verify")
def verify(file: _File) -> None:
    """Check the checksums of a backup and read everything in it."""
    from shoal.app.backup.service import verify_backup

    asyncio.run(verify_backup(file.expanduser().absolute(), tell=typer.echo))
    typer.echo("the backup is complete and undamaged")


@app.command("restore")
def restore(
    file: _File,
    dir: _Dir = None,
    only: _Only = None,
    store: _Store = None,
    database: _Database = None,
    navigator_database: _Navigator = None,
    force: Annotated[bool, typer.Option("--force", help="replace what exists")] = False,
) -> None:
    """Put a backup in its place. Stop the processes of the state directory first; agents may stay connected."""
    from shoal.app.backup.service import restore_backup
    from shoal.app.commands.store import fences
    from shoal.base.clock import RealClock
    from shoal.base.ids import Ids

    options = _options(dir, only, store, database, navigator_database)
    path = file.expanduser().absolute()
    asyncio.run(
        restore_backup(path, options, fence_of=fences(), clock=RealClock(), ids=Ids(), tell=typer.echo, force=force)
    )
    typer.echo("start the processes again; agents compare what runs with what was restored, and delete nothing unasked")


def _options(
    dir: Path | None,
    only: list[str] | None,
    store: str | None,
    database: list[str] | None,
    navigator_database: str | None,
) -> BackupOptions:
    from shoal.app.backup.service import BackupOptions
    from shoal.app.commands.store import store_url
    from shoal.app.fleet.config import database_of
    from shoal.app.navigator.config import database_url

    folder = Path.cwd()
    return BackupOptions(
        dir=directory(dir),
        only=tuple(only or ()),
        store=store_url(store) if store else "",
        databases=dict(database_of(text, folder) for text in database or ()),
        navigator=database_url(navigator_database, folder) if navigator_database else "",
    )
