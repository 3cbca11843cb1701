"""``shoal version``: what is installed."""

from __future__ import annotations

import platform
import sqlite3

import typer

from shoal import __version__
from shoal.cli.apps import new_app

app = new_app("Print the versions of Shoal, Python and SQLite.")


@app.command()
def version() -> None:
    """Print the versions of Shoal, Python and SQLite."""
    typer.echo(f"shoal   {__version__}")
    typer.echo(f"python  {platform.python_version()}")
    typer.echo(f"sqlite  {sqlite3.sqlite_version}")
