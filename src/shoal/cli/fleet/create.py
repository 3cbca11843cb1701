"""``shoal create``: creates projects, environments, secrets and credentials without a file."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from shoal.cli.apps import new_app
from shoal.cli.fleet.apply import report
from shoal.cli.fleet.hints import hints
from shoal.cli.fleet.kinds import API_VERSION, BY_NAME, ObjectName
from shoal.cli.fleet.session import DryRun, Environment, FleetSession, Project, opened
from shoal.cli.options import ContextName
from shoal.cli.rest import RequestRefused
from shoal.errors import ConfigError, ShoalError

app = new_app("Create a project, an environment, a secret or a credential without a file.", group=True)

NewName = Annotated[str, typer.Argument(metavar="NAME", help="lowercase letters, digits and dashes")]
Description = Annotated[str, typer.Option(help="free text")]


@app.command("project")
def project(
    name: NewName, description: Description = "", dry_run: DryRun = False, context: ContextName = ""
) -> None:  # fmt: skip
    """Create a project."""
    with opened(context) as session:
        make(session, ObjectName(BY_NAME["Project"], name), _described(description), dry_run=dry_run)


@app.command("environment")
def environment(
    name: NewName,
    project: Project = "",
    description: Description = "",
    dry_run: DryRun = False,
    context: ContextName = "",
) -> None:
    """Create an environment in a project."""
    with opened(context, project) as session:
        ref = ObjectName(BY_NAME["Environment"], name, _said(session, "project"))
        make(session, ref, _described(description), dry_run=dry_run)


@app.command("secret")
def secret(
    name: NewName,
    from_literal: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="a variable; may be repeated")
    ] = None,
    from_file: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=FILE",
            help="a variable with the content of a file, or of standard input with -; may be repeated",
        ),
    ] = None,
    from_env_file: Annotated[
        list[Path] | None, typer.Option(metavar="FILE", help="file with lines of NAME=VALUE; may be repeated")
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="replace all values of an existing secret")] = False,
    project: Project = "",
    environment: Environment = "",
    dry_run: DryRun = False,
    context: ContextName = "",
) -> None:
    """Create a secret in an environment. Its values cannot be read back; apps that use it get them as environment
    variables."""
    values = secret_values(from_literal or (), from_file or (), from_env_file or ())
    with opened(context, project, environment) as session:
        places = (_said(session, "project"), _said(session, "environment"))
        make(
            session, ObjectName(BY_NAME["Secret"], name, *places), {"values": values}, replace=replace, dry_run=dry_run
        )


@app.command("credential")
def credential(
    name: NewName,
    token_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="a token, sent as `Authorization: Bearer TOKEN`; - for stdin")
    ] = None,
    from_file: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HEADER=FILE",
            help="a header with the content of a file, or of standard input with -; may be repeated",
        ),
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="replace all headers of an existing credential")] = False,
    project: Project = "",
    environment: Environment = "",
    dry_run: DryRun = False,
    context: ContextName = "",
) -> None:
    """Create a credential in an environment: headers that the control plane sends with checks and notifications of
    rollouts. Its values cannot be read back, and clusters never get them."""
    values = header_values(token_file, from_file or ())
    with opened(context, project, environment) as session:
        places = (_said(session, "project"), _said(session, "environment"))
        ref = ObjectName(BY_NAME["Credential"], name, *places)
        make(session, ref, {"values": values}, replace=replace, dry_run=dry_run)


def header_values(token_file: Path | None, files: Sequence[str]) -> dict[str, str]:
    """The headers from all options; raises ConfigError if there is none, or one twice."""
    pairs = [] if token_file is None else [("Authorization", f"Bearer {_content(str(token_file)).strip()}")]
    pairs += [(name, _content(path).strip()) for name, path in (_pair("from-file", each) for each in files)]
    if not pairs:
        raise ConfigError("the credential has no headers: use --token-file FILE or --from-file HEADER=FILE")
    if len({name.lower() for name, _ in pairs}) != len(pairs):
        raise ConfigError("a header is given more than once")
    return dict(pairs)


def make(session: FleetSession, ref: ObjectName, spec: dict[str, Any], *, dry_run: bool, replace: bool = False) -> None:
    """Create or replace the object and print the result."""
    metadata = {"name": ref.name, "project": ref.project, "environment": ref.environment}
    named = {name: value for name, value in metadata.items() if value}
    body = {"apiVersion": API_VERSION, "kind": ref.kind.name, "metadata": named, "spec": spec}
    method, path = ("PUT", ref.path) if replace else ("POST", ref.kind.path(ref.project, ref.environment))
    try:
        made = session.rest.request(method, path, body, params={"dryRun": dry_run}).body
    except RequestRefused as refused:
        fixes = [f"  → {each}" for each in hints(session, refused.details, metadata)]
        if refused.code == "AlreadyExists" and ref.kind.name in ("Secret", "Credential"):
            fixes.append("  → use --replace to replace its values")
        raise ShoalError("\n".join([str(refused), *fixes])) from None
    typer.echo(report([made]), nl=False)


def secret_values(literals: Sequence[str], files: Sequence[str], lists: Sequence[Path]) -> dict[str, str]:
    """The variables from all options; raises ConfigError if a name is repeated."""
    pairs = [_pair("from-literal", each) for each in literals]
    pairs += [(name, _content(path)) for name, path in (_pair("from-file", each) for each in files)]
    for path in lists:
        lines = (line.strip() for line in _content(str(path)).splitlines())
        pairs += [_pair("from-env-file", line) for line in lines if line and not line.startswith("#")]
    if not pairs:
        raise ConfigError(
            "the secret has no values: use --from-literal NAME=VALUE, --from-file NAME=FILE or --from-env-file"
        )
    values = dict(pairs)
    if len(values) != len(pairs):
        names = [name for name, _ in pairs]
        twice = sorted({name for name in names if names.count(name) > 1})
        raise ConfigError(f"variables given more than once: {', '.join(twice)}")
    return values


def _pair(option: str, text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        # do not print the text: it may be a secret value
        raise ConfigError(f"invalid --{option}: expected NAME=…, starting with the name of the variable")
    return name, value


def _content(path: str) -> str:
    try:
        return sys.stdin.read() if path == "-" else Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not valid UTF-8"
        raise ConfigError(f"{path} cannot be read: {why}") from None


def _described(description: str) -> dict[str, Any]:
    return {"description": description} if description else {}


def _said(session: FleetSession, part: str) -> str:
    found: str = getattr(session, part)
    if not found:
        kind = "Project" if part == "project" else "Environment"
        known = session.names(kind, session.project)
        there = f" (existing: {', '.join(known[:10])})" if known else ""
        raise ConfigError(f"{part} is missing: set it with --{part}, $SHOAL_{part.upper()} or in the context{there}")
    return found
