"""Settings of a cluster process, checked when they are made; and the layout of its directory.

Flags, files and tests all build the same ``ClusterConfig``. An option for a part that does not exist yet is
refused with an error, never ignored.

    DIR/kubeconfig      CA and an admin's bearer token (0600): the only place the token is readable
    DIR/tokens.json     sha256, user and expiry of each static token (0600)
    DIR/pki/            keys and certificates (0600)
    DIR/store.db        the objects, when the store is SQLite
    DIR/audit.log       audit log of writes and refused requests (0600); rotated parts are audit-TIME.log
    DIR/port            the port chosen at the first start, used again at the next
    DIR/cluster.lock    held while a cluster runs in the directory; has its pid inside
"""

from __future__ import annotations

import hashlib
import ipaddress
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from shoal.apiserver.audit.config import AuditConfig
from shoal.apiserver.audit.policy import load as load_policy
from shoal.apiserver.flow.config import FlowConfig
from shoal.app.files import DirectoryLock, make_private_dir
from shoal.app.locks import check_lock_url
from shoal.app.ports import claimed_port, port_of
from shoal.base.settings import setting
from shoal.controllers.nodelifecycle.config import NodeLifecycleConfig
from shoal.errors import ConfigError
from shoal.node.config import NodeSettings
from shoal.reconcile import ElectionConfig
from shoal.scheduler.config import Profile, profiles_of

DEFAULT_PORT = 6443
LOOPBACK = "127.0.0.1"
_ALL_ADDRESSES = ("0.0.0.0", "::", "")
SERVICE_CIDR = "10.96.0.0/16"

COMPONENTS = ("apiserver", "scheduler", "controllers", "nodes")
AVAILABLE_COMPONENTS = ("apiserver", "scheduler", "controllers", "nodes")
_STORE_FIX = "use sqlite:///PATH, postgresql://USER@HOST/DATABASE or memory://"
RUNTIMES = ("process", "sandbox", "docker", "simulated")
HTTP2 = ("auto", "on", "off")


def local_url(host: str, port: int) -> str:
    """URL of a server that listens on ``host``, for clients on this machine."""
    host = LOOPBACK if host in _ALL_ADDRESSES else host
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


def local_hosts(host: str, more: tuple[str, ...]) -> tuple[str, ...]:
    """Names and addresses in the certificate of a server that listens on ``host``."""
    bound = () if host in _ALL_ADDRESSES else (host,)
    return tuple(dict.fromkeys(("localhost", LOOPBACK, "::1", *bound, *more)))


