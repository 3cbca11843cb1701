"""Settings of every process: defaults, a file, ``SHOAL_*`` variables and flags; later sources win.

Each process has an entry here with the dataclass of its settings and the prefix of its variables. Its command passes
the flags to ``read_settings``. ``shoal config check|show|schema`` use the same entries, so they match a start.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from shoal.base.settings import load
from shoal.errors import ConfigError

_LOG_LEVEL = {"log_level": "SHOAL_LOG_LEVEL"}
_SHARD = {"config": "SHARD_CONFIG", "shard": "SHARD_ID", "namespace": "SHARD_NAMESPACE"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessKind:
    """One kind of process. ``target`` is the dataclass, loaded only where it is used."""

    name: str  # as `shoal config` takes it
    command: str
    target: str
    prefix: str
    variables: Mapping[str, str] = field(default_factory=dict)  # further ones, by setting
    folder: str | None = None  # below the home, where its state is by default; None: it has no directory
    file_option: str = "config"  # a worker's --config is a ShardConfig, so its file is --settings

    @property
    def settings(self) -> type[Any]:
        module, _, attribute = self.target.partition(":")
        found: type[Any] = getattr(import_module(module), attribute)
        return found

    @property
    def file_variable(self) -> str:
        """Names the settings file where no option does."""
        return f"{self.prefix}{self.file_option.upper()}"

    def defaults(self, home: Path) -> dict[str, Any]:
        return {} if self.folder is None else {"dir": home / self.folder}

    def file(self, option: Path | None, environ: Mapping[str, str]) -> Path | None:
        """The settings file: the option's, else the variable's."""
        named = environ.get(self.file_variable, "")
        return option.expanduser() if option is not None else Path(named).expanduser() if named else None


CLUSTER = ProcessKind(
    name="cluster",
    command="shoal cluster start",
    target="shoal.app.config:ClusterOptions",
    prefix="SHOAL_CLUSTER_",
    variables={"store": "SHOAL_STORE", "events": "SHOAL_EVENTS", **_LOG_LEVEL},
    folder="",
)
CONTROL = ProcessKind(
    name="control",
    command="shoal control start",
    target="shoal.app.fleet.config:ControlOptions",
    prefix="SHOAL_CONTROL_",
    variables={"database": "SHOAL_DATABASE", "events": "SHOAL_EVENTS", **_LOG_LEVEL},
    folder="control",
)
KRANE = ProcessKind(
    name="krane",
    command="shoal krane start",
    target="shoal.app.fleet.agent:KraneSettings",
    prefix="SHOAL_KRANE_",
    variables=_LOG_LEVEL,
    folder="krane",
)
SENTINEL = ProcessKind(
    name="sentinel",
    command="shoal sentinel start",
    target="shoal.app.fleet.gateway:SentinelSettings",
    prefix="SHOAL_SENTINEL_",
    variables={"host": "POD_IP", "pod": "POD_NAME", **_LOG_LEVEL},
)
NAVIGATOR = ProcessKind(
    name="navigator",
    command="shoal navigator manager",
    target="shoal.app.navigator.config:NavigatorOptions",
    prefix="SHOAL_NAVIGATOR_",
    variables=_LOG_LEVEL,
    folder="navigator",
)
EDGE = ProcessKind(
    name="edge",
    command="shoal navigator edge",
    target="shoal.app.navigator.edge:EdgeSettings",
    prefix="SHOAL_EDGE_",
    variables=_LOG_LEVEL,
)
SHARD_MANAGER = ProcessKind(
    name="shard-manager",
    command="shoal shard manager",
    target="shoal.app.sharding.manager:ShardManagerSettings",
    prefix="SHOAL_SHARD_MANAGER_",
    variables=_LOG_LEVEL,
)
SHARD_WORKER = ProcessKind(
    name="shard-worker",
    command="shoal shard worker",
    target="shoal.app.sharding.worker:ShardWorkerSettings",
    prefix="SHOAL_SHARD_WORKER_",
    variables={
        **_SHARD, "cpus": "SHARD_CPUS", "memory_limit_bytes": "SHARD_MEMORY_BYTES", "host": "POD_IP", **_LOG_LEVEL
    },
    file_option="settings",
)  # fmt: skip
SHARD_PROXY = ProcessKind(
    name="shard-proxy",
    command="shoal shard proxy",
    target="shoal.app.sharding.proxy:ShardProxySettings",
    prefix="SHOAL_SHARD_PROXY_",
    variables={**_SHARD, **_LOG_LEVEL},
    file_option="settings",
)
PROCESSES = {
    each.name: each
    for each in (CLUSTER, CONTROL, KRANE, SENTINEL, NAVIGATOR, EDGE, SHARD_MANAGER, SHARD_WORKER, SHARD_PROXY)
}


def process_named(name: str) -> ProcessKind:
    if name not in PROCESSES:
        raise ConfigError(f"process {name!r} not found (existing: {', '.join(PROCESSES)})")
    return PROCESSES[name]


def read_settings(
    kind: ProcessKind,
    flags: Mapping[str, Any],
    *,
    file: Path | None = None,
    home: Path | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Any:
    """The settings of a start; ``flags`` that are None were not given. A state directory is made absolute."""
    found = load(
        kind.settings,
        file=kind.file(file, environ),
        environ=environ,
        prefix=kind.prefix,
        variables=kind.variables,
        flags=flags,
        defaults=kind.defaults(home) if home is not None else {},
    )
    return found if kind.folder is None else replace(found, dir=found.dir.absolute())
