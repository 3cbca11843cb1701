"""``shoal up``: everything there is, on this machine."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from shoal.app.config import DEFAULT_PORT, ClusterOptions, checked_config, not_available
from shoal.app.home import directory
from shoal.app.up import UpOptions, run_up
from shoal.cli.apps import new_app

app = new_app("Start everything there is, with its state in one directory; Ctrl-C ends it.")


@app.command()
def up(
    dir: Annotated[Path | None, typer.Option(help="state directory; default $SHOAL_HOME, else ~/.shoal")] = None,
    port: Annotated[
        int | None, typer.Option(help=f"API port; default the last one used, else {DEFAULT_PORT} or the next free one")
    ] = None,
    store: Annotated[str, typer.Option(help="sqlite:///PATH or memory://; default SQLite in the directory")] = "",
    regions: Annotated[str, typer.Option(help="several regions; not available yet")] = "",
    empty: Annotated[bool, typer.Option("--empty", help="without the demo app; there is none yet")] = False,
) -> None:
    """Start everything there is and print `ready`; a second `up` with the same directory goes on where it was."""
    del empty  # what runs today is what --empty asks for
    if regions:
        raise not_available("regions", regions, "leave --regions out: there is one cluster")
    options = UpOptions(dir=directory(dir), port=port, store=store)
    checked_config(ClusterOptions(dir=options.cluster_dir, port=port, store=store))
    asyncio.run(run_up(options, lambda line: print(line, flush=True)))
