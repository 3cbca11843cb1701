"""``shoal navigator token``: the tokens of edges and of API users."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from shoal.app.config import LOOPBACK
from shoal.app.home import directory
from shoal.base.files import write_private
from shoal.cli.apps import new_app
from shoal.cli.durations import seconds_of
from shoal.cli.options import Output
from shoal.cli.printers import Format, put_rows
from shoal.errors import ConfigError

app = new_app("Create, list, rotate and revoke the tokens of edges and API users.", group=True)

T = TypeVar("T")
_COLUMNS = ("id", "kind", "cluster", "scopes", "created", "expires", "state")

_Dir = Annotated[Path | None, typer.Option(help="state directory of the manager; default `navigator` in $SHOAL_HOME")]
_Database = Annotated[str, typer.Option(help="URL of the manager's database, if it is not in the state directory")]
_Id = Annotated[str, typer.Argument(metavar="ID", help="id from `shoal navigator token list`")]
_Url = Annotated[str, typer.Option(help="URL at which the edge reaches the manager; default: this machine's")]
_Region = Annotated[str, typer.Option(help="region of the cluster; default: from the labels of its nodes")]
_Environment = Annotated[str, typer.Option(help="environment label of the cluster")]
_To = Annotated[Path | None, typer.Option("--to", metavar="FILE", help="write it to a file that only you can read")]


@app.command("create")
def create(
    cluster: Annotated[str, typer.Option(help="cluster of the edge; required for an edge")] = "",
    kind: Annotated[str, typer.Option(help="edge, viewer (reads) or admin (reads, and saves checks)")] = "edge",
    region: _Region = "",
    environment: _Environment = "",
    scope: Annotated[
        list[str] | None,
        typer.Option(
            help="what a viewer or admin may read: cluster=NAME,namespace=NAME,workspace=ID, * in names, or * for "
            "everything; repeat it for more"
        ),
    ] = None,
    ttl: Annotated[str, typer.Option(help="lifetime, for example 24h or 7d; default: it does not expire")] = "",
    url: _Url = "",
    dir: _Dir = None,
    database: _Database = "",
    to: _To = None,
) -> None:
    """Create a token and print it. It cannot be shown again: only its digest is stored. For an edge, the output is its
    join file."""
    from shoal.base.access import Access
    from shoal.navigator.manager.tokens import EDGE, KINDS, NavigatorTokens

    if kind not in KINDS:
        raise ConfigError(f"kind is {kind!r}: use {', '.join(KINDS)}")
    if (kind == EDGE) != bool(cluster):
        raise ConfigError(
            "cluster is missing: name the edge's cluster with --cluster"
            if kind == EDGE
            else "--cluster is only for --kind edge"
        )
    if (kind == EDGE) == bool(scope):
        raise ConfigError(
            "--scope is only for --kind viewer and admin: an edge reports its cluster"
            if kind == EDGE
            else "scope is missing: say what the token may read, for example --scope cluster=eu-1,namespace='team-*', "
            "or --scope '*' for everything"
        )
    access = Access.parse(scope or ())
    folder = _folder(dir)
    ttl_s = float(seconds_of("ttl", ttl)) if ttl else 0.0

    async def made(tokens: NavigatorTokens) -> str:
        text, _ = await tokens.create(kind=kind, cluster=cluster, ttl_s=ttl_s, access=access)
        return text

    text = _with_tokens(folder, database, made)
    if kind == EDGE:
        text = _join_file(folder, text, cluster=cluster, region=region, environment=environment, url=url)
    _deliver(text, to)


@app.command("list")
def list_(
    dir: _Dir = None,
    database: _Database = "",
    output: Output = Format.TABLE,
) -> None:
    """List the tokens, expired and revoked ones too."""
    from shoal.base.clock import RealClock
    from shoal.navigator.manager.tokens import NavigatorTokens

    now_ms = round(RealClock().wall_s() * 1000)

    async def rows(tokens: NavigatorTokens) -> list[dict[str, Any]]:
        return [
            {
                "id": token.id,
                "kind": token.kind,
                "cluster": token.cluster,
                "scopes": list(token.scopes),
                "created": _time(token.created_ms),
                "expires": _time(token.expires_ms),
                "state": "revoked" if token.revoked_ms else "expired" if 0 < token.expires_ms <= now_ms else "",
            }
            for token in await tokens.list_()
        ]

    put_rows(_with_tokens(_folder(dir), database, rows), _COLUMNS, output, name=lambda each: str(each["id"]))


@app.command("rotate")
def rotate(
    id: _Id,
    grace: Annotated[str, typer.Option(help="how long the old token stays valid; default 1h")] = "1h",
    region: _Region = "",
    environment: _Environment = "",
    url: _Url = "",
    dir: _Dir = None,
    database: _Database = "",
    to: _To = None,
) -> None:
    """Replace a token and print the new one. It cannot be shown again. The old one stays valid for --grace."""
    from shoal.navigator.manager.rows import StoredToken
    from shoal.navigator.manager.tokens import EDGE, NavigatorTokens

    folder, grace_s = _folder(dir), float(seconds_of("grace", grace))

    async def rotated(tokens: NavigatorTokens) -> tuple[str, StoredToken]:
        return await tokens.rotate(id, grace_s=grace_s)

    text, token = _with_tokens(folder, database, rotated)
    if token.kind == EDGE:
        text = _join_file(folder, text, cluster=token.cluster, region=region, environment=environment, url=url)
    _deliver(text, to)


@app.command("revoke")
def revoke(id: _Id, dir: _Dir = None, database: _Database = "") -> None:
    """Revoke a token: within a second the manager refuses it and closes its edge's stream."""
    from shoal.navigator.manager.tokens import NavigatorTokens

    async def revoked(tokens: NavigatorTokens) -> None:
        await tokens.revoke(id)

    _with_tokens(_folder(dir), database, revoked)
    typer.echo(f"token {id} revoked")


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if ms else ""


