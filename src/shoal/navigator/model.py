"""Data types of the navigator: kinds, clusters, rows. Shared by edge, manager and answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedKind:
    """A kind of object that edges report. ``name`` is the plural that rows and queries use."""

    name: str
    kind: str
    group: str = ""
    versions: tuple[str, ...] = ("v1",)  # the first that the cluster serves is watched
    namespaced: bool = True
    istio: bool = False
    optional: bool = False  # a cluster may not serve it: discovery looks for it
    transient: bool = False  # its objects come and go by themselves: bounded, and not searched or compared unasked


_ISTIO_NET = ("v1", "v1beta1", "v1alpha3")
_ISTIO_SEC = ("v1", "v1beta1")


def _istio(name: str, kind: str, group: str, versions: tuple[str, ...]) -> ReportedKind:
    return ReportedKind(name=name, kind=kind, group=f"{group}.istio.io", versions=versions, istio=True, optional=True)


# Built by the edge from istiod's Deployment and the mesh ConfigMap; not a resource of the cluster.
CONTROL_PLANE_CONFIG = ReportedKind(name="istiocontrolplaneconfigs", kind="IstioControlPlaneConfig", istio=True)

KINDS: Mapping[str, ReportedKind] = {
    kind.name: kind
    for kind in (
        ReportedKind(name="services", kind="Service"),
        ReportedKind(name="endpointslices", kind="EndpointSlice", group="discovery.k8s.io"),
        ReportedKind(name="pods", kind="Pod"),
        ReportedKind(name="nodes", kind="Node", namespaced=False),
        ReportedKind(name="namespaces", kind="Namespace", namespaced=False),
        ReportedKind(name="deployments", kind="Deployment", group="apps"),
        ReportedKind(
            name="horizontalpodautoscalers",
            kind="HorizontalPodAutoscaler",
            group="autoscaling",
            versions=("v2",),
            optional=True,
        ),
        ReportedKind(name="shardconfigs", kind="ShardConfig", group="shard.io", optional=True),
        ReportedKind(name="shardinstances", kind="ShardInstance", group="shard.io", optional=True),
        ReportedKind(name="shardslots", kind="ShardSlots", group="shard.io", optional=True),
        ReportedKind(name="events", kind="Event", transient=True),
        ReportedKind(name="ingresses", kind="Ingress", group="networking.k8s.io", optional=True),
        ReportedKind(
            name="httproutes",
            kind="HTTPRoute",
            group="gateway.networking.k8s.io",
            versions=("v1", "v1beta1"),
            optional=True,
        ),
        ReportedKind(name="sentinelroutes", kind="SentinelRoute", group="sentinel.shoal.dev", optional=True),
        ReportedKind(name="sentinelpolicies", kind="SentinelPolicy", group="sentinel.shoal.dev", optional=True),
        _istio("virtualservices", "VirtualService", "networking", _ISTIO_NET),
        _istio("destinationrules", "DestinationRule", "networking", _ISTIO_NET),
        _istio("gateways", "Gateway", "networking", _ISTIO_NET),
        _istio("serviceentries", "ServiceEntry", "networking", _ISTIO_NET),
        _istio("sidecars", "Sidecar", "networking", _ISTIO_NET),
        _istio("envoyfilters", "EnvoyFilter", "networking", ("v1alpha3",)),
        _istio("peerauthentications", "PeerAuthentication", "security", _ISTIO_SEC),
        _istio("requestauthentications", "RequestAuthentication", "security", _ISTIO_SEC),
        _istio("authorizationpolicies", "AuthorizationPolicy", "security", _ISTIO_SEC),
        _istio("wasmplugins", "WasmPlugin", "extensions", ("v1alpha1",)),
        CONTROL_PLANE_CONFIG,
    )
}

WATCHED: Mapping[str, ReportedKind] = {name: kind for name, kind in KINDS.items() if kind is not CONTROL_PLANE_CONFIG}
"""Kinds that an edge reads from its cluster."""


LASTING: tuple[str, ...] = tuple(kind.name for kind in KINDS.values() if not kind.transient)
"""Kinds that are searched and compared when a user names none."""


class Freshness(StrEnum):
    """How current the known state of a cluster is."""

    INITIALIZING = "initializing"  # claimed, first sync not complete
    HEALTHY = "healthy"
    STALE = "stale"  # connected, but silent for three intervals, or its API server cannot be used
    DISCONNECTED = "disconnected"  # the last known state, with its age


FORBIDDEN = "forbidden"


@dataclass(frozen=True, slots=True, kw_only=True)
class KindStatus:
    """The state of one kind at an edge; while it is in error its rows are the last good ones."""

    kind: str
    state: str  # synced, waiting, missing, forbidden, failing
    error: str = ""
    since_s: float = 0.0
    rows: int | None = 0  # None: not told, since only a part of them may be read


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A cluster as the manager knows it now."""

    name: str
    region: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    freshness: Freshness = Freshness.INITIALIZING
    edge: str = ""  # the connected one, or the last one
    epoch: int = 0
    connected_at_s: float = 0.0  # wall time; 0: not connected
    heard_at_s: float = 0.0  # wall time of the last message
    reason: str = ""  # why it is stale, if that is known
    kinds: tuple[KindStatus, ...] = ()


@dataclass(frozen=True, slots=True)
class Row:
    """One object of one cluster in the indexes: the fields that queries use, without the object itself.

    ``summary`` is a frozen struct of the kind, with its queryable fields (``shoal.navigator.summaries``).
    """

    cluster: str
    kind: str
    namespace: str
    name: str
    fingerprint: int
    changed_at_s: float  # wall time at the manager
    summary: object

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name
