"""Messages of the discovery protocol with Envoy; frozen data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

_PREFIX = "type.googleapis.com/envoy.config."
CLUSTER = f"{_PREFIX}cluster.v3.Cluster"
ENDPOINTS = f"{_PREFIX}endpoint.v3.ClusterLoadAssignment"
LISTENER = f"{_PREFIX}listener.v3.Listener"
SCOPE = f"{_PREFIX}route.v3.ScopedRouteConfiguration"
ROUTES = f"{_PREFIX}route.v3.RouteConfiguration"
EXTENSION = f"{_PREFIX}core.v3.TypedExtensionConfig"
SECRET = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"

TYPES = (CLUSTER, ENDPOINTS, SECRET, EXTENSION, LISTENER, SCOPE, ROUTES)
"""In the order in which they are sent."""


class ResourceRef(NamedTuple):
    """The type and name of a resource."""

    type: str
    name: str


@dataclass(frozen=True, slots=True, eq=False)
class XdsResource:
    """One resource for Envoy. Resources of the same name and version have the same content."""

    ref: ResourceRef
    version: str
    body: bytes = b""
    needs: frozenset[str] = frozenset()  # names of clusters that must be there before it
    brings: tuple[ResourceRef, ...] = ()  # names of resources that Envoy requests for it and needs
    known: bool = True  # False: only its name and version are known, from Envoy


Snapshot = Mapping[str, Mapping[str, XdsResource]]
"""Everything that Envoy should have: by type and name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoveryRequest:
    """A request of Envoy for one type: subscriptions, and the result of the response with that nonce."""

    type: str
    nonce: str = ""
    error: str | None = None  # the response was refused
    subscribe: tuple[str, ...] = ()
    unsubscribe: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)  # first request: resources from an earlier stream


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoveryResponse:
    type: str
    nonce: str
    resources: tuple[XdsResource, ...] = ()
    removed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Nack:
    """A version of a resource that Envoy refused; Envoy keeps the last version that it accepted."""

    ref: ResourceRef
    version: str
    reason: str
    attempts: int
    retry_at: float  # in the machine's time
    trying: bool = False  # it is being sent again