@dataclass(frozen=True, slots=True)
class StoreUrl:
    """Where the objects live: ``memory``, ``sqlite`` or ``postgresql``."""

    scheme: str
    path: Path | None = None  # of the database file, for sqlite; absolute
    address: str = ""  # the URL itself, for postgresql; may hold a password

    @classmethod
    def parse(cls, url: str, directory: Path) -> StoreUrl:
        """``""`` is SQLite in ``directory``; ``memory://`` keeps nothing; ``sqlite:///PATH`` is that file, a relative
        path (three slashes) below ``directory``. ``memory`` and ``sqlite:PATH`` are short for these.
        ``postgresql://...`` is a database that several servers may share."""
        scheme, _, rest = (url or "sqlite").partition(":")
        if scheme == "memory" and rest.strip("/") == "":
            return cls("memory")
        if scheme == "sqlite":
            path = rest.removeprefix("///") if rest.startswith("//") else rest
            return cls("sqlite", directory / (path or "store.db"))
        if scheme in ("postgresql", "postgres") and rest.startswith("//"):
            return cls("postgresql", None, url)
        raise ConfigError(f"store is {without_password(url)!r}: {_STORE_FIX}")

    @property
    def url(self) -> str:
        """The long form, which the store package takes."""
        if self.address:
            return self.address
        return "memory://" if self.path is None else f"sqlite:///{self.path}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConfig:
    """One Kubernetes-compatible cluster, or the subset of it that ``components`` names."""

    dir: Path
    port: int = DEFAULT_PORT
    host: str = LOOPBACK  # address the API server binds
    http2: str = "auto"  # whether the API server offers HTTP/2: auto, on or off
    store: StoreUrl
    events: str = ""  # URL of the Redis through which servers of one store notify each other of writes
    credentials: Path | None = None  # directory of another server of this cluster, to share its keys and tokens
    components: tuple[str, ...] = AVAILABLE_COMPONENTS
    service_cidr: str = SERVICE_CIDR
    dns_upstream: bool = False
    event_ttl_s: float = 3600.0  # how long Events are kept after their last write
    extra_hosts: tuple[str, ...] = ()  # further names and addresses in the server's certificate
    nodes: int = 0
    node: NodeSettings = NodeSettings()  # of all these nodes
    runtime: str = "process"  # container runtime of these nodes
    docker_socket: str = ""  # path or unix:// address of the engine; empty: DOCKER_HOST, then the usual places
    pause_image: str = ""  # image of the pause containers; empty: built by the runtime
    server: str = ""  # the API server to use where this process has none; empty: the kubeconfig's
    kubeconfig: str = ""
    join: Path | None = None  # join file of an agent that runs in this process
    edge: Path | None = None  # join file of a navigator's edge that runs in this process
    sharding: bool = False  # whether a shard manager runs in this process
    lock: str = ""  # URL of the Redis that elects scheduler and controllers; empty: Leases do
    election: ElectionConfig = ElectionConfig()
    node_lifecycle: NodeLifecycleConfig = NodeLifecycleConfig()
    profiles: tuple[Profile, ...] = (Profile(),)  # of the scheduler
    resync_s: float = 600.0  # period in which components compare their caches with the server; 0: never
    health_host: str = LOOPBACK
    health_port: int = 0  # of health and metrics, where this process has no API server; 0: none
    anonymous: bool = False  # requests without credentials are system:anonymous instead of refused
    flow: FlowConfig = FlowConfig()
    audit: AuditConfig = AuditConfig()
    listening: socket.socket | None = None  # at the port; None: not yet

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise ConfigError(f"port is {self.port}: use 1 to 65535, or 0 for any free port")
        try:
            network = ipaddress.ip_network(self.service_cidr)
        except ValueError as error:
            raise ConfigError(
                f"service_cidr is {self.service_cidr!r}: {error}; use for example {SERVICE_CIDR}"
            ) from None
        if network.num_addresses < 8:
            raise ConfigError(f"service_cidr is {self.service_cidr!r}: too small; use at least 8 addresses")
        if self.http2 not in HTTP2:
            raise ConfigError(f"http2 is {self.http2!r}: choose from {', '.join(HTTP2)}")
        if not 0 <= self.health_port <= 65535:
            raise ConfigError(f"health_port is {self.health_port}: use 1 to 65535, or 0 for none")
        if self.health_port and "apiserver" in self.components:
            raise ConfigError(
                f"health_port is {self.health_port}: leave it out; the API server of this process answers /livez, "
                "/readyz and /metrics"
            )
        _check_components(self.components)
        if self.event_ttl_s <= 0:
            raise ConfigError(f"event_ttl_s is {self.event_ttl_s}: use more than 0 seconds")
        if self.resync_s < 0:
            raise ConfigError(f"resync_s is {self.resync_s}: use seconds, or 0 to turn resyncs off")

    @property
    def url(self) -> str:
        """URL of the API server for clients on this machine."""
        return local_url(self.host, self.port)

    @property
    def offers_http2(self) -> bool:
        """``auto`` is on: over HTTP/2 a get is no slower (decision 0004)."""
        return self.http2 != "off"

    @property
    def service_ip(self) -> str:
        """The address of the ``kubernetes`` Service: the first of the range."""
        return str(ipaddress.ip_network(self.service_cidr)[1])

    @property
    def certificate_hosts(self) -> tuple[str, ...]:
        """Every name and address under which clients may reach the API server."""
        service = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local")
        bound = () if self.host in _ALL_ADDRESSES else (self.host,)
        hosts = (*service, "localhost", LOOPBACK, "::1", self.service_ip, *bound, *self.extra_hosts)
        return tuple(dict.fromkeys(hosts))

    @property
    def runs_nodes(self) -> bool:
        return "nodes" in self.components and self.nodes > 0

    @property
    def credentials_dir(self) -> Path:
        """Directory of the keys and tokens that all servers of a cluster share."""
        return self.credentials or self.dir

    @property
    def server_name(self) -> str:
        """File name of this server's certificate in the shared directory."""
        if self.credentials is None:
            return "server"
        return f"server-{hashlib.sha256(str(self.dir.absolute()).encode()).hexdigest()[:12]}"

    @property
    def pki_dir(self) -> Path:
        return self.credentials_dir / "pki"

    @property
    def kubeconfig_path(self) -> Path:
        return self.dir / "kubeconfig"

    @property
    def tokens_path(self) -> Path:
        return self.credentials_dir / "tokens.json"

    @property
    def port_path(self) -> Path:
        return self.dir / "port"

    @property
    def lock_path(self) -> Path:
        return self.dir / "cluster.lock"


