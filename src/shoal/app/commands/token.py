"""``shoal token``: the tokens of a control plane, or with ``--dir`` of a cluster on this machine.

The commands use the context's control plane. Without a context, or with a directory or a Kubernetes user in the
options, they use the cluster of the directory.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import typer

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
from shoal.base.clock import RealClock
from shoal.base.files import write_private
from shoal.base.ids import Ids
from shoal.cli.apps import new_app
from shoal.cli.contexts import has_context
from shoal.cli.durations import seconds_of
from shoal.cli.fleet import tokens as fleet
from shoal.cli.fleet.session import opened
from shoal.cli.options import ContextName, Output
from shoal.cli.printers import Format, put_rows
from shoal.errors import ConfigError

app = new_app("Create, list, rotate and revoke the tokens of a control plane or a cluster.", group=True)

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._@:-]{0,251}[A-Za-z0-9])?")
_COLUMNS = ("name", "user", "groups", "expires", "expired")

_Dir = Annotated[
    Path | None, typer.Option(help="state directory of a cluster, for its tokens; default: tokens of the control plane")
]
_Which = Annotated[str, typer.Argument(metavar="NAME", help="name or id from `shoal token list`")]
_Url = Annotated[
    list[str] | None,
    typer.Option(
        "--url",
        help="for an agent: URL in its join file, of a control plane or relay; may be repeated, preferred first; "
        "default: those of the control plane",
    ),
]
_Ca = Annotated[
    Path | None,
    typer.Option("--ca", metavar="FILE", help="for an agent: CA certificates to add, for example a relay's"),
]
_To = Annotated[Path | None, typer.Option("--to", metavar="FILE", help="write it to a file that only you can read")]


@app.command("create")
def create(
    kind: Annotated[str, typer.Option(help="user, agent, edge or relay")] = "user",
    name: Annotated[
        str, typer.Option(help="name to list and revoke it by; default: derived from the other options")
    ] = "",
    role: Annotated[str, typer.Option(help="role of a user: viewer, editor or admin; default viewer")] = "",
    workspace: Annotated[str, typer.Option(help="workspace of a user; default: your own")] = "",
    cluster: Annotated[str, typer.Option(help="cluster of an agent or edge")] = "",
    region: Annotated[str, typer.Option(help="region of that cluster, or of a relay")] = "",
    shard: Annotated[str, typer.Option(help="shard of an agent; default: the cluster's default shard")] = "",
    ttl: Annotated[str, typer.Option(help="lifetime, for example 24h or 7d; default: it does not expire")] = "",
    url: _Url = None,
    ca: _Ca = None,
    to: _To = None,
    user: Annotated[str, typer.Option(help="for a cluster: user name of the token")] = "",
    group: Annotated[list[str] | None, typer.Option(help="for a cluster: group of the user; may be repeated")] = None,
    kubeconfig: Annotated[
        bool, typer.Option("--kubeconfig", help="for a cluster: print a kubeconfig with the token")
    ] = False,
    dir: _Dir = None,
    context: ContextName = "",
) -> None:
    """Create a token and print it. It cannot be shown again: only its digest is stored. For an agent, edge or relay the
    output is its join file."""
    if kind not in fleet.KINDS:
        raise ConfigError(f"kind is {kind!r}: use {', '.join(fleet.KINDS)}")
    if dir is not None or user or group or kubeconfig:
        _only_of_the_fleet(
            kind=kind, role=role, workspace=workspace, cluster=cluster, region=region, shard=shard,
            url=" ".join(url or ()), ca=str(ca or ""),
        )  # fmt: skip
        _deliver(_create_of_cluster(user, group or [], ttl, name, dir, kubeconfig=kubeconfig), to, "the token")
        return
    wanted = fleet.TokenOptions(
        kind=kind, name=name, role=role, workspace=workspace, cluster=cluster, region=region, shard=shard,
        ttl_s=seconds_of("ttl", ttl) if ttl else 0, addresses=_addresses(url, ca),
    )  # fmt: skip
    with opened(context) as session:
        made = fleet.create(session.rest, wanted)
    _deliver(fleet.once(made), to, fleet.what(made))


@app.command("list")
def list_(
    kind: Annotated[str, typer.Option(help="only this kind: user, agent, edge or relay")] = "",
    output: Output = Format.TABLE,
    dir: _Dir = None,
    context: ContextName = "",
) -> None:
    """List the tokens with their owners and expiry. The secrets cannot be shown: only digests are stored."""
    if _of_cluster(dir, context):
        tokens = read_tokens(cluster_directory(directory(dir)) / "tokens.json")
        now = RealClock().now()
        rows = [_row(token, now) for token in sorted(tokens.values(), key=lambda token: token.name)]
        put_rows(rows, _COLUMNS, output)
        return
    with opened(context) as session:
        found = fleet.list_(session.rest, kind)
    put_rows(found, fleet.COLUMNS, output, wide=fleet.WIDE, name=lambda each: str(each["name"]))


@app.command("revoke")
def revoke(name: _Which, dir: _Dir = None, context: ContextName = "") -> None:
    """Revoke a token. It is refused within a second."""
    if _of_cluster(dir, context):
        revoke_token(cluster_directory(directory(dir)) / "tokens.json", name)
    else:
        with opened(context) as session:
            fleet.revoke(session.rest, name)
    typer.echo(f"revoked {name}")


@app.command("rotate")
def rotate(
    name: _Which,
    grace: Annotated[
        str, typer.Option(help="how long the old token stays valid, for example 10m; 0 to end it at once")
    ] = "1h",
    url: _Url = None,
    ca: _Ca = None,
    to: _To = None,
    context: ContextName = "",
) -> None:
    """Replace a token of the control plane and print the new one. It cannot be shown again. The old one stays valid for
    --grace."""
    grace_s = 0 if grace in ("0", "0s") else seconds_of("grace", grace)
    addresses = _addresses(url, ca)
    with opened(context) as session:
        made = fleet.rotate(session.rest, name, grace_s, addresses)
    _deliver(fleet.once(made), to, fleet.what(made))


@app.command("rotate-key")
def rotate_key(dir: _Dir = None) -> None:
    """Sign service account tokens with a new key. Tokens of the old key stay valid until its file is deleted."""
    from shoal.app.pki import Pki

    kept = Pki(cluster_directory(directory(dir)) / "pki", now=RealClock().now()).rotate_service_account_key()
    typer.echo(f"a new key signs from now on; delete {kept} to invalidate the tokens of the old key")


def cluster_directory(state: Path) -> Path:
    """The folder of the cluster: the state directory, or the only cluster folder of `shoal up` in it."""
    if any((state / name).exists() for name in ("cluster.lock", "tokens.json", "kubeconfig")):
        return state
    below = [folder for folder in sorted(state.glob("clusters/*")) if (folder / "pki").is_dir()]
    if len(below) == 1:
        return below[0]
    if below:
        raise ConfigError(f"dir is {str(state)!r}: it has several clusters; choose one, for example --dir {below[0]}")
    raise ConfigError(
        f"dir is {str(state)!r}: no cluster found there; start one with `shoal up`, or choose another with --dir"
    )


def lifetime(text: str) -> timedelta:
    """``24h``, ``7d``, ``1h30m``, ``600s``."""
    return timedelta(seconds=seconds_of("ttl", text))


def _addresses(urls: list[str] | None, ca: Path | None) -> fleet.JoinAddresses:
    try:
        certificates = ca.expanduser().read_text() if ca is not None else ""
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"ca is {str(ca)!r}: it cannot be read: {error}") from None
    return fleet.JoinAddresses(urls=tuple(dict.fromkeys(urls or ())), ca=certificates)


def _of_cluster(dir: Path | None, context: str) -> bool:
    """Whether a command is for a cluster on this machine: a directory is given, or no control plane is known."""
    return dir is not None or not (context or has_context(directory(None)))


def _only_of_the_fleet(kind: str, **given: str) -> None:
    said = {"kind": kind if kind != "user" else "", **given}
    for name, value in said.items():
        if value:
            raise ConfigError(
                f"{name} is {value!r}: not for tokens of a cluster, which belong to users; leave --dir and --user out "
                "to create a token of the control plane"
            )


def _create_of_cluster(
    user: str, groups: list[str], ttl: str, name: str, dir: Path | None, *, kubeconfig: bool
) -> str:  # fmt: skip
    """Return the token, or a kubeconfig with it. A running cluster accepts it within a second."""
    if not user.strip():
        raise ConfigError("user is empty: name the user of the token with --user")
    now = RealClock().now()
    expires_at = now + lifetime(ttl) if ttl else None
    found = cluster_directory(directory(dir))
    access = read_access(found / "kubeconfig") if kubeconfig else None
    if kubeconfig and access is None:
        raise ConfigError(
            f"{found / 'kubeconfig'} cannot be read, so the cluster's URL is unknown; start the cluster once"
        )
    wanted = StaticToken(name=_name(name, user), user=user, groups=_groups(groups), expires_at=expires_at)
    made = create_token(found / "tokens.json", wanted, now=now)
    if access is None:
        return f"{made}\n"
    return render_kubeconfig(Access(access.url, access.ca_pem, made), user=user).decode()


def _deliver(text: str, to: Path | None, what: str) -> None:
    """Print the only copy, or write it to a file."""
    if to is None:
        typer.echo(text, nl=False)
        return
    write_private(to.expanduser().absolute(), text.encode())
    typer.echo(f"{what} was written to {to}")


def _name(given: str, user: str) -> str:
    if not given:
        readable = re.sub("[^A-Za-z0-9._@-]+", "-", user).strip("-._@")[:200] or "token"
        return f"{readable}-{Ids().new_suffix()}"
    if not _NAME.fullmatch(given):
        raise ConfigError(f"name is {given!r}: use letters and digits, with . _ @ : - between them")
    return given


def _groups(given: list[str] | tuple[str, ...]) -> tuple[str, ...]:
    if any(not group.strip() for group in given):
        raise ConfigError("group is empty: leave --group out or give a name")
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
