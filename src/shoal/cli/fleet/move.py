"""``shoal move``: an app goes to another cluster of its region; the new place becomes ready before the old one goes."""

from __future__ import annotations

from typing import Annotated

import typer

from shoal.cli.apps import new_app
from shoal.cli.fleet.apply import effect_line
from shoal.cli.fleet.hints import hints
from shoal.cli.fleet.session import ContextName, DryRun, Environment, Name, Output, Project, opened
from shoal.cli.printers import Format, document
from shoal.cli.rest import Refused
from shoal.errors import ShoalError

app = new_app("Move an app to another cluster of its region.", group=True, default="app")


@app.command("app")
def move_app(
    name: Name,
    region: Annotated[str, typer.Option(help="where the app is")],
    cluster: Annotated[str, typer.Option(help="of that region, where it is to go")],
    shard: Annotated[str, typer.Option(help="of that cluster; default its first")] = "",
    dry_run: DryRun = False,
    output: Output = Format.TABLE,
    project: Project = "",
    environment: Environment = "",
    context: ContextName = "",
) -> None:
    """Begin to move an app of one region to a cluster: it goes on running where it is until it is ready there. To
    another shard of its cluster it is handed over, and its pods are replaced one after the other."""
    body = {"region": region, "cluster": cluster, **({"shard": shard} if shard else {})}
    with opened(context, project, environment) as session:
        ref = session.find("app", name)
        try:
            moved = session.send("POST", ref, "move", body, dryRun=dry_run)
        except Refused as refused:
            fixes = [f"  → {each}" for each in hints(session, refused.details, {})]
            raise ShoalError("\n".join([str(refused), *fixes])) from None
    if output is not Format.TABLE:
        typer.echo(document(moved, output), nl=False)
        return
    word = "would move" if dry_run else "moves"
    if not moved["effects"]:
        typer.echo(f"{ref.shown} is there already")
        return
    typer.echo(f"{ref.shown} {word} to {cluster} in {region}")
    for effect in moved["effects"]:
        typer.echo(f"  {effect_line(effect)}")
