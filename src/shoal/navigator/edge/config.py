"""The settings of an edge, and the join file with the address of its manager and its identity there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from shoal.base.settings import load, setting
from shoal.errors import ConfigError

MIN_MESSAGE_BYTES = 16 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeJoinFile:
    """Where the manager is and which cluster this edge claims there. Keep it secret: it has the token."""

    url: str = setting(doc="address of the manager, https://HOST:PORT")
    token: str = setting(doc="bearer token of the edge, bound to the cluster")
    cluster: str = setting("", doc="name of the cluster; empty: read from the cluster")
    region: str = setting("", doc="region of the cluster; empty: read from its nodes")
    environment: str = setting("", doc="environment of the cluster, for example production or staging")
    ca: str = setting("", doc="CA certificates of the manager, PEM; needed for https")

    def __post_init__(self) -> None:
        if not self.url.startswith(("https://", "http://")):
            raise ConfigError(f"url is {self.url!r}: use https://HOST:PORT")
        if self.url.startswith("https://") and not self.ca:
            raise ConfigError("ca is not set: an https url needs the manager's CA certificates")
        if not self.token:
            raise ConfigError("token is empty in the join file: create a new one with shoal navigator token create")


def read_join_file(path: Path) -> EdgeJoinFile:
    """JSON or YAML; ``ConfigError`` says what is wrong with it."""
    return load(EdgeJoinFile, file=path)


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncConfig:
    """How often the manager is sent the digests to verify its state."""

    interval_s: float = setting(30.0, doc="time between two verifications")
    min_interval_s: float = setting(5.0, doc="the same while many objects change")
    max_interval_s: float = setting(60.0, doc="the same while nothing changes")
    busy_changes: int = setting(100, doc="changes in one interval above which min_interval_s applies")

    def __post_init__(self) -> None:
        if not 0 < self.min_interval_s <= self.interval_s <= self.max_interval_s:
            raise ConfigError("sync: use 0 < min_interval_s <= interval_s <= max_interval_s")
        if self.busy_changes < 1:
            raise ConfigError(f"sync.busy_changes is {self.busy_changes}: use 1 or more")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionConfig:
    """The stream to the manager."""

    connect_timeout_s: float = setting(5.0, doc="longest time to connect, and to be accepted")
    request_timeout_s: float = setting(30.0, doc="longest time until the manager acknowledges a message")
    retry_count: int = setting(0, doc="failures in a row after which the edge exits; 0: never")
    retry_base_s: float = setting(0.5, doc="bound of the wait after the first failure; doubles, full jitter")
    retry_cap_s: float = setting(30.0, doc="longest wait after a failure")
    standby_s: float = setting(2.0, doc="how often a standby tries to claim the cluster")
    send_queue: int = setting(10_000, doc="changes that may wait to be sent; beyond that the whole kind is sent")
    keep_alive_s: float = setting(15.0, doc="send a keep-alive after this much silence")
    keep_alive_timeout_s: float = setting(
        20.0, doc="close the connection if a keep-alive is not answered for this long"
    )
    max_message_bytes: int = setting(4 * 1024 * 1024, doc="largest message in either direction")

    def __post_init__(self) -> None:
        positive = (
            "connect_timeout_s", "request_timeout_s", "retry_base_s", "retry_cap_s", "standby_s", "keep_alive_s",
            "keep_alive_timeout_s",
        )  # fmt: skip
        for name in positive:
            if getattr(self, name) <= 0:
                raise ConfigError(f"connection.{name} is {getattr(self, name)}: use more than 0")
        if self.retry_count < 0:
            raise ConfigError(f"connection.retry_count is {self.retry_count}: use 0 or more")
        if self.retry_cap_s < self.retry_base_s:
            raise ConfigError("connection.retry_cap_s cannot be shorter than retry_base_s")
        if self.send_queue < 1:
            raise ConfigError(f"connection.send_queue is {self.send_queue}: use 1 or more")
        if self.max_message_bytes < MIN_MESSAGE_BYTES:
            raise ConfigError(
                f"connection.max_message_bytes is {self.max_message_bytes}: use {MIN_MESSAGE_BYTES} or more"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesConfig:
    """Reading the cluster."""

    retry_count: int = setting(
        0, doc="failures in a row after which a kind is not read any more, until the settings change; 0: never"
    )
    retry_base_s: float = setting(0.5, doc="bound of the wait after the first failure; doubles, full jitter")
    retry_cap_s: float = setting(30.0, doc="longest wait after a failure")

    def __post_init__(self) -> None:
        if self.retry_count < 0:
            raise ConfigError(f"kubernetes.retry_count is {self.retry_count}: use 0 or more")
        if not 0 < self.retry_base_s <= self.retry_cap_s:
            raise ConfigError("kubernetes: use 0 < retry_base_s <= retry_cap_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceConfig:
    """Namespaces whose objects are reported. Names, or shell patterns: ``team-*``."""

    include: tuple[str, ...] = setting(
        (),
        doc="report only these namespaces, each watched by itself; patterns choose among those that exist; empty: all",
    )
    exclude: tuple[str, ...] = setting((), doc="never report these namespaces, even if included")
    one_by_one: int = setting(
        50,
        doc="watch namespaces chosen by patterns each by itself; if there are more than this, watch the whole cluster",
    )

    def __post_init__(self) -> None:
        if self.one_by_one < 0:
            raise ConfigError(f"namespaces.one_by_one is {self.one_by_one}: use 0 or more")
        if any(not name for name in (*self.include, *self.exclude)):
            raise ConfigError("namespaces: a name in include or exclude is empty")


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestConfig:
    """Requests of the manager."""

    workers: int = setting(8, doc="requests answered at the same time")
    waiting: int = setting(64, doc="requests that may wait; more are refused")
    followers: int = setting(32, doc="logs followed at the same time, in addition to requests")
    longest_s: float = setting(60.0, doc="longest deadline of a request, and its default; a followed log has a day")
    envoy_admin_port: int = setting(15000, doc="admin port of the proxies, unless a pod names another")
    prometheus: str = setting("", doc="URL of the Prometheus with Istio's request metrics; empty: none")
    prometheus_token: str = setting("", doc="bearer token for it")
    prometheus_cluster_label: str = setting("", doc="LABEL=VALUE that every query selects by; empty: no limit")

    def __post_init__(self) -> None:
        for name in ("workers", "waiting", "followers"):
            if getattr(self, name) < 1:
                raise ConfigError(f"requests.{name} is {getattr(self, name)}: use 1 or more")
        if self.longest_s <= 0:
            raise ConfigError(f"requests.longest_s is {self.longest_s}: use more than 0")
        if self.prometheus and not self.prometheus.startswith(("http://", "https://")):
            raise ConfigError(f"requests.prometheus is {self.prometheus!r}: use http://HOST:PORT")
        if self.prometheus_cluster_label and "=" not in self.prometheus_cluster_label:
            raise ConfigError("requests.prometheus_cluster_label must be LABEL=VALUE")


@dataclass(frozen=True, slots=True, kw_only=True)
class CallsConfig:
    """The service graph from the counters of the cluster's own proxies."""

    gateways: bool = setting(True, doc="read the counters of Shoal's gateways")
    istio_proxies: bool = setting(
        False, doc="read the counters of Istio's proxies in every pod; for meshes without a Prometheus"
    )
    interval_s: float = setting(5.0, doc="how often they are read")
    keep_s: float = setting(3600.0, doc="how long they are kept, and how far back the graph can go")

    def __post_init__(self) -> None:
        if self.interval_s < 1:
            raise ConfigError(f"calls.interval_s is {self.interval_s}: use 1 or more")
        if self.keep_s < self.interval_s:
            raise ConfigError("calls.keep_s cannot be shorter than calls.interval_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class EventsConfig:
    """The Kubernetes events that are reported."""

    most: int = setting(2000, doc="largest number that is reported; beyond it the oldest go, warnings last; 0: none")

    def __post_init__(self) -> None:
        if not 0 <= self.most <= 100_000:
            raise ConfigError(f"events.most is {self.most}: use 0 to 100000")


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeConfig:
    """One edge. Durations are in seconds."""

    join: Path = setting(doc="the join file")
    kubeconfig: Path | None = setting(None, doc="kubeconfig of the cluster; empty: the edge's service account")
    context: str = setting("", doc="context of the kubeconfig; empty: the current one")
    edge: str = setting("", doc="name of this process, unique among the standbys; empty: derived from the host name")
    host: str = setting("127.0.0.1", doc="address for health and metrics")
    port: int = setting(8071, doc="port for health and metrics; 0: any")
    discovery_s: float = setting(5.0, doc="how often kinds that the cluster lacks are looked for")
    sync: SyncConfig = setting(SyncConfig(), doc="verification")
    connection: ConnectionConfig = setting(ConnectionConfig(), doc="the stream to the manager")
    kubernetes: KubernetesConfig = setting(KubernetesConfig(), doc="reading the cluster")
    namespaces: NamespaceConfig = setting(NamespaceConfig(), doc="namespaces whose objects are reported")
    events: EventsConfig = setting(EventsConfig(), doc="Kubernetes events")
    requests: RequestConfig = setting(RequestConfig(), doc="requests from the manager")
    calls: CallsConfig = setting(CallsConfig(), doc="the service graph from the counters of proxies")

    def __post_init__(self) -> None:
        if self.discovery_s <= 0:
            raise ConfigError(f"discovery_s is {self.discovery_s}: use more than 0")
        if self.connection.keep_alive_s > 3 * self.sync.interval_s:
            raise ConfigError(
                "connection.keep_alive_s is longer than 3 times sync.interval_s: the cluster would be marked stale"
            )
