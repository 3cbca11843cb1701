"""``shoal control start``: the control plane of a fleet."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from shoal.app.config import LOOPBACK
from shoal.app.home import directory
from shoal.app.processes import run_until_signal, stop_when_stdin_ends
from shoal.base import logs
from shoal.cli.apps import new_app

app = new_app("Run the control plane of a fleet.", group=True)


@app.command("start")
def start(
    dir: Annotated[
        Path | None, typer.Option(help="state directory; default `control` in $SHOAL_HOME, else in ~/.shoal")
    ] = None,
    port: Annotated[
        int | None, typer.Option(help="of REST API and agents; default the last one used, else 7400 or the next free")
    ] = None,
    host: Annotated[str, typer.Option(help="address to bind")] = LOOPBACK,
    database: Annotated[
        list[str] | None,
        typer.Option(
            help="sqlite:///PATH or postgresql://USER@HOST/DATABASE; may be repeated as NAME=URL; default SQLite in "
            "the directory",
            envvar="SHOAL_DATABASE",
        ),
    ] = None,
    workspace: Annotated[
        list[str] | None, typer.Option(help="WORKSPACE=DATABASE, where a workspace is not in the first one")
    ] = None,
    events: Annotated[
        str, typer.Option(help="redis://HOST:PORT that carries wake-ups between control planes", envvar="SHOAL_EVENTS")
    ] = "",
    master_key: Annotated[
        str,
        typer.Option(
            help="file:PATH, env:NAME or vault:https://HOST:8200/transit/NAME; default $SHOAL_MASTER_KEY, else a file "
            "in the directory"
        ),
    ] = "",
    tls_san: Annotated[
        list[str] | None, typer.Option(help="further name or address in the certificate; may be repeated")
    ] = None,
    log_level: Annotated[str, typer.Option(help=", ".join(logs.LEVELS), envvar="SHOAL_LOG_LEVEL")] = "info",
    stop_on_eof: Annotated[bool, typer.Option(hidden=True)] = False,
) -> None:
    """Start a control plane and print `ready URL` when it answers; SIGTERM or Ctrl-C ends it."""
    from shoal.app.fleet.config import ControlOptions, opened_config

    logs.configure(level=log_level)
    options = ControlOptions(
        dir=dir.expanduser().absolute() if dir is not None else directory(None) / "control",
        port=port,
        host=host,
        databases=tuple(database or ()),
        workspaces=tuple(workspace or ()),
        events=events,
        master_key=master_key,
        extra_hosts=tuple(tls_san or ()),
    )
    with opened_config(options) as config:
        if stop_on_eof:
            stop_when_stdin_ends()
        from shoal.app.fleet.control import run_control

        def serve(stop: asyncio.Event) -> object:
            return run_control(config, stop, lambda: print(f"ready {config.url}", flush=True))

        run_until_signal(serve)
