"""Settings of a control plane's process, checked when they are made, and the layout of its directory.

DIR/fleet.db        the fleet's tables, when the database is SQLite
DIR/pki/            its CA and certificate (0600); agents and the command line trust the CA
DIR/admin.token     the first token, of an administrator (0600)
DIR/master.key      seals the secrets, when no other master key is configured (0600)
DIR/join-urls.json  the URLs in join files: its own, and those of other control planes of the fleet
DIR/navigator/      how rollouts' query checks reach the navigator: url, ca.crt, tokens/WORKSPACE
DIR/url             its public URL, for contexts
DIR/address         its URL on this machine, for the navigator beside it
DIR/grant.key       signs what users of the page ask the navigator, which reads it (0600)
DIR/page-port       the port of the page without TLS, used again at the next start
DIR/port            the port chosen at the first start, used again at the next
DIR/control.lock    held while a control plane runs in the directory
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from shoal.app.config import LOOPBACK, local_hosts, local_url, without_password
from shoal.app.files import DirectoryLock, make_private_dir
from shoal.app.fleet.credentials import keep_join_urls, take_over
from shoal.app.home import GRANT_KEY, NAVIGATOR
from shoal.app.ports import claimed_port, port_of
from shoal.app.public_address import check_url, hosts_of
from shoal.base.settings import setting
from shoal.control.relay.config import RelayConfig
from shoal.control.service.config import ServiceConfig
from shoal.errors import ConfigError

DEFAULT_PORT = 7400
DEFAULT_PAGE_PORT = 7480
_DATABASE_FIX = "use sqlite:///PATH or postgresql://USER@HOST/DATABASE, with NAME= before it where there are several"


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlOptions:
    """The settings of ``shoal control start`` as they are given, by file, environment and flags, before anything is
    decided from them."""

    dir: Path = setting(doc="state directory")
    port: int | None = setting(
        None, doc="port of the REST API and of agents; default: the last one used, else 7400 or the next free port"
    )
    host: str = setting(LOOPBACK, doc="address to listen on")
    page_port: int | None = setting(
        None,
        doc="port of 127.0.0.1 on which the page is also served without TLS, to browsers of this machine; 0: the last "
        "one used, else 7480 or the next free port; default: none",
    )
    database: tuple[str, ...] = setting((), doc="sqlite:///PATH or postgresql://USER@HOST/DATABASE; several: NAME=URL")
    workspace: tuple[str, ...] = setting((), doc="WORKSPACE=DATABASE, for a workspace not in the first database")
    events: str = setting("", doc="redis://HOST:PORT that carries wake-ups between control planes")
    master_key: str = setting("", doc="file:PATH, env:NAME or vault:URL; default: a file in the state directory")
    credentials: Path | None = setting(
        None, doc="state directory or credentials file of another control plane of this fleet"
    )
    advertise_url: tuple[str, ...] = setting(
        (),
        doc="URLs at which clusters and users reach it, the preferred one first: in its certificate, in join files and "
        "contexts; default: its address on this machine",
    )
    join_url: tuple[str, ...] = setting(
        (),
        doc="URLs in the join files of agents, the preferred one first; default: advertise_url, then those in "
        "credentials",
    )
    navigator: Path | None = setting(
        None,
        doc="folder with url, ca.crt and tokens/WORKSPACE: the navigator that query checks of rollouts ask; default "
        "`navigator` in the state directory",
    )
    tls_san: tuple[str, ...] = setting((), doc="additional DNS names and IP addresses in the certificate")
    relay: str = setting("", doc="URL of the control plane; runs this process as the relay of a region")
    token_file: Path | None = setting(None, doc="relay only: file with its token, or its join file")
    ca: Path | None = setting(
        None, doc="relay only: CA of the control plane's certificate, PEM; default: the one in the join file"
    )
    log_level: str = setting("info", doc="debug, info, warning, error or off")
    service: ServiceConfig = setting(ServiceConfig(), doc="settings of the service for agents")
    relaying: RelayConfig = setting(RelayConfig(), doc="settings of a relay")


# Settings that SIGHUP changes: those of agents, except values that are sent or allocated once.
DYNAMIC = frozenset(
    f"service.{name}"
    for name in (
        "missed_heartbeats", "freeze_fraction", "digest_every_s", "progress_every_s", "hello_rate", "hello_burst",
        "hello_wait_s", "batch", "retry_base_s", "retry_cap_s", "report_batch",
    )
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlConfig:
    dir: Path
    port: int
    host: str
    databases: Mapping[str, str]  # URL by name, the fleet's own first
    workspaces: Mapping[str, str]
    events: str
    master_key: str
    extra_hosts: tuple[str, ...]
    join_urls: tuple[str, ...]  # empty before the port is known, unless they are given
    advertise_urls: tuple[str, ...]
    service: ServiceConfig
    navigator: Path
    listening: socket.socket | None = None  # at the port; None: not yet
    page: socket.socket | None = None  # for the page without TLS; None: there is no such port

    @property
    def url(self) -> str:
        """URL of the control plane for clients on this machine."""
        return local_url(self.host, self.port)

    @property
    def pki_dir(self) -> Path:
        return self.dir / "pki"

    @property
    def admin_token_path(self) -> Path:
        return self.dir / "admin.token"

    @property
    def grant_key_path(self) -> Path:
        return self.dir / GRANT_KEY

    @property
    def navigator_beside(self) -> Path:
        """The directory of a navigator that was started in the same home."""
        return self.dir.parent / NAVIGATOR

    @property
    def page_port(self) -> int:
        return port_of(self.page) if self.page is not None else 0

    @property
    def page_url(self) -> str:
        """URL of the page without TLS; empty where there is none."""
        return f"http://{LOOPBACK}:{self.page_port}" if self.page is not None else ""

    @property
    def certificate_hosts(self) -> tuple[str, ...]:
        return local_hosts(self.host, (*self.extra_hosts, *hosts_of(self.advertise_urls)))

    @property
    def public_url(self) -> str:
        """URL of the control plane for everybody."""
        return self.advertise_urls[0] if self.advertise_urls else self.url


@dataclass(frozen=True, slots=True, kw_only=True)
class RelaySettings:
    """A relay, once everything is decided."""

    dir: Path
    port: int
    host: str
    extra_hosts: tuple[str, ...]
    url: str  # of the control plane
    token_file: Path
    ca: Path | None
    relay: RelayConfig
    listening: socket.socket | None = None  # at the port; None: not yet

    @property
    def own_url(self) -> str:
        """URL of the relay for agents on this machine."""
        return local_url(self.host, self.port)

    @property
    def certificate_hosts(self) -> tuple[str, ...]:
        return local_hosts(self.host, self.extra_hosts)


def checked_config(options: ControlOptions) -> ControlConfig:
    """The settings that these flags mean, as far as they can be known without touching the machine."""
    _check_port(options.port)
    _check_port(options.page_port, "page_port")
    for url in options.advertise_url:
        check_url(url)
    for url in options.join_url:
        if not url.startswith("https://"):
            raise ConfigError(f"join_url is {url!r}: use https://HOST:PORT")
    databases = dict(
        database_of(text, options.dir) for text in options.database or (f"sqlite:///{options.dir}/fleet.db",)
    )
    if len(databases) != max(1, len(options.database)):
        raise ConfigError("two databases have the same name: give each its own with NAME=URL")
    workspaces = dict(_pair(text) for text in options.workspace)
    for workspace, database in workspaces.items():
        if database not in databases:
            raise ConfigError(
                f"workspace {workspace!r} is in database {database!r}: choose from {', '.join(databases)}"
            )
    return ControlConfig(
        dir=options.dir,
        port=DEFAULT_PORT if options.port is None else options.port,
        host=options.host,
        databases=databases,
        workspaces=workspaces,
        events=options.events,
        master_key=options.master_key,
        extra_hosts=options.tls_san,
        join_urls=tuple(dict.fromkeys(options.join_url or options.advertise_url)),
        advertise_urls=tuple(url.rstrip("/") for url in dict.fromkeys(options.advertise_url)),
        service=options.service,
        navigator=(options.navigator or options.dir / NAVIGATOR).expanduser(),
    )


@contextmanager
def opened_config(options: ControlOptions) -> Iterator[ControlConfig]:
    """The settings for a start: creates and locks the directory while inside, and chooses the port."""
    config = checked_config(options)
    make_private_dir(config.dir)
    with DirectoryLock(config.dir / "control.lock"):
        if options.credentials is not None:
            take_over(options.credentials.expanduser(), config.dir)
        claimed = claimed_port(options.port, host=config.host, default=DEFAULT_PORT, remembered=config.dir / "port")
        with claimed as listening, _claimed_page(options, config.dir) as page:
            config = replace(config, port=port_of(listening), listening=listening, page=page)
            yield replace(config, join_urls=keep_join_urls(config.dir, config.join_urls or (config.url,)))


@contextmanager
def opened_relay(options: ControlOptions) -> Iterator[RelaySettings]:
    """The settings for a relay's start, as above."""
    _check_port(options.port)
    for url in options.advertise_url:
        check_url(url)
    for name in ("database", "workspace", "events", "master_key", "credentials", "join_url"):
        if getattr(options, name):
            raise ConfigError(f"{name} is set: a relay does not use it; leave it out, or leave --relay out")
    if not options.relay.startswith(("https://", "http://")):
        raise ConfigError(f"relay is {options.relay!r}: use the URL of the control plane, https://HOST:PORT")
    if options.token_file is None:
        raise ConfigError(
            "token_file is not set: create a token with `shoal token create --kind relay --region R --to FILE`"
        )
    make_private_dir(options.dir)
    with DirectoryLock(options.dir / "control.lock"):
        claimed = claimed_port(options.port, host=options.host, default=DEFAULT_PORT, remembered=options.dir / "port")
        with claimed as listening:
            yield RelaySettings(
                dir=options.dir, port=port_of(listening), host=options.host,
                extra_hosts=(*options.tls_san, *hosts_of(options.advertise_url)), url=options.relay,
                token_file=options.token_file.expanduser(), ca=options.ca, relay=options.relaying,
                listening=listening,
            )  # fmt: skip


