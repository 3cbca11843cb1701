"""``sentinel.shoal.dev/v1``: the configuration that an agent gives to the gateways of its cluster.

A SentinelRoute maps requests to backends; a SentinelPolicy sets conditions for them. Both belong to one
environment and live in the namespace of the sentinels. The control plane has checked them; a gateway checks again and
rejects unknown fields.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

GROUP = "sentinel.shoal.dev"
VERSION = "v1"
API_VERSION = f"{GROUP}/{VERSION}"


class _View(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """Unknown fields are an error: a gateway must not ignore a part of its configuration."""


class TextMatch(_View, frozen=True, kw_only=True):
    """One of ``exact``, ``prefix``, ``regex``; none of them, or ``present``, only requires that it exists."""

    exact: str | None = None
    prefix: str | None = None
    regex: str | None = None
    present: bool = False
    ignore_case: bool = False


class NamedMatch(TextMatch, frozen=True, kw_only=True):
    name: str


class Condition(_View, frozen=True, kw_only=True):
    """One of the four."""

    path: TextMatch | None = None
    method: list[str] | None = None
    header: NamedMatch | None = None
    query: NamedMatch | None = None


class Backend(_View, frozen=True, kw_only=True):
    """A deployment behind a headless Service; its EndpointSlices say where it runs."""

    deployment: str
    namespace: str
    service: str
    port: int = 0
    protocol: str = "http1"  # http1 or h2c
    weight: int = 100
    app: str = ""


class Mirror(Backend, frozen=True, kw_only=True):
    percent: float = 100.0


class Sticky(_View, frozen=True, kw_only=True):
    cookie: str = ""
    header: str = ""
    ttl: int = 0


class Redirect(_View, frozen=True, kw_only=True):
    scheme: str = ""
    host: str = ""
    path: str = ""
    prefix: str = ""
    code: int = 302


class Rewrite(_View, frozen=True, kw_only=True):
    prefix: str = ""
    host: str = ""


class Timeouts(_View, frozen=True, kw_only=True):
    """Seconds; 0 is none."""

    total: float = 60.0
    idle: float = 300.0
    header: float = 0.0


class Circuit(_View, frozen=True, kw_only=True):
    """How much may be under way to one backend at a time; 0 is the gateway's default."""

    connections: int = 0
    pending: int = 0
    requests: int = 0


class Tls(_View, frozen=True, kw_only=True):
    secret: str  # in the route's namespace, with tls.crt and tls.key


class RouteSpec(_View, frozen=True, kw_only=True):
    environment: str
    host: str  # exact, or *.suffix, or * for every host
    path: str = "/"  # prefix, by whole segments
    headers: list[NamedMatch] = []
    backends: list[Backend] = []
    sticky: Sticky | None = None
    mirror: Mirror | None = None
    redirect: Redirect | None = None
    rewrite: Rewrite | None = None
    timeouts: Timeouts = Timeouts()
    retries: int = 2
    circuit: Circuit = Circuit()
    tls: Tls | None = None
    policies: list[str] | None = None  # None: every policy of the environment


class NamedValue(_View, frozen=True, kw_only=True):
    name: str
    value: str


class Tester(_View, frozen=True, kw_only=True):
    """Requests with this header or cookie go to the target. One of the two is set."""

    header: NamedValue | None = None
    cookie: NamedValue | None = None
    target: Backend


class Preview(_View, frozen=True, kw_only=True):
    """Requests for this host, with the path and headers of the route, go to the target."""

    host: str
    target: Backend


class RouteRollout(_View, frozen=True, kw_only=True):
    """What a route does for revisions that are being rolled out, besides their weights. It is beside the spec: a
    gateway of an earlier version does not look there, and would refuse every request for an unknown field of the spec.
    """

    testers: list[Tester] = []
    mirrors: list[Mirror] = []  # besides the route's own
    previews: list[Preview] = []


class KeyLocation(_View, frozen=True, kw_only=True):
    """One of ``bearer``, ``header``, ``query``."""

    bearer: dict[str, Any] | None = None
    header: str = ""
    query: str = ""
    strip_prefix: str = ""


class KeyAuth(_View, frozen=True, kw_only=True):
    """The Secret of the environment's keys has their digests."""

    locations: list[KeyLocation]
    permissions: list[str] = []


class Jwt(_View, frozen=True, kw_only=True):
    """One of ``jwks_uri``, ``oidc_issuer``, ``pem`` is where the keys come from."""

    jwks_uri: str = ""
    oidc_issuer: str = ""
    pem: str = ""
    issuer: str = ""
    audiences: list[str] = []
    algorithms: list[str] = []
    subject_claim: str = "sub"
    anonymous: bool = False
    clock_skew: int = 60
    cache: int = 300


class Identifier(_View, frozen=True, kw_only=True):
    """The identity that a limit counts by: one of these fields."""

    remote_ip: dict[str, Any] | None = None
    header: str = ""
    path: dict[str, Any] | None = None
    subject: dict[str, Any] | None = None
    principal: str = ""


class RateLimitRule(_View, frozen=True, kw_only=True):
    limit: int
    window: int = 60  # seconds
    scope: str = "cluster"  # local, cluster or strict
    identifier: Identifier
    cost: int = 1


class Firewall(_View, frozen=True, kw_only=True):
    action: str = "deny"  # of requests that fit one of the rules; allow refuses all others
    cidrs: list[str] = []
    headers: list[str] = []
    paths: list[str] = []


