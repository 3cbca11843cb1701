"""``shoal support-bundle``: what others need to find out what is wrong here, in one file, without secrets."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from shoal.app.commands.doctor import contexts, examine
from shoal.app.home import directory
from shoal.app.support import bundle
from shoal.base.clock import RealClock
from shoal.base.files import write_private
from shoal.cli.apps import new_app
from shoal.cli.contexts import has_context
from shoal.cli.options import ContextName
from shoal.cli.progress import waiting

app = new_app("Collect logs, versions, settings and metrics in one file, without secrets.")


@app.command()
def support_bundle(
    to: Annotated[
        Path | None, typer.Option("--to", metavar="FILE", help="the file to write; default shoal-support-TIME.tar.gz")
    ] = None,
    dir: Annotated[Path | None, typer.Option(help="state directory; default $SHOAL_HOME, else ~/.shoal")] = None,
    context: ContextName = "",
) -> None:
    """Write logs, versions, settings and metrics of this machine to a file, with the state of the fleet where a control
    plane answers. Keys, tokens, passwords, databases, specs of apps and the logs of pods are left out; look through it
    before you send it to somebody."""
    clock, state = RealClock(), directory(dir)
    path = (to or Path(f"shoal-support-{clock.now():%Y%m%d-%H%M%S}.tar.gz")).expanduser().absolute()
    control, navigator = contexts(state, context) if context or has_context(state) else (None, None)
    with waiting("collecting") as tell:
        checks = [asdict(check) for check in examine(state)]
        made = bundle(state, control, navigator, checks, environ=os.environ, clock=clock, tell=tell)
    write_private(path, made)
    typer.echo(f"wrote {path} ({len(made) / 1e6:.1f} MB)")
