"""``shoal events``: events of the fleet and of clusters."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NoReturn

import typer

from shoal.cli.apps import new_app
from shoal.cli.fleet.kinds import ROOT, ObjectName, kind_and_name
from shoal.cli.fleet.session import Environment, FleetSession, Project, opened
from shoal.cli.options import ContextName, Output
from shoal.cli.printers import Format, cell, line_document, put_rows
from shoal.cli.timestamps import between, clock_time, precise_time
from shoal.cli.watching import ReconnectingStream
from shoal.errors import ConfigError

app = new_app("Show events.")

STEP_COLUMNS = ("time", "after", "reason", "object", "region", "cluster", "message")
EVENT_COLUMNS = ("time", "type", "reason", "object", "region", "message")
EVENT_WIDE = ("correlation",)


@app.command()
def events(
    kind: Annotated[str, typer.Argument(metavar="[KIND NAME]", help="only events of this object")] = "",
    name: Annotated[str, typer.Argument(metavar="", help="")] = "",
    follow: Annotated[
        bool, typer.Option("--follow", "-f", "--watch", "-w", help="follow events as they happen")
    ] = False,
    limit: Annotated[int, typer.Option(min=1, max=500, help="number of past events to show")] = 50,
    correlation: Annotated[
        str,
        typer.Option("--correlation", metavar="ID", help="steps of everything that the request with this id led to"),
    ] = "",
    cluster: Annotated[
        str, typer.Option("--cluster", help="Kubernetes events of this cluster, or of all clusters with `all`")
    ] = "",
    output: Output = Format.TABLE,
    project: Project = "",
    environment: Environment = "",
    context: ContextName = "",
) -> None:
    """Show the newest events, oldest first, of the workspace or of one object. With --correlation, show how far a
    change has come: accepted, committed, and in each cluster received, applied, reported, ready."""
    if correlation and (kind or cluster):
        raise ConfigError("--correlation cannot be combined with an object or --cluster: leave one of them out")
    kind, name = kind_and_name(kind, name)
    if kind and not name:
        raise ConfigError(f"name is missing: use `shoal events {kind} NAME`")
    if cluster:
        from shoal.cli.navigator.events import show_cluster_events

        show_cluster_events(cluster, kind, name, limit=limit, follow=follow, output=output, context=context)
        return
    with opened(context, project, environment) as session:
        params: dict[str, Any] = {"limit": limit, **(_named(session, kind, name) if kind else {})}
        if correlation:
            _show_steps(session, correlation, output, follow=follow)
            return
        if follow:
            _follow(session, params, output)
        found = session.rest.get(f"{ROOT}/events", **params)["items"]
        put_rows(
            found,
            EVENT_COLUMNS,
            output,
            wide=EVENT_WIDE,
            rows=lambda: event_rows(found),
            empty="no events",
            name=_object,
        )


def _show_steps(session: FleetSession, correlation: str, output: Format, *, follow: bool) -> None:
    found = session.rest.get(f"{ROOT}/events", correlation=correlation)["items"]
    if not follow:
        empty = f"nothing known of {correlation}"
        put_rows(found, STEP_COLUMNS, output, rows=lambda: step_rows(found), empty=empty, name=_object)
        return
    first, told = None, set[str]()  # after a lost connection the stream begins anew
    with ReconnectingStream(session.rest, f"{ROOT}/events", {"correlation": correlation, "follow": True}) as stream:
        while True:
            step = stream.next()
            first = first or step["at"]
            line = _streamed_step(step, first, output)
            if line not in told:
                told.add(line)
                sys.stdout.write(line)
                sys.stdout.flush()


def _streamed_step(step: Mapping[str, Any], first: str, output: Format) -> str:
    if not output.is_table:
        return _streamed(step, output)
    row = step_rows([step], first)[0]
    return "   ".join(cell(row.get(column)) for column in STEP_COLUMNS) + "\n"


def step_rows(steps: Sequence[Mapping[str, Any]], first: str = "") -> list[dict[str, Any]]:
    """Each step with its time and the time since the first one."""
    start = first or (steps[0]["at"] if steps else "")
    return [
        {**each, "time": precise_time(each["at"]), "after": between(start, each["at"]), "object": _object(each)}
        for each in steps
    ]


def _named(session: FleetSession, kind: str, name: str) -> dict[str, str]:
    ref: ObjectName = session.find(kind, name)
    session.get(ref)
    return {"kind": ref.kind.name, "name": ref.name, "project": ref.project, "environment": ref.environment}


def _follow(session: FleetSession, params: Mapping[str, Any], output: Format) -> NoReturn:
    """Print events until interrupted."""
    session.rest.get(f"{ROOT}/events", **params)  # report an invalid request before waiting
    with ReconnectingStream(session.rest, f"{ROOT}/events", {**params, "follow": True}) as stream:
        while True:
            sys.stdout.write(_streamed(stream.next(), output))
            sys.stdout.flush()


def _streamed(event: Mapping[str, Any], output: Format) -> str:
    if output.is_table:
        return line_of(event) + "\n"
    return line_document(event, output, name=_object)


def event_rows(events: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{**each, "time": clock_time(each["at"]), "object": _object(each)} for each in events]


def line_of(event: Mapping[str, Any]) -> str:
    row = event_rows([event])[0]
    return "   ".join(cell(row.get(column)) for column in EVENT_COLUMNS)


def _object(event: Mapping[str, Any]) -> str:
    return f"{str(event['kind']).lower()} {event['name']}"
