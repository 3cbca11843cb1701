"""Settings of a cluster process, checked when they are made; and the layout of its directory.

Flags, files and tests all build the same ``ClusterConfig``. An option that names a part which does not exist yet is
refused with a message that says so; it is never ignored.

    DIR/kubeconfig      CA and an admin's bearer token (0600): the only place the token is readable
    DIR/tokens.json     sha256 of each static token and whose it is (0600)
    DIR/pki/            keys and certificates (0600)
    DIR/store.db        the objects, when the store is SQLite
    DIR/port            the port chosen at the first start, used again at the next
    DIR/cluster.lock    held while a cluster runs in the directory; has its pid inside
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from shoal.app.files import DirectoryLock, make_private_dir
from shoal.app.ports import choose_port
from shoal.errors import ConfigError

DEFAULT_PORT = 6443
LOOPBACK = "127.0.0.1"
SERVICE_CIDR = "10.96.0.0/16"

COMPONENTS = ("apiserver", "scheduler", "controllers", "nodes")
AVAILABLE_COMPONENTS = ("apiserver",)
_STORE_FIX = "use sqlite:///PATH or memory://"
RUNTIMES = ("process", "docker", "simulated")


@dataclass(frozen=True, slots=True)
class StoreUrl:
    """Where the objects live: ``memory`` or ``sqlite``."""

    scheme: str
    path: Path | None = None  # of the database file, for sqlite; absolute

    @classmethod
    def parse(cls, url: str, directory: Path) -> StoreUrl:
        """``""`` is SQLite in ``directory``; ``memory://`` keeps nothing; ``sqlite:///PATH`` is that file, a relative
        path (three slashes) below ``directory``. ``memory`` and ``sqlite:PATH`` are short for these."""
        scheme, _, rest = (url or "sqlite").partition(":")
        if scheme == "memory" and rest.strip("/") == "":
            return cls("memory")
        if scheme == "sqlite":
            path = rest.removeprefix("///") if rest.startswith("//") else rest
            return cls("sqlite", directory / (path or "store.db"))
        if scheme in ("postgresql", "postgres"):
            raise not_available("store", without_password(url), _STORE_FIX)
        raise ConfigError(f"store is {without_password(url)!r}: {_STORE_FIX}")

    @property
    def url(self) -> str:
        """The long form, which the store package takes."""
        return "memory://" if self.path is None else f"sqlite:///{self.path}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConfig:
    """One Kubernetes-compatible cluster, or the subset of it that ``components`` names."""

    dir: Path
    port: int = DEFAULT_PORT
    host: str = LOOPBACK  # address the API server binds
    store: StoreUrl
    components: tuple[str, ...] = AVAILABLE_COMPONENTS
    service_cidr: str = SERVICE_CIDR
    extra_hosts: tuple[str, ...] = ()  # further names and addresses in the server's certificate

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise ConfigError(f"port is {self.port}: use 1 to 65535, or 0 for any free one")
        try:
            network = ipaddress.ip_network(self.service_cidr)
        except ValueError as error:
            raise ConfigError(
                f"service_cidr is {self.service_cidr!r}: {error}; use for example {SERVICE_CIDR}"
            ) from None
        if network.num_addresses < 8:
            raise ConfigError(f"service_cidr is {self.service_cidr!r}: too small; use at least 8 addresses")
        _check_components(self.components)

    @property
    def url(self) -> str:
        """What clients on this machine connect to."""
        host = LOOPBACK if self.host in ("0.0.0.0", "::", "") else self.host
        return f"https://[{host}]:{self.port}" if ":" in host else f"https://{host}:{self.port}"

    @property
    def service_ip(self) -> str:
        """The address of the ``kubernetes`` Service: the first of the range."""
        return str(ipaddress.ip_network(self.service_cidr)[1])

    @property
    def certificate_hosts(self) -> tuple[str, ...]:
        """Every name and address under which clients may reach the API server."""
        service = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local")
        bound = () if self.host in ("0.0.0.0", "::", "") else (self.host,)
        hosts = (*service, "localhost", LOOPBACK, "::1", self.service_ip, *bound, *self.extra_hosts)
        return tuple(dict.fromkeys(hosts))

    @property
    def pki_dir(self) -> Path:
        return self.dir / "pki"

    @property
    def kubeconfig_path(self) -> Path:
        return self.dir / "kubeconfig"

    @property
    def tokens_path(self) -> Path:
        return self.dir / "tokens.json"

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
    """The error for an option whose part is designed but not built."""
    return ConfigError(f"{key} is {value!r}: not available yet; {fix}")


def without_password(url: str) -> str:
    """The URL as it may be shown: a password in it becomes ``***``."""
    head, at, tail = url.rpartition("@")
    if not at:
        return url
    scheme, slashes, credentials = head.rpartition("//")
    user, colon, _ = credentials.partition(":")
    return f"{scheme}{slashes}{user}{colon and ':***'}@{tail}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOptions:
    """The flags of ``shoal cluster start``, before anything is decided from them."""

    dir: Path
    port: int | None = None  # None: the one of last time, else the default, else the next free one
    host: str = LOOPBACK
    store: str = ""
    nodes: int = 0
    runtime: str = ""
    events: str = ""
    components: str = ",".join(AVAILABLE_COMPONENTS)
    server: str = ""
    kubeconfig: str = ""
    extra_hosts: tuple[str, ...] = ()


def refuse_what_is_not_built(options: ClusterOptions) -> None:
    """Raise ConfigError for flags whose part does not exist yet."""
    if options.nodes < 0:
        raise ConfigError(f"nodes is {options.nodes}: use 0 or more")
    if options.nodes:
        raise not_available("nodes", options.nodes, "use --nodes 0")
    if options.runtime:
        if options.runtime not in RUNTIMES:
            raise ConfigError(f"runtime is {options.runtime!r}: choose from {', '.join(RUNTIMES)}")
        raise not_available("runtime", options.runtime, "leave --runtime out: there are no nodes to run pods")
    if options.events:
        raise not_available("events", without_password(options.events), "leave --events out")
    if options.server:
        raise not_available("server", options.server, "leave --server out: the cluster runs its own API server")
    if options.kubeconfig:
        raise not_available("kubeconfig", options.kubeconfig, "leave --kubeconfig out: DIR/kubeconfig is written")


def checked_config(options: ClusterOptions) -> ClusterConfig:
    """The settings that these flags mean, as far as they can be known without touching the machine."""
    refuse_what_is_not_built(options)
    components = tuple(name for name in (part.strip() for part in options.components.split(",")) if name)
    return ClusterConfig(
        dir=options.dir,
        port=DEFAULT_PORT if options.port is None else options.port,
        host=options.host,
        store=StoreUrl.parse(options.store, options.dir),
        components=components,
        extra_hosts=options.extra_hosts,
    )


@contextmanager
def opened_config(options: ClusterOptions) -> Iterator[ClusterConfig]:
    """The settings for a start: the directory is made and ours alone while inside, and the port is decided."""
    config = checked_config(options)
    make_private_dir(config.dir)
    with DirectoryLock(config.lock_path):
        port = choose_port(options.port, host=config.host, default=DEFAULT_PORT, remembered=config.port_path)
        yield replace(config, port=port)
