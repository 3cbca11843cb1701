"""``shoal config``: the contexts of the command line, and the settings of processes: check, show, schema."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated

import typer

from shoal.app.home import directory
from shoal.app.settings import PROCESSES, process_named
from shoal.base import settings
from shoal.cli.fleet.config import app as app
from shoal.cli.options import Output
from shoal.cli.printers import Format, put_rows

_COLUMNS = ("setting", "value", "from")
_Process = Annotated[str, typer.Argument(metavar="PROCESS", help=", ".join(PROCESSES))]


@app.command("check")
def check(
    process: _Process,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="settings file, YAML or JSON")],
) -> None:
    """Check the settings file of a process without starting it."""
    kind = process_named(process)
    settings.check(kind.settings, file)
    typer.echo(f"{file} is valid for `{kind.command}`")


@app.command("show")
def show(
    process: _Process,
    file: Annotated[
        Path | None, typer.Option("--config", help="settings file, YAML or JSON; default the process's variable")
    ] = None,
    output: Output = Format.TABLE,
) -> None:
    """Show the settings that a process would start with here, without flags, and where each value comes from."""
    kind = process_named(process)
    found = settings.effective(
        kind.settings,
        file=kind.file(file, os.environ),
        environ=os.environ,
        prefix=kind.prefix,
        variables=kind.variables,
        defaults=kind.defaults(directory(None)),
    )
    rows = [{"setting": each.key, "value": each.value, "from": each.source or "must be given"} for each in found]
    put_rows(rows, _COLUMNS, output, value=json.loads(json.dumps(rows, default=str)), name=lambda row: row["setting"])


@app.command("schema")
def schema(process: _Process) -> None:
    """Print the JSON Schema of a process's settings file, for editors."""
    kind = process_named(process)
    made = settings.json_schema(kind.settings)
    typer.echo(json.dumps({**made, "title": f"settings of `{kind.command}`"}, indent=2))
