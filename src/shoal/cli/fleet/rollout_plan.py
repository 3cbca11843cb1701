"""``shoal rollout plan``: plays how the revisions of an app will replace each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shoal.base.clock import RealClock
from shoal.cli.fleet.apply import Files
from shoal.cli.fleet.documents import ManifestDocument, parse, placed, read_all
from shoal.cli.fleet.session import Environment, Project
from shoal.cli.options import Output
from shoal.cli.printers import Format, put, render
from shoal.errors import ConfigError

if TYPE_CHECKING:
    from shoal.control.domain.rehearsal_script import RehearsedEvents

COLUMNS = ("time", "wave", "step", "region", "weight", "candidate", "stable", "decision", "reason")


def plan(
    filename: Files = None,
    simulate: Annotated[
        Path | None,
        typer.Option(metavar="SCRIPT", help="play these faults, bad numbers and approvals, from a file in YAML"),
    ] = None,
    output: Output = Format.TABLE,
    project: Project = "",
    environment: Environment = "",
) -> None:
    """Play the rollout of the apps in a file, step by step: when, in which region, with which weight and how many
    instances. Nothing is changed, and no server is asked: the defaults of an environment count if it is in the file.
    Steps that wait for approval get it at once; with --simulate only when the script says so. WEIGHT is a percentage of
    the requests; CANDIDATE and STABLE are instances of the new and of the old revision."""
    if not filename:
        raise ConfigError("filename is missing: use -f FILE, or -f - for standard input")
    documents = [placed(each, project or "default", environment or "default") for each in read_all(filename)]
    apps = [each for each in documents if each.kind == "App"]
    if not apps:
        raise ConfigError(f"no App found in {', '.join(filename)}")
    found = [_planned(each, documents, simulate) for each in apps]
    put({"items": found}, output, lambda: "".join(_text(each, several=len(found) > 1) for each in found), name=_app)


def _text(played: Mapping[str, Any], *, several: bool) -> str:
    return (f"app {played['app']}\n" if several else "") + render([_shown(row) for row in played["rows"]], COLUMNS)


def _app(played: Mapping[str, Any]) -> str:
    return f"app/{played['app']}"


def _planned(wanted: ManifestDocument, documents: Sequence[ManifestDocument], simulate: Path | None) -> dict[str, Any]:
    # only this command needs the control plane's code
    from shoal.control.domain.rehearsals import regions_of, rehearsed
    from shoal.control.domain.specs import parse as parse_object

    checked = parse_object(wanted.content)
    script = _script(simulate, regions_of(checked))
    return rehearsed(
        checked, _environment_of(wanted, documents), script, start_ms=round(RealClock().wall_s() * 1000),
        approves=simulate is None,
    )  # fmt: skip


def _environment_of(wanted: ManifestDocument, documents: Sequence[ManifestDocument]) -> dict[str, Any]:
    """The spec of the app's environment, if it is among the documents."""
    place = (wanted.metadata.get("project"), wanted.metadata.get("environment"))
    for each in documents:
        if each.kind == "Environment" and (each.metadata.get("project"), each.metadata.get("name")) == place:
            from shoal.control.domain.specs import parse as parse_object

            return parse_object(each.content).raw
    return {}


def _script(path: Path | None, regions: Sequence[str]) -> RehearsedEvents:
    from shoal.control.domain.rehearsal_script import RehearsedEvents, read_script

    if path is None:
        return RehearsedEvents()
    try:
        found = [each.content for each in parse(path.read_bytes(), str(path))]
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    script, errors = read_script(found[0] if len(found) == 1 and "at" not in found[0] else found, regions)
    if errors:
        raise ConfigError("\n".join([f"{path} is not a script:", *(f"  {each}" for each in errors)]))
    return script


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    from shoal.kube.times import format_duration

    return {**row, "time": format_duration(round(row["time_s"] * 10) * 10**8), "weight": f"{row['weight']}%"}
