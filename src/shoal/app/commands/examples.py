"""``shoal examples``: writes the files that the guides apply."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shoal.app import examples as files
from shoal.cli.apps import new_app

app = new_app("Write the examples of the guides to a folder.")


@app.command()
def examples(
    to: Annotated[Path, typer.Option("--to", help="folder to write to")] = Path(files.FOLDER),
    force: Annotated[bool, typer.Option("--force", help="replace files that have been changed")] = False,
) -> None:
    """Write the files that the guides apply to the folder ./examples and list them. Files that are there and have been
    changed stay, unless --force is given."""
    files.write(to.expanduser(), force=force)
    width = max(len(str(to / name)) for name in files.summaries())
    for name, summary in files.summaries().items():
        typer.echo(f"{to / name!s:<{width}}  {summary}")
