"""Settings of a navigator manager's process, checked when they are made, and the layout of its directory.

DIR/navigator.db    its tables, when the database is SQLite
DIR/pki/            its CA and certificate (0600); edges and the command line trust the CA
DIR/admin.token     the first token, which may read everything and save checks (0600)
DIR/checks.json     the saved checks
DIR/url             its public URL, for contexts and join files
DIR/port            the port chosen at the first start, used again at the next
DIR/manager.lock    held while a manager runs in the directory
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from shoal.app.config import LOOPBACK, local_hosts, local_url, without_password
from shoal.app.files import DirectoryLock, make_private_dir
from shoal.app.home import GRANT_KEY
from shoal.app.ports import claimed_port, port_of
from shoal.app.public_address import check_url, hosts_of
from shoal.base.files import make_private_dirs
from shoal.base.settings import setting
from shoal.errors import ConfigError
from shoal.navigator.manager.config import ManagerConfig

DEFAULT_PORT = 7410
_DATABASE_FIX = "use sqlite:///PATH or postgresql://USER@HOST/DATABASE"


@dataclass(frozen=True, slots=True, kw_only=True)
class NavigatorOptions(ManagerConfig):
    """The settings of ``shoal navigator manager`` as they are given, before anything is decided from them."""

    dir: Path = setting(doc="state directory; default `navigator` in $SHOAL_HOME")
    port: int | None = setting(
        None, doc="port of edges and the REST API; default: the last one used, else 7410 or the next free port"
    )
    host: str = setting(LOOPBACK, doc="address to listen on")
    database: str = setting("", doc="sqlite:///PATH or postgresql://USER@HOST/DATABASE; default SQLite in dir")
    tls_san: tuple[str, ...] = setting((), doc="additional DNS names and IP addresses in the certificate")
    control_dir: Path | None = setting(
        None, doc="state directory of the control plane, to show which app a pod belongs to"
    )
    grant_key: Path | None = setting(
        None,
        doc="file with the key of the control plane's grants, for users of its page; default grant.key in control_dir",
    )
    advertise_url: tuple[str, ...] = setting(
        (),
        doc="URLs at which edges and users reach it, the preferred one first: in its certificate, in join files and "
        "contexts; default: its address on this machine",
    )
    log_level: str = setting("info", doc="debug, info, warning, error or off")


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerProcessConfig:
    dir: Path
    port: int
    host: str
    database: str
    extra_hosts: tuple[str, ...]
    advertise_urls: tuple[str, ...]
    control: Path | None
    grant_key: Path | None  # file
    settings: ManagerConfig
    listening: socket.socket | None = None  # at the port; None: not yet

    @property
    def url(self) -> str:
        """URL of the manager for clients on this machine."""
        return local_url(self.host, self.port)

    @property
    def pki_dir(self) -> Path:
        return self.dir / "pki"

    @property
    def admin_token_path(self) -> Path:
        return self.dir / "admin.token"

    @property
    def certificate_hosts(self) -> tuple[str, ...]:
        return local_hosts(self.host, (*self.extra_hosts, *hosts_of(self.advertise_urls)))

    @property
    def public_url(self) -> str:
        """URL of the manager for everybody."""
        return self.advertise_urls[0] if self.advertise_urls else self.url


def checked_config(options: NavigatorOptions) -> ManagerProcessConfig:
    """The settings that these flags mean, as far as they can be known without touching the machine."""
    if options.port is not None and not 0 <= options.port <= 65535:
        raise ConfigError(f"port is {options.port}: use 1 to 65535, or 0 for any free port")
    for url in options.advertise_url:
        check_url(url)
    control = options.control_dir.absolute() if options.control_dir is not None else None
    return ManagerProcessConfig(
        dir=options.dir,
        port=DEFAULT_PORT if options.port is None else options.port,
        host=options.host,
        database=database_url(options.database, options.dir),
        extra_hosts=options.tls_san,
        advertise_urls=tuple(url.rstrip("/") for url in dict.fromkeys(options.advertise_url)),
        control=control,
        grant_key=options.grant_key or (control / GRANT_KEY if control is not None else None),
        settings=options,
    )


@contextmanager
def opened_config(options: NavigatorOptions) -> Iterator[ManagerProcessConfig]:
    """The settings for a start: directory and database are ours alone while inside, and the port is decided."""
    config = checked_config(options)
    make_private_dir(config.dir)
    with DirectoryLock(config.dir / "manager.lock"), _database_lock(config):
        claimed = claimed_port(options.port, host=config.host, default=DEFAULT_PORT, remembered=config.dir / "port")
        with claimed as listening:
            yield replace(config, port=port_of(listening), listening=listening)


def database_url(text: str, folder: Path) -> str:
    """The URL of the manager's database; empty means SQLite in its directory."""
    if not text:
        return f"sqlite:///{folder / 'navigator.db'}"
    scheme, _, rest = text.partition(":")
    if scheme == "sqlite" and rest.startswith("///") and rest != "///":
        return f"sqlite:///{folder / rest.removeprefix('///')}"
    if scheme in ("postgresql", "postgres") and rest.startswith("//"):
        return text
    raise ConfigError(f"database is {without_password(text)!r}: {_DATABASE_FIX}")


def _database_lock(config: ManagerProcessConfig) -> DirectoryLock | nullcontext[None]:
    """Lock a SQLite file outside ``dir``, since two directories may name it. PostgreSQL has its own lock."""
    path = Path(config.database.removeprefix("sqlite:///"))
    if not config.database.startswith("sqlite:") or path.parent == config.dir:
        return nullcontext()
    make_private_dirs(path.parent)  # may be a directory that others use too; the file is private
    return DirectoryLock(Path(f"{path}.navigator.lock"))
