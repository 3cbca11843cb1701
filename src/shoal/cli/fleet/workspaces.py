"""``shoal workspaces``: the workspaces of a fleet, for its administrators."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from shoal.base.clock import RealClock
from shoal.cli.apps import new_app
from shoal.cli.fleet.kinds import ROOT
from shoal.cli.fleet.session import opened
from shoal.cli.fleet.workspace_changes import quota_rows, read_quotas
from shoal.cli.options import ContextName, Output
from shoal.cli.printers import Format, put_rows
from shoal.cli.timestamps import age_of

app = new_app(
    "List, create, change and delete the workspaces of the fleet, and show their quotas.",
    group=True,
    default="list",
    alone=True,
)

WorkspaceWord = Annotated[str, typer.Argument(metavar="NAME", help="lowercase letters, digits, - and _")]
_COLUMNS = ("name", "projects", "tokens", "database", "age")


@app.command("list")
def list_(output: Output = Format.TABLE, context: ContextName = "") -> None:
    """List the workspaces of the fleet, with the number of their projects and of their users' tokens."""
    with opened(context) as session:
        found = session.rest.get(f"{ROOT}/workspaces")["items"]
    now = RealClock().now()
    put_rows(
        found, _COLUMNS, output, rows=lambda: [each | {"age": age_of(each["createdAt"], now)} for each in found]
    )  # fmt: skip


@app.command("create")
def create(name: WorkspaceWord, context: ContextName = "") -> None:
    """Create a workspace. `shoal token create --workspace NAME` then gives people access to it."""
    with opened(context) as session:
        session.rest.request("POST", f"{ROOT}/workspaces", {"name": name})
    typer.echo(f"workspace {name}   created")


@app.command("quotas")
def quotas(
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="for administrators of the fleet")] = "",
    output: Output = Format.TABLE,
    context: ContextName = "",
) -> None:
    """Show what your workspace uses and may use; or another one, with its domains, allowed tolerations and
    outbound hosts."""
    with opened(context) as session:
        found = session.rest.get(f"{ROOT}/workspaces/{name}" if name else f"{ROOT}/quotas")
    put_rows(quota_rows(found["quotas"]), ("quota", "used", "limit"), output, value=found)
    if name and output.is_table:
        allowed = found["tolerations"]
        typer.echo(f"domains: {', '.join(found['domains']) or '-'}")
        typer.echo(f"tolerations: {'(default)' if allowed is None else ', '.join(allowed) or '-'}")
        typer.echo(f"outbound: {', '.join(found['outbound']) or '-'}")


@app.command("set")
def set_(
    name: WorkspaceWord,
    quota: Annotated[list[str] | None, typer.Option(help="NAME=NUMBER, or NAME=default; repeatable")] = None,
    domain: Annotated[list[str] | None, typer.Option(help="a domain of its routes' hosts; replaces all")] = None,
    no_domains: Annotated[bool, typer.Option("--no-domains", help="take its domains back")] = False,
    toleration: Annotated[
        list[str] | None, typer.Option(help="a taint that its apps may tolerate: KEY, KEY=VALUE or *; replaces all")
    ] = None,
    no_tolerations: Annotated[bool, typer.Option("--no-tolerations", help="allow none")] = False,
    default_tolerations: Annotated[bool, typer.Option("--default-tolerations", help="take the list back")] = False,
    outbound: Annotated[
        list[str] | None,
        typer.Option(
            help="where checks and notifications of its rollouts may be sent: HOST, *.DOMAIN or NETWORK, with :PORT or "
            "without; replaces all"
        ),
    ] = None,
    no_outbound: Annotated[bool, typer.Option("--no-outbound", help="allow none")] = False,
    context: ContextName = "",
) -> None:
    """Set what a workspace may use. What is not named stays as it is."""
    body: dict[str, Any] = {}
    if quota:
        body["quotas"] = read_quotas(quota)
    if domain or no_domains:
        body["domains"] = domain or []
    if toleration or no_tolerations:
        body["tolerations"] = toleration or []
    if default_tolerations:
        body["defaultTolerations"] = True
    if outbound or no_outbound:
        body["outbound"] = outbound or []
    if not body:
        raise typer.BadParameter("nothing to set: give --quota, --domain, --toleration or --outbound")
    with opened(context) as session:
        session.rest.request("PATCH", f"{ROOT}/workspaces/{name}", body)
    typer.echo(f"workspace {name}   changed")


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
