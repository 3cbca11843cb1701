"""The settings of a relay."""

from __future__ import annotations

from dataclasses import dataclass

from shoal.base.settings import setting
from shoal.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayConfig:
    """Times are in seconds."""

    call_s: float = setting(10.0, doc="longest time a call to the control plane may take")
    sync_s: float = setting(20.0, doc="how long an agent waits for the relay's first sync of its place")
    idle_s: float = setting(150.0, doc="a stream that follows places and receives nothing for this long is closed")
    reconnect_base_s: float = setting(0.2, doc="bound of the wait before the first reconnect; doubles, full jitter")
    reconnect_cap_s: float = setting(5.0, doc="longest wait before a reconnect")
    batch: int = setting(100, doc="objects sent to one agent in one batch")
    digest_every_s: float = setting(60.0, doc="how often an agent is sent the digest of its desired state; jittered")
    progress_every_s: float = setting(5.0, doc="shortest time between two cursors sent to an agent")
    reports: int = setting(100_000, doc="objects whose reports are kept while the control plane is unreachable")
    linger_s: float = setting(600.0, doc="how long a place is followed after its last agent has left")
    alone_s: float = setting(
        86400.0, doc="how long known agents may reconnect without the control plane; a revoked token may work this long"
    )
    read_max_bytes: int = setting(8 << 20, doc="largest message accepted from an agent")

    def __post_init__(self) -> None:
        times = ("call_s", "sync_s", "idle_s", "reconnect_base_s", "digest_every_s", "progress_every_s", "alone_s")
        for name in times:
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name} is {getattr(self, name)}: use more than 0")
        if self.reconnect_cap_s < self.reconnect_base_s:
            raise ConfigError(f"reconnect_cap_s is {self.reconnect_cap_s}: use reconnect_base_s or more")
        if self.batch < 1 or self.reports < 1:
            raise ConfigError("batch and reports must be 1 or more")
