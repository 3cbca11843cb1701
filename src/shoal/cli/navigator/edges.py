"""``shoal navigator edges``: options of edges, stored at the manager and taken over while the edges run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from shoal.cli.apps import new_app
from shoal.cli.navigator.session import opened, path_of
from shoal.cli.options import ContextName, Output
from shoal.cli.printers import Format, put, render
from shoal.errors import ConfigError

app = new_app("Show and change the options of edges: intervals, filters, limits, retries.", group=True)

EveryEdge = Annotated[bool, typer.Option("--all", help="all edges; an option of one edge wins over it")]


@app.command("get")
def get(
    edge: Annotated[str, typer.Argument(metavar="[EDGE]", help="cluster of the edge; all if missing")] = "",
    output: Output = Format.TABLE,
    context: ContextName = "",
) -> None:
    """Show the options of all edges, or the settings that one edge uses."""
    with opened(context) as rest:
        found = rest.get(path_of("edges"))
    if edge:
        chosen = [each for each in found["items"] if each["cluster"] == edge]
        if not chosen:
            known = ", ".join(each["cluster"] for each in found["items"]) or "none"
            raise ConfigError(f"edge {edge!r} not found (existing edges: {known})")
        put(chosen[0], output, lambda: _one_text(chosen[0], found["options"]), name=_cluster)
        return
    put(found, output, lambda: _all_text(found), name=_cluster)


@app.command("set")
def set_(
    words: Annotated[
        list[str], typer.Argument(metavar="[EDGE] KEY=VALUE...", help="cluster of the edge, unless --all; then options")
    ],
    every: EveryEdge = False,
    context: ContextName = "",
) -> None:
    """Set options of one edge or of all. They win over the edge's own settings, take effect at once where the edge is
    connected, and are kept over restarts. Example: shoal navigator edges set eu-1 sync.interval_s=10"""
    edge, rest_of_words = _target(words, every)
    values: dict[str, str] = {}
    for word in rest_of_words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise ConfigError(f"{word!r} is not an option: use KEY=VALUE, for example sync.interval_s=10")
        values[name] = value
    _change(edge, {"set": values}, context)


@app.command("unset")
def unset(
    words: Annotated[
        list[str], typer.Argument(metavar="[EDGE] KEY...", help="cluster of the edge, unless --all; then names")
    ],
    every: EveryEdge = False,
    context: ContextName = "",
) -> None:
    """Remove options of one edge or of all; the edge's own settings apply again."""
    edge, names = _target(words, every)
    _change(edge, {"unset": names}, context)


def _target(words: list[str], every: bool) -> tuple[str, list[str]]:
    edge, rest = ("", words) if every else (words[0], words[1:])
    if "=" in edge:
        raise ConfigError(f"{edge!r} is not the name of an edge: name one before the options, or use --all")
    if not rest:
        raise ConfigError("no option is named: use KEY=VALUE, for example sync.interval_s=10")
    return edge, rest


def _change(edge: str, body: dict[str, Any], context: str) -> None:
    with opened(context) as rest:
        rest.request("PATCH", path_of("edges", edge) if edge else path_of("edges"), body)
    typer.echo(f"options of {f'edge {edge}' if edge else 'all edges'} changed")


def _cluster(edge: Mapping[str, Any]) -> str:
    return str(edge["cluster"])


def _one_text(edge: dict[str, Any], for_all: dict[str, str]) -> str:
    if edge["error"]:
        typer.echo(f"note: the edge has refused its options: {edge['error']}", err=True)
    elif not edge["connected"]:
        typer.echo("note: the edge is not connected: only stored options are shown", err=True)
    names = {**edge["settings"], **for_all, **edge["options"]}
    rows = [
        {
            "option": name,
            "value": edge["settings"].get(name, names[name]),
            "set for": edge["cluster"] if name in edge["options"] else "all edges" if name in for_all else "",
        }
        for name in names
    ]
    return render(rows, ("option", "value", "set for"))


def _all_text(found: dict[str, Any]) -> str:
    rows = [
        {"edge": each["cluster"], "options": _options(each["options"]), "state": _state(each)}
        for each in found["items"]
    ]
    return render([{"edge": "(all)", "options": _options(found["options"])}, *rows], ("edge", "options", "state"))


def _options(options: dict[str, str]) -> list[str]:
    return [f"{name}={value}" for name, value in options.items()]


def _state(edge: dict[str, Any]) -> str:
    if not edge["connected"]:
        return "not connected"
    return f"refused: {edge['error']}" if edge["error"] else "taken" if edge["taken"] else "waiting"
