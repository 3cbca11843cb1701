"""``shoal workspaces``: the workspaces of a fleet, for its administrators."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from shoal.base.clock import RealClock
from shoal.cli.apps import new_app
from shoal.cli.fleet.kinds import ROOT
from shoal.cli.fleet.session import opened
from shoal.cli.options import ContextName, Output
from shoal.cli.printers import Format, document, render
from shoal.cli.timestamps import age_of

app = new_app("List, create and delete the workspaces of the fleet.")

WorkspaceWord = Annotated[str, typer.Argument(metavar="NAME", help="lowercase letters, digits, - and _")]
_COLUMNS = ("name", "projects", "tokens", "database", "age")


@app.callback(invoke_without_command=True)
def workspaces(
    context: typer.Context,
    output: Output = Format.TABLE,
    name: Annotated[str, typer.Option("--context", help="a context from `shoal config get-contexts`")] = "",
) -> None:
    """List the workspaces of the fleet, with the number of their projects and of their users' tokens."""
    if context.invoked_subcommand is not None:
        return
    with opened(name) as session:
        found = session.rest.get(f"{ROOT}/workspaces")["items"]
    if output is not Format.TABLE:
        typer.echo(document(found, output), nl=False)
        return
    now = RealClock().now()
    typer.echo(render([each | {"age": age_of(each["createdAt"], now)} for each in found], _COLUMNS), nl=False)


@app.command("create")
def create(name: WorkspaceWord, context: ContextName = "") -> None:
    """Create a workspace. `shoal token create --workspace NAME` then gives people access to it."""
    with opened(context) as session:
        session.rest.request("POST", f"{ROOT}/workspaces", {"name": name})
    typer.echo(f"workspace {name}   created")


@app.command("delete")
def delete(
    name: WorkspaceWord,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="do not ask for confirmation")] = False,
    context: ContextName = "",
) -> None:
    """Delete an empty workspace and revoke the tokens of its users. It asks first on a terminal."""
    with opened(context) as session:
        path = f"{ROOT}/workspaces/{name}"
        if not yes and sys.stdin.isatty():
            found = session.rest.get(path)
            typer.confirm(f"Delete workspace {name} and revoke {found['tokens']} tokens?", abort=True, err=True)
        revoked = session.rest.request("DELETE", path).body["revokedTokens"]
    typer.echo(f"workspace {name}   deleted")
    for token in revoked:
        typer.echo(f"  and revoked the token {token}")
