"""``shoal up``: everything there is, on this machine."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from shoal.app.home import directory
from shoal.app.up import REGIONS, UpOptions, run_up
from shoal.cli.apps import new_app

app = new_app("Start everything there is, with its state in one directory; Ctrl-C ends it.")


@app.command()
def up(
    dir: Annotated[Path | None, typer.Option(help="state directory; default $SHOAL_HOME, else ~/.shoal")] = None,
    regions: Annotated[str, typer.Option(help="comma-separated; each gets a cluster and an agent")] = ",".join(REGIONS),
    port: Annotated[
        int | None, typer.Option(help="of the control plane; default the last one used, else 7400 or the next free one")
    ] = None,
    empty: Annotated[bool, typer.Option("--empty", help="without the demo app")] = False,
) -> None:
    """Start everything there is and print `ready`; a second `up` with the same directory goes on where it was."""
    names = tuple(name for name in (part.strip() for part in regions.split(",")) if name)
    options = UpOptions(dir=directory(dir), regions=names, port=port, empty=empty)
    asyncio.run(run_up(options, lambda line: print(line, flush=True)))
