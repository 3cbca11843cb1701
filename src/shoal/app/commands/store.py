"""``shoal store``: moves a cluster's objects to another store, and undoes the mark of such a move."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from shoal.app.config import StoreUrl
from shoal.base.clock import Clock, RealClock
from shoal.cli.apps import new_app
from shoal.errors import ConfigError
from shoal.store.model import Key

app = new_app("Move a cluster's objects between stores.", group=True)

T = TypeVar("T")

_PLACE = "sqlite:///PATH, postgresql://USER@HOST/DATABASE, or the directory of a cluster"
_PROGRESS_EVERY_S = 1.0


@app.command("copy")
def copy(
    source: Annotated[str, typer.Argument(metavar="SRC", help=_PLACE)],
    target: Annotated[str, typer.Argument(metavar="DST", help=_PLACE)],
    force: Annotated[bool, typer.Option("--force", help="replace what is in DST")] = False,
) -> None:
    """Move a cluster's objects from SRC to DST. Servers on SRC go on answering reads and refuse writes from then on."""
    from shoal.store.copy import copy_store, shown

    source_url, target_url = store_url(source), store_url(target)
    progress = _progress(RealClock())
    copied = _run(copy_store(source_url, target_url, fence_of=_fences(), force=force, progress=progress))
    typer.echo(f"copied {copied.objects} objects at revision {copied.revision}, digest {copied.digest}")
    typer.echo(f"{shown(target_url)} takes writes from now on, {shown(source_url)} refuses them")
    typer.echo("start the servers again with --store and the new place")


@app.command("thaw")
def thaw(place: Annotated[str, typer.Argument(metavar="STORE", help=_PLACE)]) -> None:
    """Let a store take writes again that was copied or moved. Make sure that only one of the two does."""
    from shoal.store.copy import shown, thaw_store

    url = store_url(place)
    reason = _run(thaw_store(url))
    said = f"it refused them because {reason}" if reason else "it did before"
    typer.echo(f"{shown(url)} takes writes; {said}")


def _fences() -> Callable[[Key, bytes], str]:
    """The fence of an object: of a Lease what it says, of all others nothing."""
    from shoal.apiserver.fencing import LEASES
    from shoal.apiserver.registry import Registry

    attrs_of = Registry().attrs_of
    return lambda key, value: attrs_of(key, value).fence if key.resource == LEASES else ""


def store_url(place: str) -> str:
    """The store that an argument names: a URL, or a directory with a cluster in it."""
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
    """Run to the end; both Ctrl-C and SIGTERM stop it in order, so that the source is left as it was."""

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
        typer.echo(f"error while stopping: {error}", err=True)  # a connection that is cut off says so in its own way
        raise KeyboardInterrupt from error


def _progress(clock: Clock) -> Callable[[str, int, int], None]:
    """Says how far it is, on standard error, for copies that take longer than a moment."""
    said_s = clock.monotonic()

    def show(doing: str, done: int, total: int) -> None:
        nonlocal said_s
        if clock.monotonic() - said_s >= _PROGRESS_EVERY_S:
            said_s = clock.monotonic()
            typer.echo(f"{doing} {done} of {total} objects", err=True)

    return show