def _check_components(components: Sequence[str]) -> None:
    for name in components:
        if name not in COMPONENTS:
            raise ConfigError(f"components has {name!r}: choose from {', '.join(COMPONENTS)}")
        if name not in AVAILABLE_COMPONENTS:
            raise not_available("components", name, f"use {','.join(AVAILABLE_COMPONENTS)}")
    if not components:
        raise ConfigError(f"components is empty: use {','.join(AVAILABLE_COMPONENTS)}")


def not_available(key: str, value: object, fix: str) -> ConfigError:
    """The error for an option that is not implemented yet."""
    return ConfigError(f"{key} is {value!r}: not available yet; {fix}")


def without_password(url: str) -> str:
    """The URL for messages, with its password replaced by ``***``."""
    head, at, tail = url.rpartition("@")
    if not at:
        return url
    scheme, slashes, credentials = head.rpartition("//")
    user, colon, _ = credentials.partition(":")
    return f"{scheme}{slashes}{user}{colon and ':***'}@{tail}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOptions:
    """The settings of ``shoal cluster start`` as the user gave them."""

    dir: Path = setting(doc="state directory; default $SHOAL_HOME, else ~/.shoal")
    port: int | None = setting(
        None, doc="port of the API server; default: the last one used, else 6443 or the next free port"
    )
    host: str = setting(LOOPBACK, doc="address the API server listens on")
    http2: str = setting("auto", doc="whether the API server offers HTTP/2 beside HTTP/1.1: auto, on or off")
    store: str = setting("", doc="sqlite:///PATH, postgresql://USER@HOST/DATABASE or memory://; default SQLite in dir")
    nodes: int | None = setting(None, doc="number of nodes; default 1, or 0 for an additional server of a cluster")
    node: NodeSettings = setting(NodeSettings(), doc="labels, taints and capacity of the nodes of this process")
    runtime: str = setting("", doc="how pods run: process (the default), sandbox, docker or simulated")
    docker_socket: str = setting("", doc="container engine socket, for runtime docker")
    pause_image: str = setting("", doc="image of the pause container, for runtime docker; default: Shoal builds one")
    events: str = setting("", doc="redis://HOST:PORT through which servers that share a store notify each other")
    credentials: str = setting("", doc="state directory of another server of this cluster, to use its keys and tokens")
    components: str = setting(
        ",".join(AVAILABLE_COMPONENTS), doc="components to run in this process, separated by commas"
    )
    server: str = setting("", doc="URL of the API server, if this process runs none; default: the kubeconfig's")
    kubeconfig: str = setting("", doc="credentials for the API server, if this process runs none")
    join: str = setting("", doc="join file of a control plane; also runs the cluster's agent in this process")
    edge: str = setting("", doc="join file of a navigator; also runs the cluster's edge in this process")
    sharding: bool = setting(False, doc="also run a shard manager in this process")
    lock: str = setting("", doc="redis://HOST:PORT that elects scheduler and controllers; default: Leases elect them")
    election: ElectionConfig = setting(ElectionConfig(), doc="times of leader election; the same for all candidates")
    node_lifecycle: NodeLifecycleConfig = setting(
        NodeLifecycleConfig(), doc="when the controllers count a node as lost, and how fast they evict its pods"
    )
    scheduler_profiles: tuple[str, ...] = setting(
        (), doc="further schedulerNames, each with what differs from the default: NAME [-PLUGIN] [PLUGIN=WEIGHT]"
    )
    service_cidr: str = setting(
        "",
        doc=f"range of Service addresses; default {SERVICE_CIDR}, or one that nodes on this machine choose",
    )
    dns_upstream: bool = setting(
        False, doc="for runtime sandbox: ask this machine's DNS servers about names that the cluster does not have"
    )
    event_ttl_s: float = setting(3600.0, doc="seconds that the API server keeps an Event after its last write")
    resync_s: float = setting(
        600.0, doc="seconds after which components compare their caches with the API server and reconcile; 0: never"
    )
    health_host: str = setting(LOOPBACK, doc="address of health and metrics, for a process without an API server")
    health_port: int = setting(0, doc="port of health and metrics, for a process without an API server; 0: none")
    tls_san: tuple[str, ...] = setting((), doc="additional DNS names and IP addresses in the server's certificate")
    anonymous_auth: bool = setting(False, doc="accept requests without credentials as system:anonymous")
    flow: FlowConfig = setting(FlowConfig(), doc="limits on requests")
    audit_policy: str = setting("", doc="audit.k8s.io/v1 Policy file; default: record writes and denied requests")
    audit_log: str = setting("", doc="audit log file, or off; default audit.log in dir")
    audit_max_size: int = setting(100, doc="megabytes after which the audit log is rotated")
    audit_max_backups: int = setting(10, doc="old audit logs to keep; 0 keeps all")
    audit_max_age: int = setting(0, doc="days to keep old audit logs; 0 for no limit")
    log_level: str = setting("info", doc="debug, info, warning, error or off")


