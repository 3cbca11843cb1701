"""Static bearer tokens, stored as digests, and the admin's kubeconfig with its token.

The server stores only digests (``tokens.json``); the token itself is only in its holder's kubeconfig.
If the admin's kubeconfig is lost or changed, a new token replaces the old one. A running server follows the file: an
added or revoked token takes effect within a second.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from shoal.app.config import ClusterConfig
from shoal.base.files import PRIVATE_FILE, write_private
from shoal.base.ids import new_token, token_digest
from shoal.errors import ConfigError

ADMIN_USER = "kubernetes-admin"
ADMIN_GROUPS = ("system:masters",)
ADMIN_TOKEN = "admin"


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticToken:
    """The user, name and expiry of a static token; the name is used to list and revoke it."""

    name: str
    user: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    expires_at: datetime | None = None  # never, when None

    def is_expired(self, now: datetime) -> bool:
        return self.expires_at is not None and self.expires_at <= now


@dataclass(frozen=True, slots=True)
class Access:
    """The data a client needs to connect to a server."""

    url: str
    ca_pem: bytes
    token: str


def read_tokens(path: Path) -> dict[str, StaticToken]:
    """The static tokens by their digests; empty without a file. Raise ConfigError if the file is invalid."""
    try:
        entries = json.loads(path.read_bytes())["tokens"]
        return {digest: _token(digest, entry) for digest, entry in entries.items()}
    except FileNotFoundError:
        return {}
    except (ValueError, LookupError, TypeError, AttributeError):
        raise ConfigError(f"{path} is not a valid token file; delete it to start with a new one") from None


def write_tokens(path: Path, tokens: dict[str, StaticToken]) -> None:
    entries = {digest: _entry(token) for digest, token in tokens.items()}
    write_private(path, json.dumps({"tokens": entries}, indent=1).encode() + b"\n")


def create_token(path: Path, wanted: StaticToken, *, now: datetime) -> str:
    """Add a token and return it; it cannot be read again. Tokens that have expired are forgotten on the way."""
    with _changing(path):
        tokens = {digest: token for digest, token in read_tokens(path).items() if not token.is_expired(now)}
        if any(token.name == wanted.name for token in tokens.values()):
            raise ConfigError(
                f"name is {wanted.name!r}: a token with this name exists; choose another name, or revoke it first"
            )
        made = new_token()
        tokens[token_digest(made)] = wanted
        write_tokens(path, tokens)
    return made


def revoke_token(path: Path, name: str) -> None:
    """End the token of that name."""
    with _changing(path):
        tokens = read_tokens(path)
        left = {digest: token for digest, token in tokens.items() if token.name != name}
        if len(left) == len(tokens):
            known = ", ".join(sorted(token.name for token in tokens.values())) or "none"
            raise ConfigError(f"token {name!r} not found (existing tokens: {known})")
        write_tokens(path, left)


def ensure_admin(config: ClusterConfig, ca_cert: Path) -> dict[str, StaticToken]:
    """Make sure that ``DIR/kubeconfig`` lets the admin in at ``config.url``; returns all static tokens.

    Call it when the port is known. A kubeconfig that already works is left unchanged, with all other contexts in it.
    """
    with _changing(config.tokens_path):
        tokens = read_tokens(config.tokens_path)
        admin = StaticToken(name=ADMIN_TOKEN, user=ADMIN_USER, groups=ADMIN_GROUPS)
        found = read_access(config.kubeconfig_path)
        known = found or read_access(config.credentials_dir / "kubeconfig")
        token = known.token if known else ""
        if not token or not _is_admin(tokens.get(token_digest(token))):
            token = new_token()
            tokens = {digest: held for digest, held in tokens.items() if not _is_admin(held)}
            tokens[token_digest(token)] = admin
            write_tokens(config.tokens_path, tokens)
    access = Access(config.url, ca_cert.read_bytes(), token)
    if found != access:
        write_private(config.kubeconfig_path, render_kubeconfig(access))
    return tokens


def _is_admin(token: StaticToken | None) -> bool:
    return (
        token is not None
        and token.user == ADMIN_USER
        and token.groups == ADMIN_GROUPS
        and token.expires_at is None
        and not token.uid
    )


def _token(digest: str, entry: dict[str, Any]) -> StaticToken:
    ends = entry.get("expires")
    return StaticToken(
        name=entry.get("name") or (ADMIN_TOKEN if entry["user"] == ADMIN_USER else digest[:12]),
        user=entry["user"],
        groups=tuple(entry.get("groups", ())),
        uid=entry.get("uid", ""),
        expires_at=datetime.fromisoformat(ends) if ends else None,
    )


def _entry(token: StaticToken) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": token.name, "user": token.user, "groups": list(token.groups)}
    if token.uid:
        entry["uid"] = token.uid
    if token.expires_at is not None:
        entry["expires"] = token.expires_at.isoformat(timespec="seconds")
    return entry


@contextmanager
def _changing(path: Path) -> Iterator[None]:
    """Lock the file against other processes between reading and writing it."""
    descriptor = os.open(path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def render_kubeconfig(access: Access, *, name: str = "shoal", user: str = "admin") -> bytes:
    """A kubeconfig with everything inline. Written as JSON, which is YAML, so that no YAML library is needed here."""
    ca_data = base64.b64encode(access.ca_pem).decode()
    document: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": access.url, "certificate-authority-data": ca_data}}],
        "users": [{"name": user, "user": {"token": access.token}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": user}}],
        "current-context": name,
    }
    return json.dumps(document, indent=2).encode() + b"\n"


def read_access(path: Path) -> Access | None:
    """How the first cluster and user of a kubeconfig reach a server; None when the file cannot be read as such."""
    try:
        document = _parse(path.read_bytes())
        cluster = document["clusters"][0]["cluster"]
        ca_pem = base64.b64decode(cluster["certificate-authority-data"])
        return Access(cluster["server"], ca_pem, document["users"][0]["user"]["token"])
    except (OSError, ValueError, LookupError, TypeError):
        return None


def _parse(content: bytes) -> Any:
    try:
        return json.loads(content)
    except ValueError:
        import yaml  # only when kubectl has rewritten the file

        try:
            return yaml.safe_load(content)
        except yaml.YAMLError as error:
            raise ValueError("not a kubeconfig") from error
