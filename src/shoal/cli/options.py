"""Options that fleet and navigator commands share."""

from __future__ import annotations

from typing import Annotated

import typer

from shoal.cli.printers import Format, read_format

ContextName = Annotated[str, typer.Option("--context", help="a context from `shoal config get-contexts`")]
Output = Annotated[
    Format,
    typer.Option(
        "--output", "-o", parser=read_format, metavar="FORMAT", help="table, wide, json, yaml, name or jsonpath=PATH"
    ),
]
