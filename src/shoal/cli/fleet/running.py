"""``shoal stop``, ``start`` and ``restart``: an app without instances, with them again, and with new ones."""

from __future__ import annotations

from shoal.cli.apps import new_app
from shoal.cli.fleet.apply import report
from shoal.cli.fleet.session import CorrelationId, DryRun, Environment, FleetSession, Name, Project, opened
from shoal.cli.options import ContextName, Output
from shoal.cli.printers import Format, put

stop = new_app("Stop an app everywhere, and keep everything else of it.", group=True, default="app")
start = new_app("Start an app that was stopped.", group=True, default="app")
restart = new_app("Replace all instances of an app.", group=True, default="app")


@stop.command("app")
def stop_app(
    name: Name,
    dry_run: DryRun = False,
    correlation_id: CorrelationId = "",
    output: Output = Format.TABLE,
    project: Project = "",
    environment: Environment = "",
    context: ContextName = "",
) -> None:
    """Stop the instances of an app in all regions. Its revisions, routes and secrets stay, and a rollout that is under
    way ends. Applying a file later starts it again, unless the file says `desired: stopped`."""
    with opened(context, project, environment, correlation=correlation_id) as session:
        _change(session, name, "stop", output, dry_run=dry_run)


@start.command("app")
def start_app(
    name: Name,
    dry_run: DryRun = False,
    correlation_id: CorrelationId = "",
    output: Output = Format.TABLE,
    project: Project = "",
    environment: Environment = "",
    context: ContextName = "",
) -> None:
    """Start an app that was stopped, with as many instances as before."""
    with opened(context, project, environment, correlation=correlation_id) as session:
        _change(session, name, "start", output, dry_run=dry_run)


@restart.command("app")
def restart_app(
    name: Name,
    dry_run: DryRun = False,
    correlation_id: CorrelationId = "",
    output: Output = Format.TABLE,
    project: Project = "",
    environment: Environment = "",
    context: ContextName = "",
) -> None:
    """Replace all instances of an app: a new revision that is like the newest one, without the steps of its rollout.
    Old instances run until new ones are ready. Files that are applied later do not take it back."""
    with opened(context, project, environment, correlation=correlation_id) as session:
        _change(session, name, "restart", output, dry_run=dry_run)


def _change(session: FleetSession, name: str, verb: str, output: Format, *, dry_run: bool) -> None:
    changed = session.send("POST", session.find("app", name), verb, dryRun=dry_run)
    put(changed, output, lambda: report([changed]))
    if changed["changed"] and not dry_run:
        session.say_correlation()
