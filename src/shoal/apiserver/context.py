"""The dependencies of every verb (store, registry, clock, ids), and the request as the verbs receive it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from shoal.apiserver.audit.config import AuditConfig
from shoal.apiserver.flow.config import FlowConfig
from shoal.apiserver.front_proxy import FrontProxyConfig
from shoal.apiserver.http import Request
from shoal.apiserver.negotiate import Query
from shoal.apiserver.node_access import NodesConfig
from shoal.apiserver.paths import ResourcePath
from shoal.apiserver.registry import Registry, Served
from shoal.apiserver.user import User
from shoal.base.clock import Clock
from shoal.base.ids import Ids
from shoal.kube.objects import Obj
from shoal.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """Settings of the API server."""

    service_cidr: str = "10.96.0.0/16"
    node_ports: tuple[int, int] = (30000, 32767)
    advertise_address: str = "127.0.0.1"
    advertise_port: int = 6443
    ca_certificate: str = ""  # PEM, published as kube-root-ca.crt
    issuer: str = "https://kubernetes.default.svc.cluster.local"
    anonymous: bool = False  # pass requests without credentials to authorization
    watch_timeout_s: tuple[float, float] = (1800.0, 3600.0)
    bookmark_every_s: float = 60.0
    event_ttl_s: float = 3600.0
    empties_namespaces: bool = True  # itself, where no namespace controller does
    flow: FlowConfig = FlowConfig()
    audit: AuditConfig = AuditConfig()
    nodes: NodesConfig = NodesConfig()
    front_proxy: FrontProxyConfig = FrontProxyConfig()

    @property
    def audiences(self) -> tuple[str, ...]:
        """The audiences that this server accepts in tokens."""
        return (self.issuer,)


class Core:
    """Shared by all handlers of one server."""

    __slots__ = ("_now_second", "_now_text", "clock", "config", "ids", "registry", "store")

    def __init__(self, store: Store, registry: Registry, clock: Clock, ids: Ids, config: ServerConfig) -> None:
        self.store = store
        self.registry = registry
        self.clock = clock
        self.ids = ids
        self.config = config
        self._now_second = -1
        self._now_text = ""

    def now(self) -> str:
        """Wall time as Kubernetes writes it, whole seconds; formatted once per second."""
        second = int(self.clock.wall_s())
        if second != self._now_second:
            self._now_second = second
            self._now_text = self.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
        return self._now_text


@dataclass(slots=True)
class Call:
    """One resource request."""

    request: Request
    target: ResourcePath
    served: Served
    query: Query
    user: User
    warnings: list[str] = field(default_factory=list)
    annotations: dict[str, str] = field(default_factory=dict)  # annotations of admission for the audit log

    @property
    def namespace(self) -> str | None:
        return self.target.namespace

    @property
    def name(self) -> str:
        return self.target.name


Guard = Callable[[Call, Obj, Obj | None], None]  # (call, new, old): raises when this user may not write this
