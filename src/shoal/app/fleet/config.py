"""Settings of a control plane's process, checked when they are made, and the layout of its directory.

DIR/fleet.db        the fleet's tables, when the database is SQLite
DIR/pki/            its CA and certificate (0600); agents and the command line trust the CA
DIR/admin.token     the first token, of an administrator (0600)
DIR/master.key      seals the secrets, when no other master key is configured (0600)
DIR/port            the port chosen at the first start, used again at the next
DIR/control.lock    held while a control plane runs in the directory
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from shoal.app.config import LOOPBACK, without_password
from shoal.app.files import DirectoryLock, make_private_dir
from shoal.app.ports import choose_port
from shoal.control.service.config import ServiceConfig
from shoal.errors import ConfigError

DEFAULT_PORT = 7400
_DATABASE_FIX = "use sqlite:///PATH or postgresql://USER@HOST/DATABASE, with NAME= before it where there are several"


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlOptions:
    """The flags of ``shoal control start``, before anything is decided from them."""

    dir: Path
    port: int | None = None
    host: str = LOOPBACK
    databases: tuple[str, ...] = ()
    workspaces: tuple[str, ...] = ()  # WORKSPACE=DATABASE
    events: str = ""
    master_key: str = ""
    extra_hosts: tuple[str, ...] = ()
    service: ServiceConfig = field(default_factory=ServiceConfig)


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
    service: ServiceConfig

    @property
    def url(self) -> str:
        """What clients on this machine connect to."""
        host = LOOPBACK if self.host in ("0.0.0.0", "::", "") else self.host
        return f"https://[{host}]:{self.port}" if ":" in host else f"https://{host}:{self.port}"

    @property
    def pki_dir(self) -> Path:
        return self.dir / "pki"

    @property
    def admin_token_path(self) -> Path:
        return self.dir / "admin.token"

    @property
    def certificate_hosts(self) -> tuple[str, ...]:
        bound = () if self.host in ("0.0.0.0", "::", "") else (self.host,)
        return tuple(dict.fromkeys(("localhost", LOOPBACK, "::1", *bound, *self.extra_hosts)))


def checked_config(options: ControlOptions) -> ControlConfig:
    """The settings that these flags mean, as far as they can be known without touching the machine."""
    if options.port is not None and not 0 <= options.port <= 65535:
        raise ConfigError(f"port is {options.port}: use 1 to 65535, or 0 for any free one")
    databases = dict(
        _database(text, options.dir) for text in options.databases or (f"sqlite:///{options.dir}/fleet.db",)
    )
    if len(databases) != max(1, len(options.databases)):
        raise ConfigError("database is given twice under one name: name each with NAME=URL")
    workspaces = dict(_pair(text) for text in options.workspaces)
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
        extra_hosts=options.extra_hosts,
        service=options.service,
    )


@contextmanager
def opened_config(options: ControlOptions) -> Iterator[ControlConfig]:
    """The settings for a start: the directory is made and ours alone while inside, and the port is decided."""
    config = checked_config(options)
    make_private_dir(config.dir)
    with DirectoryLock(config.dir / "control.lock"):
        port = choose_port(options.port, host=config.host, default=DEFAULT_PORT, remembered=config.dir / "port")
        yield replace(config, port=port)


def _database(text: str, folder: Path) -> tuple[str, str]:
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
