"""``shoal checks``: saved queries that must find nothing, or something."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from shoal.cli.apps import new_app
from shoal.cli.navigator.session import At, opened, path_of, warn_about_stale
from shoal.cli.options import ContextName, Output
from shoal.cli.printers import Format, indented, put, put_rows, render

app = new_app("Save queries as checks, and show their results.", group=True)

_STATES = {True: "ok", False: "failed", None: "unknown"}

Name = Annotated[str, typer.Argument(metavar="NAME", help="name of the check")]


@app.command("run")
def run(
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="default: all")] = "",
    output: Output = Format.TABLE,
    at: At = "",
    context: ContextName = "",
) -> None:
    """Show the results of checks, with examples of failures. The exit code is 1 if one fails, or is unknown because a
    kind may not be read."""
    with opened(context) as rest:
        answer = rest.get(path_of("checks", name or "results"), at=at)
    warn_about_stale(answer)
    items: list[dict[str, Any]] = [answer] if name else answer["items"]
    put(items, output, lambda: _results(items) if items else "no checks; save one with `shoal checks save`\n")
    if not all(each["ok"] for each in items):
        raise typer.Exit(1)


def _results(items: list[dict[str, Any]]) -> str:
    rows = [{**each, "check": each["name"], "state": _STATES[each["ok"]], "found": each["total"]}
            for each in items]  # fmt: skip
    lines = [render(rows, ("check", "state", "found", "expect", "query"))]
    for each in items:
        if each["ok"]:
            continue
        lines.append(f"\n{each['name']}: {each['description'] or each['query']}\n")
        if each["error"]:
            lines.append(f"  {each['error']}\n")
        if each["examples"]:
            columns = [name for name in each["examples"][0] if name != "age"]
            lines.append(indented(render(each["examples"], columns)))
    return "".join(lines)


@app.command("list")
def list_(output: Output = Format.TABLE, context: ContextName = "") -> None:
    """Show the saved checks."""
    with opened(context) as rest:
        items = rest.get(path_of("checks"))["items"]
    put_rows(items, ("name", "expect", "query", "description"), output, empty="no checks")


@app.command("save")
def save(
    name: Name,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="a query as in `shoal query`")],
    some: Annotated[bool, typer.Option("--some", help="the query must find something; default: nothing")] = False,
    description: Annotated[str, typer.Option(help="the meaning of a failure")] = "",
    context: ContextName = "",
) -> None:
    """Save a check, or change one."""
    body = {"query": query, "expect": "some" if some else "empty", "description": description}
    with opened(context) as rest:
        rest.request("PUT", path_of("checks", name), body)
    typer.echo(f"check {name} saved")


@app.command("remove")
def remove(name: Name, context: ContextName = "") -> None:
    """Remove a check."""
    with opened(context) as rest:
        rest.request("DELETE", path_of("checks", name))
    typer.echo(f"check {name} removed")
