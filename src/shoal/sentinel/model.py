"""What a gateway knows: its settings, and the routes, policies, endpoints, certificates and API keys of the cluster.

Frozen data. The owner of ``Inputs`` replaces only changed objects (``dataclasses.replace``, and mappings copied with
one entry exchanged): the translation to Envoy's configuration skips objects that are the same as before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from shoal.crds.sentinel import Backend, Circuit, PolicySpec, RouteRollout, RouteSpec


class ServiceKey(NamedTuple):
    """A headless Service for the instances of a deployment."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayRoute:
    """A SentinelRoute. ``fault`` says why it could not be read; requests of its host and path are then refused.
    Without a rollout that can be read it is served, and ``rollout_fault`` says why."""

    name: str
    alias: str = ""  # what its environment calls it, where the object's name differs
    environment: str
    host: str
    path: str = "/"
    created_at: str = ""  # creationTimestamp; of two environments that name one host the first keeps it
    generation: int = 0
    spec: RouteSpec | None = None
    fault: str = ""
    rollout: RouteRollout = RouteRollout()
    rollout_fault: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayPolicy:
    """A SentinelPolicy. ``fault`` says why it could not be read; the routes it is for then refuse every request.

    ``routes`` names them; none: every route of the environment."""

    name: str
    alias: str = ""  # what its environment calls it, where the object's name differs
    environment: str
    routes: tuple[str, ...] = ()
    generation: int = 0
    spec: PolicySpec | None = None
    fault: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceEndpoint:
    """One address of an instance. ``draining``: it still answers, but is about to go."""

    address: str
    port: int
    zone: str = ""
    draining: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceEndpoints:
    """Of all EndpointSlices of one Service: those that are ready, and those that still serve while they terminate."""

    endpoints: tuple[InstanceEndpoint, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSecret:
    """A Secret of type kubernetes.io/tls; ``authority`` is its ``ca.crt``, where there is one. ``fault`` says what is
    wrong with it; it is still ``usable`` when this is what it was before."""

    name: str
    certificate: bytes
    key: bytes
    authority: bytes = b""
    fault: str = ""
    usable: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKeyInfo:
    """An API key without its secret."""

    id: str
    digest: str  # sha256 of the key, hex
    subject: str
    permissions: frozenset[str] = frozenset()
    expires: float = 0.0  # seconds since 1970; 0 never
    enabled: bool = True
    meta: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySet:
    """The keys of one environment."""

    environment: str
    keys: tuple[ApiKeyInfo, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerGateway:
    """The gateways of another region. Addresses are ``host:port`` of their entries for peers."""

    region: str
    addresses: tuple[str, ...]
    distance: int = 0
    healthy: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointHealthCheck:
    """Active health checks of every instance, besides outlier detection by requests."""

    path: str = ""  # empty: only whether it takes connections
    interval_s: float = 5.0
    timeout_s: float = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Of one gateway; none of them changes while it runs."""

    name: str = "sentinel"
    region: str = ""
    zone: str = ""
    host: str = "127.0.0.1"
    port: int = 8040
    tls_port: int = 0  # 0: hosts with a certificate are served with TLS on ``port``, beside plain HTTP
    entry_port: int = 0  # port for peers; 0: none
    entry_secret: str = ""  # TlsSecret with its authority, for mutual TLS with peers
    entry_name: str = "sentinel.shoal"  # in the certificates of peers
    trusted_hops: int = 0  # number of trusted proxies in front, for X-Forwarded-For
    keep_escaped_slashes: bool = False  # else a path with %2F is answered with where it leads: rules see plain paths
    max_header_kib: int = 60
    header_timeout_s: float = 10.0  # for the headers of a request
    drain_s: float = 5.0
    limits_socket: str = ""  # Unix socket of the rate-limit service; empty: routes with strict limits are closed
    limits_timeout_s: float = 0.02
    log_path: str = "/dev/stdout"
    log_percent: float = 1.0  # of requests that went well; others are always logged
    traces_url: str = ""  # of an OTLP/HTTP collector; empty: no traces
    traces_percent: float = 1.0  # of requests, whatever trace context they come with
    health_check: EndpointHealthCheck | None = None
    replicas: ServiceKey | None = None  # the gateway's own Service; without it limits are those of one gateway


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    settings: Settings = Settings()
    routes: Mapping[str, GatewayRoute] = field(default_factory=dict)  # by name
    policies: Mapping[str, GatewayPolicy] = field(default_factory=dict)  # by name
    endpoints: Mapping[ServiceKey, ServiceEndpoints] = field(default_factory=dict)
    tls: Mapping[str, TlsSecret] = field(default_factory=dict)  # by name
    keys: Mapping[str, KeySet] = field(default_factory=dict)  # by environment
    peers: tuple[PeerGateway, ...] = ()
    issuers: Mapping[str, str] = field(default_factory=dict)  # by OIDC issuer the URI of its keys, once it is known


@dataclass(frozen=True, slots=True)
class RouteTarget:
    """A deployment that routes name, derived from the routes."""

    backend: Backend
    circuit: Circuit = Circuit()
    sticky: bool = False

    @property
    def deployment(self) -> str:
        return self.backend.deployment

    @property
    def service(self) -> ServiceKey:
        return ServiceKey(self.backend.namespace, self.backend.service)
