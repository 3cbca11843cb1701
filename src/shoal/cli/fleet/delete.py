"""``shoal delete``: deletes objects, and with them their running instances."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from shoal.cli.apps import new_app
from shoal.cli.fleet.apply import Files, effect_line
from shoal.cli.fleet.documents import ManifestDocument, ordered, placed, read_all
from shoal.cli.fleet.kinds import BY_NAME, ObjectName, kind_and_name, kind_called
from shoal.cli.fleet.session import DryRun, Environment, FleetSession, NoSuchObject, Project, opened
from shoal.cli.options import ContextName, Output
from shoal.cli.printers import Format, put
from shoal.cli.rest import RequestRefused
from shoal.errors import ConfigError

app = new_app("Delete objects.")


@app.command()
def delete(
    kind: Annotated[str, typer.Argument(metavar="[KIND NAME]", help="the object to delete; or use -f FILE")] = "",
    name: Annotated[str, typer.Argument(metavar="", help="")] = "",
    filename: Files = None,
    cascade: Annotated[bool, typer.Option("--cascade", help="also delete all objects in it")] = False,
    keep_running: Annotated[
        bool, typer.Option("--keep-running", help="apps only: what runs goes on, and is not managed any more")
    ] = False,
    dry_run: DryRun = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="do not ask for confirmation")] = False,
    ignore_not_found: Annotated[
        bool, typer.Option("--ignore-not-found", help="an object that does not exist is no error")
    ] = False,
    output: Output = Format.TABLE,
    project: Project = "",
    environment: Environment = "",
    context: ContextName = "",
) -> None:
    """Delete one object, or all objects that files describe, dependents first. It asks first on a terminal."""
    kind, name = kind_and_name(kind, name)
    if bool(kind) == bool(filename) or bool(kind) != bool(name):
        raise ConfigError("nothing to delete: use `shoal delete KIND NAME` or `shoal delete -f FILE`")
    with opened(context, project, environment) as session:
        if kind:
            refs = _named(session, kind, name, tolerant=ignore_not_found)
        else:
            refs = [_ref(session, each) for each in reversed(ordered(read_all(filename or [])))]
        others = [ref.shown for ref in refs if ref.kind.name != "App"] if keep_running else []
        if others:
            raise ConfigError(f"--keep-running is for apps only, and there is {others[0]}: name the apps")
        how: dict[str, Any] = {"cascade": cascade} | ({"release": True} if keep_running else {})
        if not dry_run and not yes and sys.stdin.isatty():
            _ask(session, refs, how)
        results = _delete_all(session, refs, how, dry_run=dry_run, strict=bool(kind) and not ignore_not_found)
    found = [result for _, result in results if result is not None]
    put(
        {"items": found, "dryRun": dry_run}, output,
        lambda: "".join(_line(ref, result, dry_run=dry_run, released=keep_running) for ref, result in results),
    )  # fmt: skip


def _named(session: FleetSession, kind: str, name: str, *, tolerant: bool) -> list[ObjectName]:
    try:
        return [session.find(kind, name)]
    except NoSuchObject:
        if not tolerant:
            raise
        return []


def _ref(session: FleetSession, document: ManifestDocument) -> ObjectName:
    kind = BY_NAME.get(document.kind)
    if kind is None or not document.metadata.get("name"):
        raise ConfigError(f"{document.origin}: kind or metadata.name is missing or unknown")
    metadata = placed(document, session.project, session.environment).metadata
    ref = ObjectName(
        kind, str(metadata["name"]), str(metadata.get("project") or ""), str(metadata.get("environment") or "")
    )  # fmt: skip
    for part in kind.parts:
        if not getattr(ref, part):
            raise ConfigError(f"{document.shown}: metadata.{part} is missing: set it there, or with --{part}")
    return ref


def _ask(session: FleetSession, refs: list[ObjectName], how: dict[str, Any]) -> None:
    lines = []
    released = "release" in how
    for ref, result in _delete_all(session, refs, how, dry_run=True, strict=False, tolerant=True):
        if result is not None:
            lines.append(_line(ref, result, dry_run=True, released=released))
    typer.echo("".join(lines), nl=False, err=True)
    if lines:
        what = "Release" if released else "Delete"
        typer.confirm(f"{what} it?" if len(lines) == 1 else f"{what} them?", abort=True, err=True)


def _delete_all(
    session: FleetSession,
    refs: list[ObjectName],
    how: dict[str, Any],
    *,
    dry_run: bool,
    strict: bool,
    tolerant: bool = False,
) -> list[tuple[ObjectName, dict[str, Any] | None]]:
    """Delete the objects; the result is None for one that does not exist, which is an error with ``strict``.
    ``tolerant``: a dry run ignores that an object is not empty, because its content would be deleted before."""
    results: list[tuple[ObjectName, dict[str, Any] | None]] = []
    tolerant = tolerant or (dry_run and len(refs) > 1)
    for ref in refs:
        try:
            result = session.send("DELETE", ref, dryRun=dry_run, **how)
        except NoSuchObject:
            if strict:
                raise
            result = None
        except RequestRefused as refused:
            if not (tolerant and refused.status == 409):
                raise _with_fix(refused, cascade=how["cascade"]) from None
            result = {"also": [], "effects": [], "dryRun": True}
        results.append((ref, result))
    return results


def _with_fix(refused: RequestRefused, *, cascade: bool) -> RequestRefused:
    if refused.status != 409 or cascade:
        return refused
    return RequestRefused(refused.status, refused.code, f"{refused.message} (--cascade)", refused.details, refused.body)


def _line(ref: ObjectName, result: dict[str, Any] | None, *, dry_run: bool, released: bool = False) -> str:
    if result is None:
        return f"{ref.shown}   not found\n"
    done = "released, and what runs goes on" if released else "deleted"
    lines = [f"{ref.shown}   {'would be ' if dry_run else ''}{done}"]
    for other in result["also"]:
        inside = ObjectName(kind_called(other["kind"]), other["name"], other["project"], other["environment"])
        lines.append(f"  and {inside.shown}")
    if dry_run:
        lines += [f"  {effect_line(each)}" for each in result["effects"]]
    return "\n".join(lines) + "\n"
