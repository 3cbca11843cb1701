"""``shoal search``: full-text search over all objects."""

from __future__ import annotations

from typing import Annotated

import typer

from shoal.cli.apps import new_app
from shoal.cli.navigator.session import At, Cluster, opened, path_of, warn_about_stale
from shoal.cli.options import ContextName, Output
from shoal.cli.printers import Format, put_rows

app = new_app("Find objects of any kind in all clusters by text.")


@app.command()
def search(
    words: Annotated[
        list[str], typer.Argument(metavar="WORD...", help="words that must all match: names, images, addresses")
    ],
    kind: Annotated[str, typer.Option("--kind", "-k", help="only these kinds, separated by commas")] = "",
    cluster: Cluster = "",
    limit: Annotated[int, typer.Option(min=1, max=1000, help="maximum number of objects to show")] = 20,
    output: Output = Format.TABLE,
    at: At = "",
    context: ContextName = "",
) -> None:
    """Find objects by words in their names, namespaces, images, hosts, addresses or labels; the best matches first."""
    with opened(context) as rest:
        answer = rest.get(path_of("search"), text=" ".join(words), kind=kind, cluster=cluster, limit=limit, at=at)
    warn_about_stale(answer)
    put_rows(
        answer["items"], ("kind", "cluster", "namespace", "name", "found"), output, wide=("score",),
        rows=lambda: [{**each, "found": each["matched"]} for each in answer["items"]],
    )  # fmt: skip
    if output.is_table and answer["total"] > len(answer["items"]):
        typer.echo(f"… and {answer['total'] - len(answer['items'])} more (--limit)")
