"""``shoal rollback``: goes back to an earlier revision of an app."""

from __future__ import annotations

from typing import Annotated

import typer

from shoal.cli.apps import new_app
from shoal.cli.fleet.apply import report
from shoal.cli.fleet.rollout_text import began
from shoal.cli.fleet.rollouts import rollout_of
from shoal.cli.fleet.session import CorrelationId, DryRun, Environment, Name, Project, opened
from shoal.cli.options import ContextName, Output
from shoal.cli.printers import Format, put

app = new_app("Go back to an earlier revision of an app.", group=True, default="app")


@app.command("app")
def rollback_app(
    name: Name,
    to: Annotated[
        int | None, typer.Option(min=1, help="a revision from `shoal history`; default: the last that was ready before")
    ] = None,
    dry_run: DryRun = False,
    correlation_id: CorrelationId = "",
    output: Output = Format.TABLE,
    project: Project = "",
    environment: Environment = "",
    context: ContextName = "",
) -> None:
    """Make a new revision of an app that is like an earlier one: a rollout without steps. The number of instances and
    the regions stay. Where the earlier revision still runs, nothing restarts. Applying a file later overrides it."""
    with opened(context, project, environment, correlation=correlation_id) as session:
        ref = session.find("app", name)
        changed = session.send("POST", ref, "rollback", {} if to is None else {"to": to}, dryRun=dry_run)
        put(changed, output, lambda: report([changed]))
        if changed["changed"] and not dry_run:
            if output.is_table:
                typer.echo(began(rollout_of(session, ref), str(ref)))
            session.say_correlation()