def refuse_what_is_not_built(options: ClusterOptions) -> None:
    """Raise ConfigError for invalid flags and combinations of flags."""
    if options.nodes is not None and options.nodes < 0:
        raise ConfigError(f"nodes is {options.nodes}: use 0 or more")
    if options.runtime and options.runtime not in RUNTIMES:
        raise ConfigError(f"runtime is {options.runtime!r}: choose from {', '.join(RUNTIMES)}")
    _check_docker(options)
    if options.events and not options.store.startswith(("postgresql:", "postgres:")):
        raise ConfigError(
            f"events is {without_password(options.events)!r}: only servers that share a store notify each other of "
            "writes; use it with --store postgresql://..., or leave it out"
        )
    if options.lock:
        check_lock_url(options.lock, without_password(options.lock))
    _check_service_cidr(options)
    _check_node_labels(options.node)
    if options.node.network and options.runtime == "simulated":
        raise ConfigError(
            f"node.network is {options.node.network!r}: simulated nodes have a network of their own; leave it out"
        )
    own = "apiserver" in options.components or not options.components.strip(", ")
    if own and (options.server or options.kubeconfig):
        raise ConfigError(
            "server and kubeconfig are only for a process without an API server; leave them out, or leave "
            "apiserver out of --components"
        )
    if not own and not options.kubeconfig:
        raise ConfigError("kubeconfig is empty: components without an API server need --kubeconfig FILE to reach one")
    for key, file, alone, made in (
        ("join", options.join, "shoal krane start", "shoal token create --kind agent"),
        ("edge", options.edge, "shoal navigator edge", "shoal navigator token"),
    ):
        if file and not own:
            raise ConfigError(f"{key} needs the API server in this process; for another cluster use `{alone}`")
        if file and not Path(file).is_file():
            raise ConfigError(f"{key} is {file!r}: file not found; create one with `{made}`")
    if options.sharding and not own:
        raise ConfigError(
            "sharding needs the API server in this process; for another cluster use `shoal shard manager`"
        )


