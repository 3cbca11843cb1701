"""``shoal set`` and ``shoal edit``: changes of an object that exists, without its file."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from shoal.cli.apps import new_app
from shoal.cli.fleet.apply import report
from shoal.cli.fleet.diff import text_to_edit
from shoal.cli.fleet.kinds import ObjectName
from shoal.cli.fleet.session import (
    CorrelationId,
    DryRun,
    Environment,
    FleetSession,
    KindWord,
    MaybeName,
    Name,
    Project,
    opened,
)
from shoal.cli.options import ContextName, Output
from shoal.cli.printers import Format, put
from shoal.cli.rest import RequestRefused
from shoal.errors import ConfigError, ShoalError

set_app = new_app("Change the image or the variables of an app.", group=True)
edit_app = new_app("Change an object in an editor.")

_TRIES = 5  # to write, where others write at the same time

Spec = dict[str, Any]


class NotEdited(ShoalError):
    """What was edited is refused; the file is kept."""


@set_app.command("image")
def set_image(
    name: Name,
    image: Annotated[str, typer.Argument(metavar="IMAGE", help="the image that the next revision runs")],
    dry_run: DryRun = False,
    correlation_id: CorrelationId = "",
    output: Output = Format.TABLE,
    project: Project = "",
    environment: Environment = "",
    context: ContextName = "",
) -> None:
    """Give an app another image. That makes a new revision, which replaces the old one as `spec.rollout` says."""
    with opened(context, project, environment, correlation=correlation_id) as session:
        ref = session.find("app", name)
        changed = _changed(session, ref, lambda spec: {**spec, "image": image}, dry_run=dry_run)
        _say(session, changed, output, dry_run)


@set_app.command("env")
def set_env(
    name: Name,
    variables: Annotated[
        list[str], typer.Argument(metavar="NAME=VALUE|NAME-...", help="variables to set, or with a minus to remove")
    ],
    dry_run: DryRun = False,
    correlation_id: CorrelationId = "",
    output: Output = Format.TABLE,
    project: Project = "",
    environment: Environment = "",
    context: ContextName = "",
) -> None:
    """Set and remove variables of an app: `shoal set env hello GREETING=hi OLD-`. That makes a new revision. Put
    passwords and keys into a secret instead."""
    given, removed = read_variables(variables)
    with opened(context, project, environment, correlation=correlation_id) as session:
        ref = session.find("app", name)
        changed = _changed(session, ref, lambda spec: _with_env(spec, given, removed), dry_run=dry_run)
        _say(session, changed, output, dry_run)


def read_variables(words: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """What ``NAME=VALUE`` sets, and the names that ``NAME-`` removes."""
    given: dict[str, str] = {}
    removed: list[str] = []
    for word in words:
        name, equals, value = word.partition("=")
        if equals and name:
            given[name] = value
        elif not equals and name.endswith("-") and len(name) > 1:
            removed.append(name[:-1])
        else:
            raise ConfigError(f"{word!r} is no variable: use NAME=VALUE to set one, or NAME- to remove it")
    return given, removed


def _with_env(spec: Spec, given: Mapping[str, str], removed: Sequence[str]) -> Spec:
    env = {**(spec.get("env") or {}), **given}
    for name in removed:
        if name not in env:
            raise ConfigError(f"{name!r} is not a variable of the app (existing: {', '.join(sorted(env)) or 'none'})")
        del env[name]
    return {**{field: value for field, value in spec.items() if field != "env"}, **({"env": env} if env else {})}


@edit_app.command()
def edit(
    kind: KindWord,
    name: MaybeName = "",
    dry_run: DryRun = False,
    correlation_id: CorrelationId = "",
    output: Output = Format.TABLE,
    project: Project = "",
    environment: Environment = "",
    context: ContextName = "",
) -> None:
    """Open an object as YAML in $SHOAL_EDITOR, $VISUAL or $EDITOR, and apply what was saved. What others changed in the
    meantime is not overwritten; a text that is refused is kept in a file."""
    with opened(context, project, environment, correlation=correlation_id) as session:
        ref = session.find(kind, name)
        live = session.get(ref)
        before = text_to_edit(live)
        path = _edited(f"{ref.kind.word}-{ref.name}", before)
        text = path.read_text()
        if text == before:
            path.unlink()
            typer.echo(f"{ref.shown} is unchanged", err=True)
            return
        try:
            changed = _put(session, ref, _read(text), live["metadata"]["version"], dry_run=dry_run)
        except ShoalError as error:
            raise NotEdited(f"{error}\n  → your text is in {path}: mend it, then `shoal apply -f {path}`") from None
        path.unlink()
        _say(session, changed, output, dry_run)


def _read(text: str) -> dict[str, Any]:
    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"not valid YAML: {error}") from None
    if not isinstance(found, dict):
        raise ConfigError("not an object: it needs apiVersion, kind, metadata and spec")
    return found


def _edited(name: str, text: str) -> Path:
    """A file of the user with the text, after the editor has ended."""
    descriptor, place = tempfile.mkstemp(prefix=f"shoal-{name}-", suffix=".yaml")
    path = Path(place)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    editor = next((os.environ[each] for each in ("SHOAL_EDITOR", "VISUAL", "EDITOR") if os.environ.get(each)), "vi")
    try:
        code = subprocess.run([*shlex.split(editor), str(path)], check=False).returncode
    except OSError as error:
        path.unlink()
        raise ConfigError(f"the editor {editor!r} does not start: {error.strerror}; set $EDITOR") from None
    if code:
        path.unlink()
        raise ShoalError(f"the editor {editor!r} ended with code {code}: nothing was changed")
    return path


def _changed(
    session: FleetSession, ref: ObjectName, change: Callable[[Spec], Spec], *, dry_run: bool
) -> dict[str, Any]:  # fmt: skip
    """Read, change and write the object; again, if somebody else wrote in between."""
    for left in range(_TRIES - 1, -1, -1):
        live = session.get(ref)
        wanted = {**yaml.safe_load(text_to_edit(live)), "spec": change(live["spec"])}
        try:
            return _put(session, ref, wanted, live["metadata"]["version"], dry_run=dry_run)
        except RequestRefused as refused:
            if refused.status not in (409, 412) or not left:
                raise
    raise AssertionError("the last try returns or raises")


def _put(session: FleetSession, ref: ObjectName, wanted: Any, version: int, *, dry_run: bool) -> dict[str, Any]:
    headers = {"If-Match": f'"{version}"'}
    reply = session.rest.request("PUT", ref.path, wanted, params={"dryRun": dry_run}, headers=headers)
    found: dict[str, Any] = reply.body
    return found


def _say(session: FleetSession, changed: dict[str, Any], output: Format, dry_run: bool) -> None:
    put(changed, output, lambda: report([changed]))
    if changed["changed"] and not dry_run:
        session.say_correlation()
