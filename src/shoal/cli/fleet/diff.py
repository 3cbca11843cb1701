"""``shoal diff``: what applying files would change, as kubectl shows it."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Any

import typer
import yaml

from shoal.cli.apps import new_app, pass_on
from shoal.cli.fleet.apply import Files, batches, send
from shoal.cli.fleet.documents import ordered, placed, read_all
from shoal.cli.fleet.kinds import BY_NAME, ref_of
from shoal.cli.fleet.session import Environment, FleetSession, Project, opened
from shoal.cli.navigator.changes import app as changes_app
from shoal.cli.options import ContextName, Output
from shoal.cli.printers import Format, has_colours, put
from shoal.cli.rest import RequestRefused
from shoal.errors import ShoalError

app = new_app("Show what applying files would change.")

_TROUBLE = 2  # as with diff itself: 1 says that there are differences
_OWN = ("name", "project", "environment", "labels", "annotations")  # what users write of the metadata
_COLOURS = {"+": "\x1b[32m", "-": "\x1b[31m", "@": "\x1b[36m"}


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def diff(
    arguments: typer.Context,
    filename: Files = None,
    output: Output = Format.TABLE,
    project: Project = "",
    environment: Environment = "",
    context: ContextName = "",
) -> None:
    """Show the differences between the objects that files describe and those of the control plane, without changing
    anything. The exit code is 0 if there are none, 1 if there are, and more if they could not be found out."""
    if not filename:
        typer.echo("note: differences between two moments or two clusters are now shown by `shoal changes`", err=True)
        options = ["-o", str(output), *(["--context", context] if context else [])]
        pass_on(changes_app, [*arguments.args, *options], "shoal changes")
        return
    if arguments.args:
        raise typer.BadParameter(f"{' '.join(arguments.args)}: not with --filename")
    try:
        with opened(context, project, environment) as session:
            results = _planned(session, filename)
            texts = [_text(session, each) for each in results] if output.is_table else []
    except ShoalError as error:
        vars(error)["exit_code"] = _TROUBLE
        raise
    put({"items": results}, output, lambda: "".join(texts))
    if any(each["created"] or each["changed"] for each in results):
        raise typer.Exit(1)


def _planned(session: FleetSession, files: list[str]) -> list[dict[str, Any]]:
    documents = ordered([placed(each, session.project, session.environment) for each in read_all(files)])
    return [found for batch in batches(documents) for found in send(session, batch, dry_run=True)]


def _text(session: FleetSession, result: Mapping[str, Any]) -> str:
    after = result["object"]
    if after.get("kind") not in BY_NAME or not (result["created"] or result["changed"]):
        return ""
    ref = ref_of(after)
    before = None if result["created"] else _live(session, ref.path)
    lines = difflib.unified_diff(_lines(before), _lines(after), f"live {ref.shown}", f"file {ref.shown}")
    return "".join(_coloured(lines))


def _live(session: FleetSession, path: str) -> Mapping[str, Any] | None:
    try:
        found: Mapping[str, Any] = session.rest.get(path)
    except RequestRefused as refused:
        if refused.status != 404:
            raise
        return None
    return found


def _lines(found: Mapping[str, Any] | None) -> list[str]:
    return text_to_edit(found).splitlines(keepends=True) if found is not None else []


def text_to_edit(found: Mapping[str, Any]) -> str:
    """An object as YAML, as users write it: without what only the control plane knows."""
    metadata = {name: found["metadata"][name] for name in _OWN if found["metadata"].get(name)}
    shown = {"apiVersion": found["apiVersion"], "kind": found["kind"], "metadata": metadata, "spec": found.get("spec")}
    text: str = yaml.safe_dump(shown, sort_keys=False, allow_unicode=True, width=120)
    return text


def _coloured(lines: Iterator[str]) -> Iterator[str]:
    for line in lines:
        colour = _COLOURS.get(line[:1], "") if has_colours() else ""
        yield f"{colour}{line.rstrip()}\x1b[0m\n" if colour else line
