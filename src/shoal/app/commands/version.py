"""``shoal version``: what is installed."""

from __future__ import annotations

import platform
import sqlite3

from shoal import __version__
from shoal.cli.apps import new_app
from shoal.cli.options import Output
from shoal.cli.printers import Format, put

app = new_app("Print the versions of Shoal, Python and SQLite.")


@app.command()
def version(output: Output = Format.TABLE) -> None:
    """Print the versions of Shoal, Python and SQLite. `shoal whoami` has the version of the control plane."""
    found = {"shoal": __version__, "python": platform.python_version(), "sqlite": sqlite3.sqlite_version}
    put(found, output, lambda: "".join(f"{name:<8}{text}\n" for name, text in found.items()))
