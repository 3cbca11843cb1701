"""Settings of a worker. Those that can change while it runs (lease, heartbeat, targets) are in the ShardConfig; limits
of handlers are in either, and a worker's own come first."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from shoal.base.settings import setting
from shoal.crds.shard import ConfigSpec, WorkerLimits, seconds
from shoal.errors import ConfigError

_ELSE = "empty: as the ShardConfig says, else"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConfig:
    """``config`` and ``namespace`` name the ShardConfig; ``shard`` this worker's shard and Lease."""

    config: str = setting(doc="name of the ShardConfig")
    shard: str = setting(doc="unique id of this shard; never reuse one")
    namespace: str = setting("default", doc="namespace of the ShardConfig")
    concurrency: int | None = setting(None, doc=f"concurrent handlers; {_ELSE} 16")
    batch: int | None = setting(None, doc=f"largest number of objects passed to a batch handler at once; {_ELSE} 100")
    handler_timeout_s: float | None = setting(None, doc=f"longest time a handler may take; {_ELSE} 60")
    drain_timeout_s: float | None = setting(
        None, doc=f"time the handlers of a moving slot have to finish before they are cancelled; {_ELSE} 20"
    )
    memory_limit_bytes: int = setting(256 * 1024 * 1024, doc="memory limit that the reported share of memory refers to")
    cpus: float = setting(1.0, doc="number of CPUs that the reported share of CPU refers to")

    def __post_init__(self) -> None:
        for name, variable in (("config", "SHARD_CONFIG"), ("shard", "SHARD_ID"), ("namespace", "SHARD_NAMESPACE")):
            if not getattr(self, name):
                raise ConfigError(f"{name} is empty: give --{name}, or set {variable}")
        for name, least in (("concurrency", 1), ("batch", 1), ("drain_timeout_s", 0)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ConfigError(f"{name} is {value}: use {least} or more")
        for name in ("handler_timeout_s", "cpus", "memory_limit_bytes"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ConfigError(f"{name} is {value}: use more than 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlingLimits:
    """The limits of handlers in force."""

    concurrency: int = 16
    batch: int = 100
    handler_timeout_s: float = 60.0
    drain_timeout_s: float = 20.0


def limits_of(config: WorkerConfig, spec: ConfigSpec | None) -> HandlingLimits:
    """Each limit from the worker's settings, else from the ShardConfig, else its default."""
    limits = spec.worker if spec is not None else WorkerLimits()
    found: dict[str, Any] = {
        "concurrency": config.concurrency or limits.concurrency or None,
        "batch": config.batch or limits.batch or None,
        "handler_timeout_s": config.handler_timeout_s or seconds(limits.handler_timeout) or None,
        "drain_timeout_s": config.drain_timeout_s,
    }
    if config.drain_timeout_s is None and limits.drain_timeout:
        found["drain_timeout_s"] = seconds(limits.drain_timeout)
    return replace(HandlingLimits(), **{name: value for name, value in found.items() if value is not None})