def _folder(option: Path | None) -> Path:
    return option.expanduser().absolute() if option is not None else directory(None) / "navigator"


def _with_tokens(folder: Path, database: str, work: Callable[[Any], Awaitable[T]]) -> T:
    from shoal.app.navigator.config import database_url
    from shoal.base.clock import RealClock
    from shoal.base.ids import Ids
    from shoal.navigator.manager.databases import rows_for
    from shoal.navigator.manager.tokens import NavigatorTokens

    url = database_url(database, folder)
    if not database and not folder.is_dir():
        raise ConfigError(f"dir is {str(folder)!r}: no manager was started there; give its state directory with --dir")

    async def main() -> T:
        rows = rows_for(url)
        await rows.open(manager=False)
        try:
            return await work(NavigatorTokens(rows, clock=RealClock(), new_id=Ids().new_uid))
        finally:
            await rows.close()

    return asyncio.run(main())


def _join_file(folder: Path, token: str, *, cluster: str, region: str, environment: str, url: str) -> str:
    from shoal.app.fleet.context_file import noted_url

    authority = folder / "pki" / "ca.crt"
    url = url or noted_url(folder)
    if not url:
        try:
            url = f"https://{LOOPBACK}:{int((folder / 'port').read_text())}"
        except (OSError, ValueError):
            raise ConfigError(
                "url is missing: the manager has not run in this directory; give its URL with --url"
            ) from None
    made = {"url": url, "token": token, "cluster": cluster, "region": region, "environment": environment}
    made["ca"] = authority.read_text() if authority.exists() else ""
    return json.dumps({name: value for name, value in made.items() if value}, indent=2)


def _deliver(text: str, to: Path | None) -> None:
    if to is None:
        typer.echo(text)
        return
    write_private(to.expanduser(), f"{text}\n".encode())
    typer.echo(f"written to {to}")
