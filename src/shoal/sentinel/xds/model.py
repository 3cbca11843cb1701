"""What is said between us and Envoy; frozen data."""

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
"""In the order in which they are said."""


class ResourceRef(NamedTuple):
    """Which resource."""

    type: str
    name: str


@dataclass(frozen=True, slots=True, eq=False)
class XdsResource:
    """One thing that Envoy is told. Two of one name and version are the same, however they came about."""

    ref: ResourceRef
    version: str
    body: bytes = b""
    needs: frozenset[str] = frozenset()  # names of clusters that must be there before it
    brings: tuple[ResourceRef, ...] = ()  # what Envoy asks for because of it, and is not usable without
    known: bool = True  # False: Envoy named it and its version; what is in it we cannot say


Snapshot = Mapping[str, Mapping[str, XdsResource]]
"""Everything that Envoy should have: by type and name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoveryRequest:
    """What Envoy says about one type: what it wants, and what became of the response with that nonce."""

    type: str
    nonce: str = ""
    error: str | None = None  # the response was refused
    subscribe: tuple[str, ...] = ()
    unsubscribe: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)  # at the beginning: what it has from an earlier stream


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoveryResponse:
    type: str
    nonce: str
    resources: tuple[XdsResource, ...] = ()
    removed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Nack:
    """A version of a resource that Envoy did not take; the last one that it took stays."""

    ref: ResourceRef
    version: str
    reason: str
    attempts: int
    retry_at: float  # of the machine's time
    trying: bool = False  # it is being said once more
