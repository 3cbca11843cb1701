"""Creates, lists, rotates and revokes tokens of the control plane over its API."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from shoal.cli.fleet.kinds import ROOT
from shoal.cli.rest import Rest
from shoal.errors import ConfigError

KINDS = ("user", "agent", "edge", "relay")
COLUMNS = ("name", "kind", "role", "cluster", "region", "shard", "state", "expires", "last_used", "id")


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenOptions:
    """The options of `shoal token create`; empty if not given."""

    kind: str
    name: str = ""
    role: str = ""
    workspace: str = ""
    cluster: str = ""
    region: str = ""
    shard: str = ""
    ttl_s: int = 0


def create(rest: Rest, wanted: TokenOptions) -> dict[str, Any]:
    _check(wanted)
    body: dict[str, Any] = {
        name: value
        for name in ("kind", "role", "workspace", "cluster", "region", "shard")
        if (value := getattr(wanted, name))
    }
    body["name"] = wanted.name or _default_name(wanted)
    if wanted.kind == "user" and not wanted.role:
        body["role"] = "viewer"
    if wanted.ttl_s:
        body["ttlSeconds"] = wanted.ttl_s
    made: dict[str, Any] = rest.request("POST", f"{ROOT}/tokens", body).body
    return made


def _check(wanted: TokenOptions) -> None:
    if wanted.kind == "user":
        if not wanted.name:
            raise ConfigError("name is missing: name the owner of the token with --name")
        return
    for name in ("cluster", "region") if wanted.kind == "agent" else ():
        if not getattr(wanted, name):
            raise ConfigError(f"{name} is missing: an agent belongs to one cluster of one region; use --{name}")
    if wanted.kind == "relay" and not wanted.region:
        raise ConfigError("region is missing: a relay serves the agents of one region; use --region")
    if not (wanted.name or wanted.cluster or wanted.region):
        raise ConfigError("name is missing: use --name, --cluster or --region")


def _default_name(wanted: TokenOptions) -> str:
    return "-".join(part for part in (wanted.kind, wanted.cluster or wanted.region, wanted.shard) if part)


def list_(rest: Rest, kind: str = "") -> list[dict[str, Any]]:
    if kind and kind not in KINDS:
        raise ConfigError(f"kind is {kind!r}: use {', '.join(KINDS)}")
    found = rest.get(f"{ROOT}/tokens", kind=kind)["items"]
    shown = [
        {**each, "expires": each["expiresAt"] or "never", "last_used": each["lastUsedAt"]} for each in found
    ]  # fmt: skip
    return sorted(shown, key=lambda each: (each["kind"], each["name"]))


def revoke(rest: Rest, name: str) -> None:
    rest.request("DELETE", f"{ROOT}/tokens/{_id_of(rest, name)}")


def rotate(rest: Rest, name: str, grace_s: int) -> dict[str, Any]:
    body = {"graceSeconds": grace_s}
    made: dict[str, Any] = rest.request("POST", f"{ROOT}/tokens/{_id_of(rest, name)}/rotate", body).body
    return made


def once(made: dict[str, Any]) -> str:
    """The secret that is shown only once: a join file, or the token of a user."""
    return json.dumps(made["join"], indent=2) + "\n" if "join" in made else f"{made['token']}\n"


def what(made: dict[str, Any]) -> str:
    return "the join file" if "join" in made else "the token"


def _id_of(rest: Rest, name: str) -> str:
    found = rest.get(f"{ROOT}/tokens")["items"]
    active = [each for each in found if each["id"] == name or (each["name"] == name and each["state"] != "revoked")]
    if len(active) == 1:
        return str(active[0]["id"])
    if active:
        ids = ", ".join(f"{each['id']} ({each['kind']})" for each in active)
        raise ConfigError(f"name {name!r} is ambiguous: several tokens have it; use the id: {ids}")
    known = ", ".join(sorted({str(each["name"]) for each in found if each["state"] == "active"}))
    raise ConfigError(f"token {name!r} not found (existing: {known})")
