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
WIDE = ("workspace", "created")


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinAddresses:
    """URLs for the join file of an agent instead of the control plane's, and CA certificates to add to it."""

    urls: tuple[str, ...] = ()
    ca: str = ""

    def __post_init__(self) -> None:
        for url in self.urls:
            if not url.startswith("https://"):
                raise ConfigError(f"url is {url!r}: use https://HOST:PORT")
        if self.ca and "-----BEGIN CERTIFICATE-----" not in self.ca:
            raise ConfigError("ca has no certificate: use a file with CA certificates, PEM")

    def check(self, kind: str) -> None:
        if kind != "agent" and (self.urls or self.ca):
            raise ConfigError(
                f"url and ca are for the join files of agents; leave --url and --ca out for kind {kind!r}"
            )

    def put_into(self, made: dict[str, Any]) -> dict[str, Any]:
        if not self.urls and not self.ca:
            return made
        join = dict(made["join"])
        if self.ca:
            join["ca"] = f"{join['ca'].rstrip()}\n{self.ca}"
        if self.urls:
            join |= {"url": self.urls[0], "urls": list(self.urls)}
        return {**made, "join": join}


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
    addresses: JoinAddresses = JoinAddresses()


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
    return wanted.addresses.put_into(rest.request("POST", f"{ROOT}/tokens", body).body)


def _check(wanted: TokenOptions) -> None:
    wanted.addresses.check(wanted.kind)
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
        {**each, "expires": each["expiresAt"] or "never", "last_used": each["lastUsedAt"],
         "created": each["createdAt"]} for each in found
    ]  # fmt: skip
    return sorted(shown, key=lambda each: (each["kind"], each["name"]))


def revoke(rest: Rest, name: str) -> None:
    rest.request("DELETE", f"{ROOT}/tokens/{_find(rest, name)['id']}")


def rotate(rest: Rest, name: str, grace_s: int, addresses: JoinAddresses) -> dict[str, Any]:
    found = _find(rest, name)
    addresses.check(found["kind"])
    body = {"graceSeconds": grace_s}
    return addresses.put_into(rest.request("POST", f"{ROOT}/tokens/{found['id']}/rotate", body).body)


def once(made: dict[str, Any]) -> str:
    """The secret that is shown only once: a join file, or the token of a user."""
    return json.dumps(made["join"], indent=2) + "\n" if "join" in made else f"{made['token']}\n"


def what(made: dict[str, Any]) -> str:
    return "the join file" if "join" in made else "the token"


def _find(rest: Rest, name: str) -> dict[str, Any]:
    found = rest.get(f"{ROOT}/tokens")["items"]
    active = [each for each in found if each["id"] == name or (each["name"] == name and each["state"] != "revoked")]
    if len(active) == 1:
        one: dict[str, Any] = active[0]
        return one
    if active:
        ids = ", ".join(f"{each['id']} ({each['kind']})" for each in active)
        raise ConfigError(f"name {name!r} is ambiguous: several tokens have it; use the id: {ids}")
    known = ", ".join(sorted({str(each["name"]) for each in found if each["state"] == "active"}))
    raise ConfigError(f"token {name!r} not found (existing: {known})")
