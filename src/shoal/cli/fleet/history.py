"""``shoal history``: the revisions of an app, and the changes of an object with their authors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any

import typer

from shoal.base.clock import RealClock
from shoal.cli.apps import new_app
from shoal.cli.fleet.session import Environment, KindWord, MaybeName, Project, opened
from shoal.cli.fleet.views import REVISION_COLUMNS
from shoal.cli.options import ContextName, Output
from shoal.cli.printers import Format, brief, duration, put, render
from shoal.cli.timestamps import age_of, clock_time

app = new_app("Show the revisions of an app, and the changes of an object with their authors.")

CHANGE_COLUMNS = ("time", "who", "action", "changed")


@app.command()
def history(
    kind: KindWord,
    name: MaybeName = "",
    limit: Annotated[int, typer.Option(min=1, max=500, help="number of revisions and of changes to show")] = 20,
    output: Output = Format.TABLE,
    project: Project = "",
    environment: Environment = "",
    context: ContextName = "",
) -> None:
    """Show the changes of an object with author and time, newest first; for an app also its revisions."""
    with opened(context, project, environment) as session:
        ref = session.find(kind, name)
        known: dict[str, Any] = {}
        if ref.kind.name == "App":
            known["revisions"] = session.get(ref, "deployments", limit=limit)["items"]
        known["changes"] = session.get(ref, "history", limit=limit)["items"]
    put(known, output, lambda: _tables(known, output))


def _tables(known: Mapping[str, Any], output: Format) -> str:
    tables = []
    if "revisions" in known:
        rows = revision_rows(known["revisions"], RealClock().now())
        tables.append(render(rows, REVISION_COLUMNS, output, ("name",)))
    tables.append(render(change_rows(known["changes"]), CHANGE_COLUMNS, output, ("correlation",)))
    return "\n".join(tables)


def revision_rows(revisions: Sequence[Mapping[str, Any]], now: datetime) -> list[dict[str, Any]]:
    return [
        {
            **each,
            "created": f"{age_of(each['createdAt'], now)} ago",
            "ready_after": _between(each["createdAt"], each.get("readyAt")),
        }
        for each in revisions
    ]


def change_rows(changes: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [
        {**each, "time": clock_time(each["at"]), "who": each["actor"], "changed": _changed(each)} for each in changes
    ]


def _changed(change: Mapping[str, Any]) -> str:
    diffs = change.get("diff") or []
    if change["action"] == "create" or not isinstance(diffs, list):
        return ""
    return "; ".join(f"{each['path']}: {brief(each['before'], 30)} → {brief(each['after'], 30)}" for each in diffs)


def _between(start: Any, end: Any) -> str:
    if not start or not end:
        return ""
    length = datetime.fromisoformat(str(end)) - datetime.fromisoformat(str(start))
    return duration(max(0.0, length.total_seconds()))
