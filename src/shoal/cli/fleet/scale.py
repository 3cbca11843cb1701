"""``shoal scale``: changes the number of instances of an app."""

from __future__ import annotations

from typing import Annotated

import typer

from shoal.cli.apps import new_app
from shoal.cli.fleet.apply import report
from shoal.cli.fleet.session import CorrelationId, DryRun, Environment, Name, Project, opened
from shoal.cli.options import ContextName, Output
from shoal.cli.printers import Format, document

app = new_app("Change the number of instances of an app.", group=True, default="app")


@app.command("app")
def scale_app(
    name: Name,
    replicas: Annotated[int, typer.Option(min=0, max=10_000, help="instances in each region")],
    region: Annotated[str, typer.Option(help="only in this region; default: all regions of the app")] = "",
    dry_run: DryRun = False,
    correlation_id: CorrelationId = "",
    output: Output = Format.TABLE,
    project: Project = "",
    environment: Environment = "",
    context: ContextName = "",
) -> None:
    """Change the number of instances of an app, in one region or in all. Applying a file later overrides it."""
    body = {"replicas": replicas, **({"region": region} if region else {})}
    with opened(context, project, environment, correlation=correlation_id) as session:
        ref = session.find("app", name)
        changed = session.send("POST", ref, "scale", body, dryRun=dry_run)
        typer.echo(report([changed]) if output is Format.TABLE else document(changed, output), nl=False)
        if changed["changed"] and not dry_run:
            session.say_correlation()
