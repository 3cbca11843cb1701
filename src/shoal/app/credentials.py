"""The admin's way in: a bearer token made at the first start, and the kubeconfig that carries it.

The server keeps only digests (``tokens.json``); the token itself stands in the kubeconfig and nowhere else. When the
kubeconfig is lost or was changed, a new token is made and the old one ends.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shoal.app.config import ClusterConfig
from shoal.app.files import write_private
from shoal.base.ids import new_token, token_digest

ADMIN_USER = "kubernetes-admin"
ADMIN_GROUPS = ("system:masters",)


@dataclass(frozen=True, slots=True)
class TokenUser:
    """Whose a static token is."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""


@dataclass(frozen=True, slots=True)
class Access:
    """What a client needs to know to talk to a server."""

    url: str
    ca_pem: bytes
    token: str


def read_tokens(path: Path) -> dict[str, TokenUser]:
    """Digest of each static token -> its user; empty when there is no file."""
    try:
        entries = json.loads(path.read_bytes())["tokens"]
    except FileNotFoundError:
        return {}
    return {
        digest: TokenUser(entry["user"], tuple(entry.get("groups", ())), entry.get("uid", ""))
        for digest, entry in entries.items()
    }


def write_tokens(path: Path, tokens: dict[str, TokenUser]) -> None:
    entries = {
        digest: {"user": user.name, "groups": list(user.groups)} | ({"uid": user.uid} if user.uid else {})
        for digest, user in tokens.items()
    }
    write_private(path, json.dumps({"tokens": entries}, indent=1).encode() + b"\n")


def ensure_admin(config: ClusterConfig, ca_cert: Path) -> dict[str, TokenUser]:
    """Make sure that ``DIR/kubeconfig`` lets the admin in at ``config.url``; returns all static tokens.

    Call it when the port is known. A kubeconfig that already does so is left alone, with whatever else its owner
    has put into it.
    """
    tokens = read_tokens(config.tokens_path)
    admin = TokenUser(ADMIN_USER, ADMIN_GROUPS)
    found = read_access(config.kubeconfig_path)
    token = found.token if found else ""
    if not token or tokens.get(token_digest(token)) != admin:
        token = new_token()
        tokens = {digest: user for digest, user in tokens.items() if user.name != ADMIN_USER}
        tokens[token_digest(token)] = admin
        write_tokens(config.tokens_path, tokens)
    access = Access(config.url, ca_cert.read_bytes(), token)
    if found != access:
        write_private(config.kubeconfig_path, render_kubeconfig(access))
    return tokens


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
