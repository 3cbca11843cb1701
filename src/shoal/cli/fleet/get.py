"""``shoal get``: lists objects."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any

import typer

from shoal.base.clock import RealClock
from shoal.cli.apps import new_app
from shoal.cli.fleet.kinds import API_VERSION, CommandKind, Object, kind_and_name, kind_called
from shoal.cli.fleet.session import Environment, FleetSession, KindWord, Project, opened
from shoal.cli.options import ContextName, Output
from shoal.cli.printers import Format, document, render
from shoal.cli.timestamps import age_of
from shoal.cli.watching import Display, until_stopped

app = new_app("Show objects.")

_POLL_S = 1.0
_WIDE: Mapping[str, Callable[[Object], Any]] = {
    "version": lambda found: found["metadata"].get("version"),
    "generation": lambda found: found["metadata"].get("generation"),
    "changed": lambda found: found["metadata"].get("updatedAt"),
    "labels": lambda found: [f"{name}={value}" for name, value in (found["metadata"].get("labels") or {}).items()],
}


@app.command()
def get(
    kind: KindWord,
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="NAME, or PROJECT/ENVIRONMENT/NAME; default: all")] = "",
    project: Project = "",
    environment: Environment = "",
    everywhere: Annotated[bool, typer.Option("--all", "-A", help="in all projects and environments")] = False,
    labels: Annotated[str, typer.Option("--labels", "-l", help="a label selector, for example tier=web")] = "",
    output: Output = Format.TABLE,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="keep running and print changes")] = False,
    context: ContextName = "",
) -> None:
    """Show one object, or all of a kind in the current project and environment; without these, all."""
    kind, name = kind_and_name(kind, name)
    wanted = kind_called(kind)
    with opened(context, project, environment) as session:
        if everywhere:
            session.project = session.environment = ""

        def shown() -> str:
            found = _objects(session, wanted, name, labels)
            return text_of(wanted, found, output, single=bool(name), where=session.where)

        if not watch:
            typer.echo(shown(), nl=False)
            return
        display = Display()
        until_stopped(_POLL_S, lambda: display.show(shown()))


def _objects(session: FleetSession, kind: CommandKind, name: str, labels: str) -> list[dict[str, Any]]:
    if name:
        return [session.get(session.find(kind.word, name))]
    return list(session.list_(kind, session.project, session.environment, labels))


def text_of(kind: CommandKind, objects: list[dict[str, Any]], output: Format, *, single: bool, where: str = "") -> str:
    if not output.is_table:
        whole = objects[0] if single else {"apiVersion": API_VERSION, "kind": "List", "items": objects}
        return document(whole, output)
    if not objects:
        return f"no {kind.plural}{where if kind.parts else ''}\n"
    now = RealClock().now()
    rows = [row_of(kind, each) | {"age": age_of(each["metadata"].get("createdAt"), now)} for each in objects]
    return render(rows, ("name", *kind.columns, "age"), output, tuple(_WIDE))


def row_of(kind: CommandKind, found: Object) -> dict[str, Any]:
    columns = {**kind.columns, **_WIDE}
    return {"name": found["metadata"]["name"], **{name: read(found) for name, read in columns.items()}}
