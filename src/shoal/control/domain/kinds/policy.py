"""Policy: a gateway's checks on matching requests of an environment, before they reach an app.

A policy has one kind. An unknown kind is refused when the policy is written, and a gateway that reads one refuses the
requests it matches, so no request passes because a rule was not understood.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from shoal.control.domain.fields import Reader
from shoal.control.domain.kinds.checks import is_header, is_name, is_path, is_plain
from shoal.control.domain.kinds.matchers import METHODS, Matcher, read_matchers
from shoal.errors import forbidden, invalid, not_supported, required
from shoal.kube.names import Faults, is_cidr

ALGORITHMS = ("RS256", "RS384", "RS512", "ES256", "ES384", "ES512", "PS256", "PS384", "PS512", "EdDSA")
MAX_BODY_BYTES = 2**32 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySpec:
    """``config`` is that of ``kind``, checked, with its defaults."""

    kind: str
    config: dict[str, Any]
    match: tuple[Matcher, ...] = ()
    enabled: bool = True
    order: int = 100
    fail_open: bool = False
    routes: tuple[str, ...] = ()


def read_policy(spec: Reader) -> PolicySpec:
    kind = spec.one_of(tuple(KINDS))
    below = {name: spec.part(name) for name in KINDS}
    found = below.get(kind)
    config: dict[str, Any] = {}
    if found is not None:
        config = KINDS[kind](found)
        found.close()
    made = PolicySpec(
        kind=kind,
        config=config,
        match=read_matchers(spec.parts("match", 50)),
        enabled=spec.flag("enabled", True),
        order=spec.integer("order", 100, 0, 1_000_000),
        fail_open=spec.flag("failOpen", False),
        routes=spec.texts("routes", check=is_name, unique=True),
    )
    if made.fail_open and kind in ("keyAuth", "jwt", "firewall"):
        spec.note(
            forbidden(spec.at("failOpen"), f"a policy of kind {kind} always denies requests that it cannot check")
        )
    if made.match and kind == "cors":
        spec.note(forbidden(spec.at("match"), "a policy of kind cors applies to whole routes"))
    spec.close()
    return made


def _key_auth(part: Reader) -> dict[str, Any]:
    locations: list[dict[str, Any]] = []
    for each in part.parts("locations", 10):
        where = each.one_of(("bearer", "header", "query"))
        header, query = each.text("header", check=is_header), each.text("query", check=is_plain)
        bearer = each.part("bearer")
        if bearer is not None:
            bearer.close()
        strip = each.text("stripPrefix", check=is_plain)
        if strip and where != "header":
            each.note(forbidden(each.at("stripPrefix"), "may be used with a header only"))
        each.close()
        name = {"header": header, "query": query}.get(where)
        locations.append({where: name if name else {}, **({"stripPrefix": strip} if strip else {})})
    return {
        "locations": locations or [{"bearer": {}}],
        "permissions": list(part.texts("permissions", check=is_plain, unique=True)),
    }


def _jwt(part: Reader) -> dict[str, Any]:
    source = part.one_of(("jwksUri", "oidcIssuer", "pem"))
    found: dict[str, Any] = {
        "jwksUri": part.text("jwksUri", check=_is_url),
        "oidcIssuer": part.text("oidcIssuer", check=_is_url),
        "pem": part.text("pem", check=_is_pem),
        "issuer": part.text("issuer", check=is_plain),
        "audiences": list(part.texts("audiences", check=is_plain)),
        "subjectClaim": part.text("subjectClaim", "sub", check=is_plain),
        "anonymous": part.flag("anonymous", False),
        "clockSkew": part.integer("clockSkew", 60, 0, 3600),
        "cache": part.integer("cache", 300, 1, 86400),
    }
    algorithms = part.texts("algorithms", unique=True)
    for algorithm in algorithms:
        if algorithm not in ALGORITHMS:
            part.note(not_supported(part.at("algorithms"), algorithm, ALGORITHMS))
    found["algorithms"] = list(algorithms) or ["RS256", "ES256"]
    return {name: value for name, value in found.items() if value or name in (source, "anonymous", "clockSkew")}


def _rate_limit(part: Reader) -> dict[str, Any]:
    by = part.part("identifier")
    identifier: dict[str, Any] = {"remoteIp": {}}
    if by is not None:
        how = by.one_of(("remoteIp", "header", "path", "subject", "principal"))
        name = {"header": by.text("header", check=is_header), "principal": by.text("principal", check=is_plain)}.get(
            how
        )
        for empty in ("remoteIp", "path", "subject"):
            below = by.part(empty)
            if below is not None:
                below.close()
        by.close()
        identifier = {how: name or {}}
    if not part.has("limit"):
        part.note(required(part.at("limit")))
    return {
        "limit": part.integer("limit", 1, 1, 10**9),
        "window": part.integer("window", 60, 1, 31 * 86400),
        "scope": part.choice("scope", ("local", "cluster", "strict"), "cluster"),
        "identifier": identifier,
        "cost": part.integer("cost", 1, 1, 10**6),
    }


def _firewall(part: Reader) -> dict[str, Any]:
    rules = {
        "cidrs": list(part.texts("cidrs", check=_is_network)),
        "headers": list(part.texts("headers", check=is_header)),
        "paths": list(part.texts("paths", check=is_path)),
    }
    if not any(rules.values()):
        part.note(required(part.path, "one of cidrs, headers, paths"))
    action = part.choice("action", ("deny", "allow"), "deny")
    return {"action": action, **{name: found for name, found in rules.items() if found}}


def _request_size(part: Reader) -> dict[str, Any]:
    most = part.quantity("maxBytes")
    if most is None:
        if not part.has("maxBytes"):
            part.note(required(part.at("maxBytes")))
        return {"maxBytes": 0}
    if not 1 <= most.value() <= MAX_BODY_BYTES:
        part.note(invalid(part.at("maxBytes"), str(most), f"must be between 1 and {MAX_BODY_BYTES}, inclusive"))
    return {"maxBytes": most.value()}


def _cors(part: Reader) -> dict[str, Any]:
    origins = part.texts("origins", check=_is_origin)
    if not origins:
        part.note(required(part.at("origins")))
    methods = part.texts("methods", unique=True)
    for method in methods:
        if method not in METHODS:
            part.note(not_supported(part.at("methods"), method, METHODS))
    credentials = part.flag("credentials", False)
    if credentials and "*" in origins:
        part.note(forbidden(part.at("credentials"), "may not be used with origin *"))
    return {
        "origins": list(origins),
        "methods": list(methods) or ["GET", "HEAD", "POST"],
        "headers": list(part.texts("headers", check=is_header)),
        "exposeHeaders": list(part.texts("exposeHeaders", check=is_header)),
        "credentials": credentials,
        "maxAge": part.integer("maxAge", 600, 0, 86400),
    }


KINDS: dict[str, Callable[[Reader], dict[str, Any]]] = {
    "keyAuth": _key_auth,
    "jwt": _jwt,
    "rateLimit": _rate_limit,
    "firewall": _firewall,
    "requestSize": _request_size,
    "cors": _cors,
}


def _is_url(value: str) -> Faults:
    try:
        parts = urlsplit(value)
    except ValueError as error:
        return (f"is not a valid URL: {error}",)
    good = parts.scheme in ("https", "http") and parts.hostname
    return () if good else ("must be a URL such as https://issuer.example.com/keys",)


def _is_pem(value: str) -> Faults:
    good = "-----BEGIN PUBLIC KEY-----" in value or "-----BEGIN CERTIFICATE-----" in value
    return () if good else ("must be a public key or certificate in PEM form",)


def _is_network(value: str) -> Faults:
    return is_cidr(value if "/" in value else f"{value}/{128 if ':' in value else 32}")


def _is_origin(value: str) -> Faults:
    if value == "*":
        return ()
    parts = urlsplit(value)
    good = parts.scheme in ("http", "https") and parts.netloc and not parts.path and not parts.query
    return () if good else ("must be * or an origin such as https://app.example.com",)