def _claimed_page(options: ControlOptions, folder: Path) -> AbstractContextManager[socket.socket | None]:
    if options.page_port is None:
        return nullcontext()
    asked = options.page_port or None
    return claimed_port(asked, host=LOOPBACK, default=DEFAULT_PAGE_PORT, remembered=folder / "page-port")


def _check_port(port: int | None, name: str = "port") -> None:
    if port is not None and not 0 <= port <= 65535:
        raise ConfigError(f"{name} is {port}: use 1 to 65535, or 0 for any free port")


def database_of(text: str, folder: Path) -> tuple[str, str]:
    head, equals, tail = text.partition("=")
    name, url = (head, tail) if equals and "/" not in head and ":" not in head else ("main", text)
    scheme, _, rest = url.partition(":")
    if scheme == "sqlite" and rest.startswith("///") and rest != "///":
        return name, f"sqlite:///{folder / rest.removeprefix('///')}"
    if scheme in ("postgresql", "postgres") and rest.startswith("//"):
        return name, url
    raise ConfigError(f"database is {without_password(url)!r}: {_DATABASE_FIX}")


def _pair(text: str) -> tuple[str, str]:
    workspace, equals, database = text.partition("=")
    if not workspace or not equals or not database:
        raise ConfigError(f"workspace is {text!r}: use WORKSPACE=DATABASE")
    return workspace, database