def _check_service_cidr(options: ClusterOptions) -> None:
    """Services on nodes of this machine have addresses that the machine's proxy can listen on."""
    nodes = "nodes" in options.components and (not options.credentials if options.nodes is None else options.nodes > 0)
    if options.service_cidr and nodes and options.runtime not in ("simulated", "sandbox"):
        raise ConfigError(
            f"service_cidr is {options.service_cidr!r}: nodes on this machine choose a range of their own; "
            "leave it out, or use --runtime sandbox, --runtime simulated or --nodes 0"
        )


def _check_docker(options: ClusterOptions) -> None:
    for key, value in (("docker_socket", options.docker_socket), ("pause_image", options.pause_image)):
        if value and options.runtime != "docker":
            raise ConfigError(f"{key} is {value!r}: it needs --runtime docker; add that, or leave it out")
    if options.docker_socket and not options.docker_socket.startswith(("/", "unix:///")):
        raise ConfigError(f"docker_socket is {options.docker_socket!r}: use /PATH or unix:///PATH")


def checked_config(options: ClusterOptions) -> ClusterConfig:
    """The settings that result from these flags, without access to the machine."""
    refuse_what_is_not_built(options)
    components = tuple(name for name in (part.strip() for part in options.components.split(",")) if name)
    return ClusterConfig(
        dir=options.dir,
        port=DEFAULT_PORT if options.port is None else options.port,
        host=options.host,
        http2=options.http2,
        store=StoreUrl.parse(options.store, options.dir),
        events=options.events,
        credentials=_credentials(options),
        components=components,
        extra_hosts=options.tls_san,
        nodes=options.nodes if options.nodes is not None else 0 if options.credentials else 1,
        node=options.node,
        runtime=options.runtime or "process",
        docker_socket=options.docker_socket,
        pause_image=options.pause_image,
        server=options.server,
        kubeconfig=options.kubeconfig,
        join=Path(options.join).absolute() if options.join else None,
        edge=Path(options.edge).absolute() if options.edge else None,
        sharding=options.sharding,
        lock=options.lock,
        election=options.election,
        node_lifecycle=options.node_lifecycle,
        profiles=profiles_of(options.scheduler_profiles),
        service_cidr=options.service_cidr or SERVICE_CIDR,
        dns_upstream=options.dns_upstream,
        event_ttl_s=options.event_ttl_s,
        resync_s=options.resync_s,
        health_host=options.health_host,
        health_port=options.health_port,
        anonymous=options.anonymous_auth,
        flow=options.flow,
        audit=_audit(options),
    )


def _check_node_labels(node: NodeSettings) -> None:
    if not node.labels:
        return
    from shoal.apiserver.admission.builtin.node_restriction import is_forbidden_label

    for key, _ in node.label_pairs():
        if is_forbidden_label(key):
            raise ConfigError(
                f"node.labels has {key!r}: a node may not give itself this label of Kubernetes; use another prefix, "
                "or kubectl label node"
            )


def _credentials(options: ClusterOptions) -> Path | None:
    if not options.credentials:
        return None
    folder = Path(options.credentials)
    if not (folder / "pki" / "ca.crt").is_file():
        raise ConfigError(
            f"credentials is {options.credentials!r}: it has no pki/ca.crt; use the state directory of a server "
            "that was started before, or a copy of its pki folder and tokens.json"
        )
    return folder


def _audit(options: ClusterOptions) -> AuditConfig:
    off = options.audit_log == "off"
    return AuditConfig(
        path=None if off else Path(options.audit_log) if options.audit_log else options.dir / "audit.log",
        policy=load_policy(Path(options.audit_policy)) if options.audit_policy else None,
        max_size_mb=options.audit_max_size,
        max_backups=options.audit_max_backups,
        max_age_days=options.audit_max_age,
    )


@contextmanager
def opened_config(options: ClusterOptions) -> Iterator[ClusterConfig]:
    """The settings for a start: creates and locks the directory while inside, and chooses the port."""
    config = checked_config(options)
    make_private_dir(config.dir)
    with DirectoryLock(config.lock_path):
        claimed = claimed_port(options.port, host=config.host, default=DEFAULT_PORT, remembered=config.port_path)
        with claimed as listening:
            config = replace(config, port=port_of(listening))
            if "apiserver" in config.components:
                config = replace(config, listening=listening)
            else:
                listening.close()
            yield config
