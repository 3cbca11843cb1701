"""``shoal navigator forget``: removes a cluster from the navigator."""

from __future__ import annotations

from typing import Annotated

import typer

from shoal.cli.navigator.session import opened, path_of
from shoal.cli.options import ContextName


def forget(
    cluster: Annotated[str, typer.Argument(metavar="CLUSTER", help="name from `shoal query clusters`")],
    revoke: Annotated[
        bool, typer.Option("--revoke", help="also revoke the tokens of its edges, which ends their streams")
    ] = False,
    context: ContextName = "",
) -> None:
    """Remove a cluster and its objects from the navigator; the history keeps them. While an edge reports the cluster,
    stop it first, or use --revoke. An edge with a valid token can report the cluster again."""
    with opened(context) as rest:
        rest.request("DELETE", path_of("clusters", cluster), params={"revoke": revoke})
    typer.echo(f"cluster {cluster} forgotten")