class RequestSize(_View, frozen=True, kw_only=True):
    max_bytes: int


class Cors(_View, frozen=True, kw_only=True):
    origins: list[str]
    methods: list[str] = []
    headers: list[str] = []
    expose_headers: list[str] = []
    credentials: bool = False
    max_age: int = 600


class PolicySpec(_View, frozen=True, kw_only=True):
    """Exactly one of the last six is set."""

    environment: str
    order: int = 100
    enabled: bool = True
    fail_open: bool = False
    match: list[Condition] = []
    routes: list[str] = []  # names of routes; none: all of the environment
    key_auth: KeyAuth | None = None
    jwt: Jwt | None = None
    rate_limit: RateLimitRule | None = None
    firewall: Firewall | None = None
    request_size: RequestSize | None = None
    cors: Cors | None = None


POLICY_KINDS = ("keyAuth", "jwt", "rateLimit", "firewall", "requestSize", "cors")


def read_route(spec: Any) -> RouteSpec:
    """The spec of a SentinelRoute; ``msgspec.ValidationError`` names the error."""
    return msgspec.convert(spec, RouteSpec)


def read_rollout(rollout: Any) -> RouteRollout:
    """``msgspec.ValidationError`` names the error."""
    return msgspec.convert(rollout, RouteRollout)


def under_test(specs: Iterable[Mapping[str, Any]]) -> set[str]:
    """The deployments whose counters a rollout may be judged by, of routes as they are in the cluster: all of an app
    that routes lead to several of, whatever their weights and conditions, and those that get copies of requests."""
    sharing: dict[tuple[str, ...], set[str]] = {}
    found: set[str] = set()
    for spec in specs:
        for backend in spec.get("backends") or ():
            app = (str(backend.get("app") or ""),)
            of = (str(spec.get("environment")), *app) if app[0] else (str(spec.get("host")), str(spec.get("path")), "")
            sharing.setdefault(of, set()).add(str(backend.get("deployment") or ""))
        if mirror := spec.get("mirror"):
            found.add(str(mirror.get("deployment") or ""))
    for deployments in sharing.values():
        if len(deployments) > 1:
            found |= deployments
    return found - {""}


def read_policy(spec: Any) -> PolicySpec:
    """The spec of a SentinelPolicy; ``msgspec.ValidationError`` names the error, also for more than one kind."""
    made = msgspec.convert(spec, PolicySpec)
    given = [name for name in POLICY_KINDS if name in spec]
    if len(given) != 1:
        raise msgspec.ValidationError(f"exactly one of {', '.join(POLICY_KINDS)} must be set; got {given or 'none'}")
    return made


def definitions() -> list[dict[str, Any]]:
    """The two CustomResourceDefinitions, to be applied before the first of their objects."""
    return [
        _definition(
            "SentinelRoute",
            "sentinelroutes",
            _schema(RouteSpec),
            [("Host", ".spec.host"), ("Path", ".spec.path"), ("Environment", ".spec.environment")],
            rollout=_schema(RouteRollout),
        ),
        _definition(
            "SentinelPolicy",
            "sentinelpolicies",
            _schema(PolicySpec),
            [("Order", ".spec.order"), ("Environment", ".spec.environment")],
        ),
    ]


def _definition(
    kind: str, plural: str, spec: dict[str, Any], columns: list[tuple[str, str]], **parts: dict[str, Any]
) -> dict[str, Any]:
    """``parts`` are those beside the spec."""
    about = "Written by the agent of the cluster, from the fleet's routes and policies; users change those."
    whole = {
        "type": "object",
        "description": about,
        "required": ["spec"],
        "properties": {"spec": spec, **parts, "status": _STATUS},
    }
    shown = [
        {"name": name, "jsonPath": path, "type": "integer" if name == "Order" else "string"} for name, path in columns
    ]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()},
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": whole},
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": shown,
                }
            ],
        },
    }


_STATUS = {
    "type": "object",
    "properties": {
        "gateways": {
            "type": "array",
            "description": "per gateway: whether it applies this object, and if not, the reason",
            "items": {
                "type": "object",
                "required": ["name"],
                "properties": {
                    "name": {"type": "string"},
                    "accepted": {"type": "boolean"},
                    "generation": {"type": "integer", "format": "int64"},
                    "message": {"type": "string"},
                },
            },
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
        }
    },
}


def _schema(struct: type) -> dict[str, Any]:
    """The structural schema of a view: everything inline, nothing that a CustomResourceDefinition may not have."""
    _, components = msgspec.json.schema_components([struct], ref_template="{name}")
    return _inline(components[struct.__name__], components)


def _inline(schema: dict[str, Any], components: dict[str, Any]) -> dict[str, Any]:
    if "$ref" in schema:
        return _inline(components[schema["$ref"]], components)
    if "anyOf" in schema:  # of something or null: optional
        given = [part for part in schema["anyOf"] if part.get("type") != "null"]
        return _inline(given[0], components)
    made: dict[str, Any] = {"type": schema["type"]}
    if "properties" in schema:
        made["properties"] = {name: _inline(part, components) for name, part in schema["properties"].items()}
        if schema.get("required"):
            made["required"] = schema["required"]
    elif schema["type"] == "object":
        made["x-kubernetes-preserve-unknown-fields"] = True
    if "items" in schema:
        made["items"] = _inline(schema["items"], components)
    return made
