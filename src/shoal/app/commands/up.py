"""``shoal up``: runs the whole system on this machine."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from shoal.app.home import directory
from shoal.app.start_display import LiveDisplay
from shoal.app.up import run_up
from shoal.app.up_options import REGIONS, UpOptions, parse_regions, remembered_regions
from shoal.base.clock import RealClock
from shoal.cli.apps import new_app
from shoal.cli.extras import require

app = new_app("Start the whole system on this machine, with its state in one directory; Ctrl-C stops it.")


@app.command()
def up(
    dir: Annotated[Path | None, typer.Option(help="state directory; default $SHOAL_HOME, else ~/.shoal")] = None,
    regions: Annotated[
        str | None,
        typer.Option(
            help="regions, separated by commas; each gets a cluster and an agent; default: those of the last start, "
            f"else {','.join(REGIONS)}"
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(help="port of the control plane; default: the last one used, else 7400 or the next free port"),
    ] = None,
    empty: Annotated[bool, typer.Option("--empty", help="do not start the demo app, nor send requests to it")] = False,
) -> None:
    """Start the whole system and print `ready`; a later `up` with the same directory keeps its state."""
    require("shoal up", "all")  # before anything starts: it is the processes below it that need them
    home = directory(dir)
    names = remembered_regions(home) if regions is None else parse_regions(regions)
    options = UpOptions(dir=home, regions=names, port=port, empty=empty)
    display = LiveDisplay(RealClock()) if sys.stdout.isatty() and os.environ.get("TERM") != "dumb" else None
    asyncio.run(run_up(options, lambda line: print(line, flush=True), display=display))
