"""``shoal stop``, ``start`` and ``restart``: an app without instances, with them again, and with new ones."""

from __future__ import annotations

import typer

from shoal.cli.apps import new_app
from shoal.cli.fleet.apply import report
from shoal.cli.fleet.session import CorrelationId, DryRun, Environment, Name, Project, opened
from shoal.cli.options import ContextName, Output
from shoal.cli.printers import Format, put


def _application(verb: str, summary: str, about: str) -> typer.Typer:
    """The command of one verb: what it does is done by the control plane."""
    app = new_app(summary, group=True, default="app")

    @app.command("app", help=about)
    def change(
        name: Name,
        dry_run: DryRun = False,
        correlation_id: CorrelationId = "",
        output: Output = Format.TABLE,
        project: Project = "",
        environment: Environment = "",
        context: ContextName = "",
    ) -> None:
        with opened(context, project, environment, correlation=correlation_id) as session:
            changed = session.send("POST", session.find("app", name), verb, dryRun=dry_run)
            put(changed, output, lambda: report([changed]))
            if changed["changed"] and not dry_run:
                session.say_correlation()

    return app


stop = _application(
    "stop",
    "Stop an app everywhere, and keep everything else of it.",
    "Stop the instances of an app in all regions. Its revisions, routes and secrets stay, and a rollout that is under "
    "way ends. Applying a file later starts it again, unless the file says `desired: stopped`.",
)
start = _application(
    "start", "Start an app that was stopped.", "Start an app that was stopped, with as many instances as before."
)
restart = _application(
    "restart",
    "Replace all instances of an app.",
    "Replace all instances of an app: a new revision that is like the newest one, without the steps of its rollout. "
    "Old instances run until new ones are ready. Files that are applied later do not take it back.",
)
