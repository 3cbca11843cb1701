"""``shoal audit``: who changed what in the workspace."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from shoal.cli.apps import new_app
from shoal.cli.fleet.history import change_rows
from shoal.cli.fleet.kinds import ROOT, kind_called
from shoal.cli.fleet.session import FleetSession, opened
from shoal.cli.options import ContextName, Output
from shoal.cli.printers import Format, put_rows

app = new_app("Show who changed what in the workspace.")

_COLUMNS = ("time", "who", "action", "object", "changed")
_PAGE = 500


@app.command()
def audit(
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="number of changes to show")] = 50,
    actor: Annotated[str, typer.Option("--actor", help="only changes by the token of this name")] = "",
    kind: Annotated[str, typer.Option("--kind", "-k", help="only changes of objects of this kind")] = "",
    output: Output = Format.TABLE,
    context: ContextName = "",
) -> None:
    """Show the audit log of the workspace, newest first: every change with its author and its fields. The changes of
    one object are in `shoal history KIND NAME`."""
    wanted = kind_called(kind).name if kind else ""
    with opened(context) as session:
        found = _changes(session, limit, actor, wanted)
    put_rows(
        found, _COLUMNS, output, wide=("correlation",), empty="no changes", name=_object,
        rows=lambda: [{**row, "object": _object(row)} for row in change_rows(found)],
    )  # fmt: skip


def _changes(session: FleetSession, limit: int, actor: str, kind: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    position = ""
    while True:
        page = session.rest.get(f"{ROOT}/audit", limit=_PAGE if actor or kind else min(limit, _PAGE),
                                **{"continue": position})  # fmt: skip
        found += [each for each in page["items"] if actor in ("", each["actor"]) and kind in ("", each["kind"])]
        position = page["continue"]
        if not position or len(found) >= limit:
            return found[:limit]


def _object(change: Any) -> str:
    return f"{str(change['kind']).lower()}/{change['name']}"
