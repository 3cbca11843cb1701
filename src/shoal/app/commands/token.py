"""``shoal token``: who may talk to a cluster with a bearer token of their own."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import typer

from shoal.app.config import not_available
from shoal.app.credentials import (
    Access,
    StaticToken,
    create_token,
    read_access,
    read_tokens,
    render_kubeconfig,
    revoke_token,
)
from shoal.app.home import directory
from shoal.app.up import CLUSTER
from shoal.base.clock import RealClock
from shoal.base.ids import Ids
from shoal.cli.apps import new_app
from shoal.cli.printers import Format, render
from shoal.errors import ConfigError

app = new_app("Make, list and revoke the bearer tokens of a cluster.", group=True)

_KINDS = ("user", "agent", "edge")
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._@:-]{0,251}[A-Za-z0-9])?")
_DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")
_COLUMNS = ("name", "user", "groups", "expires", "expired")

_Dir = Annotated[Path | None, typer.Option(help="state directory; default $SHOAL_HOME, else ~/.shoal")]


@app.command("create")
def create(
    user: Annotated[str, typer.Option(help="who the token stands for")] = "",
    group: Annotated[list[str] | None, typer.Option(help="a group of the user; may be repeated")] = None,
    ttl: Annotated[str, typer.Option(help="how long it is good, for example 24h or 7d; default for ever")] = "",
    name: Annotated[str, typer.Option(help="under which it is listed and revoked; default made from the user")] = "",
    kind: Annotated[str, typer.Option(help="user; agent and edge are not available yet")] = "user",
    cluster: Annotated[str, typer.Option(help="of an agent or edge; not available yet")] = "",
    region: Annotated[str, typer.Option(help="of an agent or edge; not available yet")] = "",
    kubeconfig: Annotated[bool, typer.Option("--kubeconfig", help="print a kubeconfig with the token in it")] = False,
    dir: _Dir = None,
) -> None:
    """Make a token and print it, once: only its digest is kept. A running cluster accepts it within a second."""
    _refuse_what_is_not_built(kind, cluster, region)
    if not user.strip():
        raise ConfigError("user is empty: say who the token stands for with --user")
    now = RealClock().now()
    expires_at = now + lifetime(ttl) if ttl else None
    found = cluster_directory(directory(dir))
    access = read_access(found / "kubeconfig") if kubeconfig else None
    if kubeconfig and access is None:
        raise ConfigError(f"{found / 'kubeconfig'} cannot be read, and with it where the cluster is; start it once")
    wanted = StaticToken(name=_name(name, user), user=user, groups=_groups(group or ()), expires_at=expires_at)
    made = create_token(found / "tokens.json", wanted, now=now)
    if access is not None:
        typer.echo(render_kubeconfig(Access(access.url, access.ca_pem, made), user=user), nl=False)
    else:
        typer.echo(made)


@app.command("list")
def list_(
    output: Annotated[Format, typer.Option("--output", "-o", help="how to print")] = Format.TABLE,
    dir: _Dir = None,
) -> None:
    """List the tokens: whose they are and until when. The tokens themselves are not known any more."""
    tokens = read_tokens(cluster_directory(directory(dir)) / "tokens.json")
    now = RealClock().now()
    rows = [_row(token, now) for token in sorted(tokens.values(), key=lambda token: token.name)]
    typer.echo(render(rows, _COLUMNS, output), nl=False)


@app.command("revoke")
def revoke(
    name: Annotated[str, typer.Argument(help="as `shoal token list` shows it")],
    dir: _Dir = None,
) -> None:
    """End a token. A running cluster refuses it within a second."""
    revoke_token(cluster_directory(directory(dir)) / "tokens.json", name)
    typer.echo(f"revoked {name}")


@app.command("rotate-key")
def rotate_key(dir: _Dir = None) -> None:
    """Sign the tokens of service accounts with a new key. Those of the old one stay good until its file is deleted."""
    from shoal.app.pki import Pki

    kept = Pki(cluster_directory(directory(dir)) / "pki", now=RealClock().now()).rotate_service_account_key()
    typer.echo(f"a new key signs from now on; delete {kept} to end the tokens of the old one")


def cluster_directory(state: Path) -> Path:
    """Where the cluster of a state directory keeps its files: there, or below when `shoal up` runs it."""
    for found in (state, state / "clusters" / CLUSTER):
        if (found / "pki").is_dir():
            return found
    raise ConfigError(f"dir is {str(state)!r}: there is no cluster; start one with `shoal up`, or say where with --dir")


def lifetime(text: str) -> timedelta:
    """``24h``, ``7d``, ``1h30m``, ``600s``."""
    found = _DURATION.fullmatch(text)
    if found is not None:
        days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
        try:
            life = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        except OverflowError:
            life = timedelta()
        if timedelta() < life <= timedelta(days=36500):
            return life
    raise ConfigError(f"ttl is {text!r}: use for example 30m, 24h or 7d")


def _refuse_what_is_not_built(kind: str, cluster: str, region: str) -> None:
    if kind not in _KINDS:
        raise ConfigError(f"kind is {kind!r}: use user")
    if kind != "user":
        raise not_available("kind", kind, "use --kind user")
    if cluster:
        raise not_available("cluster", cluster, "leave --cluster out: a user's token is for the cluster in --dir")
    if region:
        raise not_available("region", region, "leave --region out: a user's token is for the cluster in --dir")


def _name(given: str, user: str) -> str:
    if not given:
        readable = re.sub("[^A-Za-z0-9._@-]+", "-", user).strip("-._@")[:200] or "token"
        return f"{readable}-{Ids().new_suffix()}"
    if not _NAME.fullmatch(given):
        raise ConfigError(f"name is {given!r}: use letters, digits and . _ @ : - between them")
    return given


def _groups(given: list[str] | tuple[str, ...]) -> tuple[str, ...]:
    if any(not group.strip() for group in given):
        raise ConfigError("group is empty: leave --group out or name one")
    return tuple(dict.fromkeys(given))


def _row(token: StaticToken, now: datetime) -> dict[str, Any]:
    expires = token.expires_at.isoformat(timespec="seconds") if token.expires_at is not None else "never"
    return {
        "name": token.name,
        "user": token.user,
        "groups": list(token.groups),
        "expires": expires,
        "expired": token.is_expired(now),
    }
