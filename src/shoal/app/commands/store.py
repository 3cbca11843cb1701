"""``shoal store``: moves a cluster's objects to another store, makes a moved one writable again, replaces its key."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from shoal.app.config import StoreUrl
from shoal.base.clock import Clock, RealClock
from shoal.cli.apps import new_app
from shoal.errors import ConfigError

if TYPE_CHECKING:
    from shoal.store.model import Key

app = new_app("Move a cluster's objects between stores.", group=True)

T = TypeVar("T")

_PLACE = "sqlite:///PATH, postgresql://USER@HOST/DATABASE, or the directory of a cluster"
_PROGRESS_EVERY_S = 1.0


@app.command("copy")
def copy(
    source: Annotated[str, typer.Argument(metavar="SRC", help=_PLACE)],
    target: Annotated[str, typer.Argument(metavar="DST", help=_PLACE)],
    force: Annotated[bool, typer.Option("--force", help="replace the content of DST")] = False,
) -> None:
    """Move a cluster's objects from SRC to DST. From then on servers on SRC serve reads and refuse writes."""
    from shoal.store.copy import copy_store
    from shoal.store.urls import shown

    source_url, target_url = store_url(source), store_url(target)
    progress = progress_lines(RealClock())
    copied = _run(copy_store(source_url, target_url, fence_of=fences(), force=force, progress=progress))
    typer.echo(f"copied {copied.objects} objects at revision {copied.revision}, digest {copied.digest}")
    typer.echo(f"{shown(target_url)} now accepts writes, {shown(source_url)} refuses them")
    typer.echo("restart the servers with --store and the new URL")


@app.command("thaw")
def thaw(place: Annotated[str, typer.Argument(metavar="STORE", help=_PLACE)]) -> None:
    """Let a store accept writes again after `shoal store copy`. Make sure that only one of the two stores does."""
    from shoal.store.copy import thaw_store
    from shoal.store.urls import shown

    url = store_url(place)
    reason = _run(thaw_store(url))
    said = f"it refused them because {reason}" if reason else "it accepted them before"
    typer.echo(f"{shown(url)} accepts writes; {said}")


@app.command("rotate-key")
def rotate_key(
    place: Annotated[str, typer.Argument(metavar="STORE", help="postgresql://USER@HOST/DATABASE")],
) -> None:
    """Replace the key that seals what API servers on one PostgreSQL tell each other through Redis (--events)."""
    from shoal.store.copy import rotate_event_key
    from shoal.store.postgres.sealing import OVERLAP, REFRESH_S
    from shoal.store.urls import shown

    url = store_url(place)
    _run(rotate_event_key(url))
    minutes = OVERLAP.total_seconds() / 60
    typer.echo(f"{shown(url)} has a new key; servers use it within {REFRESH_S:g} s")
    typer.echo(f"they accept the old one for {minutes:g} more minutes")


def fences() -> Callable[[Key, bytes], str]:
    """A function that returns the fence of a Lease, and "" for any other object."""
    from shoal.apiserver.fencing import LEASES
    from shoal.apiserver.registry import Registry

    attrs_of = Registry().attrs_of
    return lambda key, value: attrs_of(key, value).fence if key.resource == LEASES else ""


def store_url(place: str) -> str:
    """The URL of the store that an argument names by a URL or by a cluster's directory."""
    if place.startswith(("postgresql://", "postgres://")):
        return place
    if ":" not in place or Path(place).is_dir():
        return f"sqlite:///{_file_in(Path(place).absolute())}"
    return StoreUrl.parse(place, Path.cwd()).url


def _file_in(directory: Path) -> Path:
    if not directory.is_dir():
        raise ConfigError(f"store {str(directory)!r} is neither a URL nor a directory; use {_PLACE}")
    inner = directory / "clusters" / "local" / "store.db"  # of `shoal up`
    return inner if inner.exists() else directory / "store.db"


def _run(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end. Ctrl-C and SIGTERM cancel it, and its cleanup leaves the source unchanged."""

    asked = False

    async def main() -> T:
        task = asyncio.current_task()
        assert task is not None

        def stop() -> None:
            nonlocal asked
            asked = True
            task.cancel()

        for each in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(each, stop)
        return await work

    try:
        return asyncio.run(main())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    except Exception as error:
        if not asked:
            raise
        # a cancelled query raises an error of the driver
        typer.echo(f"error while stopping: {error}", err=True)
        raise KeyboardInterrupt from error


def progress_lines(clock: Clock) -> Callable[[str, int, int], None]:
    """A function that prints progress to standard error, at most every ``_PROGRESS_EVERY_S``."""
    said_s = clock.monotonic()

    def show(doing: str, done: int, total: int) -> None:
        nonlocal said_s
        if clock.monotonic() - said_s >= _PROGRESS_EVERY_S:
            said_s = clock.monotonic()
            typer.echo(f"{doing} {done} of {total} objects", err=True)

    return show
