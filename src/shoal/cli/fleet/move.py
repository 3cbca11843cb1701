"""``shoal move``: moves an app to another cluster of its region; the old instances stop once the new ones are ready."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from shoal.cli.apps import new_app
from shoal.cli.fleet.apply import effect_line
from shoal.cli.fleet.hints import hints
from shoal.cli.fleet.session import DryRun, Environment, Name, Project, opened
from shoal.cli.options import ContextName, Output
from shoal.cli.printers import Format, put
from shoal.cli.rest import RequestRefused
from shoal.errors import ShoalError

app = new_app("Move an app to another cluster of its region.", group=True, default="app")


@app.command("app")
def move_app(
    name: Name,
    region: Annotated[str, typer.Option(help="region of the app")],
    cluster: Annotated[str, typer.Option(help="target cluster in that region")],
    shard: Annotated[str, typer.Option(help="shard of that cluster; default: its first")] = "",
    dry_run: DryRun = False,
    output: Output = Format.TABLE,
    project: Project = "",
    environment: Environment = "",
    context: ContextName = "",
) -> None:
    """Start to move an app to another cluster of a region. It keeps running on the old cluster until it is ready on the
    new one. A move to another shard of the same cluster replaces its pods one by one."""
    body = {"region": region, "cluster": cluster, **({"shard": shard} if shard else {})}
    with opened(context, project, environment) as session:
        ref = session.find("app", name)
        try:
            moved = session.send("POST", ref, "move", body, dryRun=dry_run)
        except RequestRefused as refused:
            fixes = [f"  → {each}" for each in hints(session, refused.details, {})]
            raise ShoalError("\n".join([str(refused), *fixes])) from None
    where = f"{'would move' if dry_run else 'moves'} to {cluster} in {region}"
    put(moved, output, lambda: _text(ref.shown, where, moved["effects"]))


def _text(shown: str, where: str, effects: Sequence[Mapping[str, Any]]) -> str:
    if not effects:
        return f"{shown} is already there\n"
    return "".join([f"{shown} {where}\n", *(f"  {effect_line(effect)}\n" for effect in effects)])
