"""``shoal scale``: changes the number of instances of an app."""

from __future__ import annotations

from typing import Annotated

import typer

from shoal.cli.apps import new_app
from shoal.cli.fleet.apply import report
from shoal.cli.fleet.session import CorrelationId, DryRun, Environment, Name, Project, opened
from shoal.cli.options import ContextName, Output
from shoal.cli.printers import Format, put
from shoal.errors import ConfigError

app = new_app("Change the number of instances of an app.", group=True, default="app")


@app.command("app")
def scale_app(
    name: Name,
    replicas: Annotated[int | None, typer.Option(min=0, max=10_000, help="instances in each region")] = None,
    least: Annotated[
        int | None, typer.Option("--min", min=1, max=10_000, help="at least, where an autoscaler decides")
    ] = None,
    most: Annotated[
        int | None, typer.Option("--max", min=1, max=10_000, help="at most, where an autoscaler decides")
    ] = None,
    region: Annotated[str, typer.Option(help="only in this region; default: all regions of the app")] = "",
    dry_run: DryRun = False,
    correlation_id: CorrelationId = "",
    output: Output = Format.TABLE,
    project: Project = "",
    environment: Environment = "",
    context: ContextName = "",
) -> None:
    """Change the number of instances of an app, in one region or in all. Where an autoscaler decides, --min and --max
    change its bounds, and --replicas has no effect. Applying a file later overrides it."""
    given = {"replicas": replicas, "min": least, "max": most, "region": region or None}
    body = {name: value for name, value in given.items() if value is not None}
    if not body.keys() & {"replicas", "min", "max"}:
        raise ConfigError("give --replicas, or --min and --max for an app that is autoscaled")
    with opened(context, project, environment, correlation=correlation_id) as session:
        ref = session.find("app", name)
        changed = session.send("POST", ref, "scale", body, dryRun=dry_run)
        put(changed, output, lambda: report([changed]))
        if changed["changed"] and not dry_run:
            session.say_correlation()
