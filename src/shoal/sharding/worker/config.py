"""Settings of a worker. What is dynamic (lease, heartbeat, targets) stands in the ShardConfig and is followed."""

from __future__ import annotations

from dataclasses import dataclass

from shoal.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConfig:
    """``config`` and ``namespace`` name the ShardConfig; ``shard`` this worker's shard and Lease."""

    config: str
    shard: str
    namespace: str = "default"
    concurrency: int = 16  # handlers at once
    batch: int = 100  # keys given to a handler of batches at once
    handler_timeout_s: float = 60.0
    drain_timeout_s: float = 20.0  # handlers of a slot that moves get so long, then they are cancelled
    memory_limit_bytes: int = 256 * 1024 * 1024  # what the reported memory is a part of
    cpus: float = 1.0  # what the reported processor time is a part of

    def __post_init__(self) -> None:
        for name, variable in (("config", "SHARD_CONFIG"), ("shard", "SHARD_ID"), ("namespace", "SHARD_NAMESPACE")):
            if not getattr(self, name):
                raise ConfigError(f"{name} is empty: give --{name}, or set {variable}")
        if self.concurrency < 1 or self.batch < 1:
            raise ConfigError("worker.concurrency and worker.batch must be 1 or more")
        if self.handler_timeout_s <= 0 or self.drain_timeout_s < 0 or self.cpus <= 0 or self.memory_limit_bytes <= 0:
            raise ConfigError("worker timeouts, cpus and memory_limit_bytes must be more than 0")
