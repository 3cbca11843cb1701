"""The extras of the distribution: which packages the base install leaves out, and what to install for them.

The base install has the command line and the Python libraries. Processes need extras; a command that imports a package
which is not installed ends with one line that names the extra (docs/decisions/0047-packaging.md).
"""

from __future__ import annotations

from importlib.util import find_spec

from shoal.errors import ConfigError

DISTRIBUTION = "shoal-fleet"

# Import names of each extra's own packages; pyproject.toml has their distributions, and tests/arch compares the two.
_AGENT = ("cryptography", "h2", "prometheus_client", "protobuf", "uvicorn", "uvloop", "zttp")
_CLUSTER = (*_AGENT, "asyncpg", "redis", "sortedcontainers")
_SERVER = (*_CLUSTER, "aiosqlite", "alembic", "connectrpc", "pyqwest", "sqlalchemy")
_GATEWAY = (*_AGENT, "envoy", "google.protobuf", "grpc", "redis", "xds")
EXTRAS: dict[str, tuple[str, ...]] = {
    "agent": _AGENT,
    "server": _SERVER,
    "gateway": _GATEWAY,
    "cluster": _CLUSTER,
    "vault": ("hvac", "requests"),
    "traces": ("opentelemetry",),
    "all": tuple(dict.fromkeys((*_SERVER, *_GATEWAY))),
}
_ELSEWHERE = ("uvloop",)  # not made for every system; processes run without it


class MissingExtra(ConfigError):
    """Packages that a command needs are not installed; the message has the command that installs them."""

    def __init__(self, command: str, extra: str, missing: tuple[str, ...]) -> None:
        super().__init__(
            f"`{command}` needs packages that are not installed ({', '.join(missing)}): {installing(extra)}"
        )


def installing(extra: str) -> str:
    return f"pip install '{DISTRIBUTION}[{extra}]'"


def extra_of(module: str, wanted: str) -> str:
    """The extra that brings a module: ``wanted`` if it does, else the first one; empty for modules of no extra."""
    named = (name for name in (wanted, *EXTRAS) if any(_is_in(module, each) for each in EXTRAS.get(name, ())))
    return next(named, "")


def require(command: str, extra: str) -> None:
    """Raise MissingExtra unless everything that an extra brings is installed."""
    missing = tuple(name for name in EXTRAS[extra] if name not in _ELSEWHERE and not _is_installed(name))
    if missing:
        raise MissingExtra(command, extra, missing)


def _is_in(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.") or package.startswith(f"{module}.")


def _is_installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # the package above it
        return False
