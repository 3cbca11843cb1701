"""Settings of a worker. Those that can change while it runs (lease, heartbeat, targets) are in the ShardConfig."""

from __future__ import annotations

from dataclasses import dataclass

from shoal.base.settings import setting
from shoal.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConfig:
    """``config`` and ``namespace`` name the ShardConfig; ``shard`` this worker's shard and Lease."""

    config: str = setting(doc="name of the ShardConfig")
    shard: str = setting(doc="unique id of this shard; never reuse one")
    namespace: str = setting("default", doc="namespace of the ShardConfig")
    concurrency: int = setting(16, doc="concurrent handlers")
    batch: int = setting(100, doc="largest number of keys passed to a batch handler at once")
    handler_timeout_s: float = setting(60.0, doc="longest time a handler may take")
    drain_timeout_s: float = setting(
        20.0, doc="time the handlers of a moving slot have to finish before they are cancelled"
    )
    memory_limit_bytes: int = setting(256 * 1024 * 1024, doc="memory limit that the reported share of memory refers to")
    cpus: float = setting(1.0, doc="number of CPUs that the reported share of CPU refers to")

    def __post_init__(self) -> None:
        for name, variable in (("config", "SHARD_CONFIG"), ("shard", "SHARD_ID"), ("namespace", "SHARD_NAMESPACE")):
            if not getattr(self, name):
                raise ConfigError(f"{name} is empty: give --{name}, or set {variable}")
        if self.concurrency < 1 or self.batch < 1:
            raise ConfigError("worker.concurrency and worker.batch must be 1 or more")
        if self.handler_timeout_s <= 0 or self.drain_timeout_s < 0 or self.cpus <= 0 or self.memory_limit_bytes <= 0:
            raise ConfigError("worker timeouts, cpus and memory_limit_bytes must be more than 0")
