"""The settings of the cluster service."""

from __future__ import annotations

from dataclasses import dataclass

from shoal.base.settings import setting
from shoal.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceConfig:
    """Times are in seconds. The defaults are those of a fleet of a thousand agents on one process."""

    heartbeat_s: float = setting(10.0, doc="how often an agent sends a heartbeat")
    missed_heartbeats: int = setting(3, doc="missed heartbeats after which an agent is lost")
    heartbeat_flush_s: float = setting(2.0, doc="how often received heartbeats are stored")
    freeze_fraction: float = setting(
        0.30, doc="if more than this share of agents is lost at once, no agent is marked lost"
    )
    digest_every_s: float = setting(60.0, doc="how often an agent is sent the digest of its desired state; jittered")
    progress_every_s: float = setting(5.0, doc="shortest time between two cursors sent to an agent")
    poll_s: float = setting(1.0, doc="longest delay of a change whose notification is lost")
    guard_s: float = setting(0.4, doc="how often newer epochs and revoked tokens are checked; must be under 1")
    hello_rate: float = setting(200.0, doc="streams admitted per second")
    hello_burst: int = setting(100, doc="streams admitted at once")
    hello_wait_s: float = setting(20.0, doc="longest wait for admission; beyond it the stream is refused and retries")
    batch: int = setting(100, doc="objects loaded in one batch for one stream")
    cache_bytes: int = setting(8 << 20, doc="encoded objects kept in memory")
    retry_base_s: float = setting(0.2, doc="wait after an object failed to load for the first time")
    retry_cap_s: float = setting(30.0, doc="longest wait after an object failed to load")
    report_batch: int = setting(2000, doc="reports committed in one transaction")
    read_max_bytes: int = setting(8 << 20, doc="largest message accepted from an agent")

    def __post_init__(self) -> None:
        for name in ("heartbeat_s", "digest_every_s", "poll_s", "guard_s", "hello_rate"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name} is {getattr(self, name)}: use more than 0")
        if self.guard_s >= 1:
            raise ConfigError(
                f"guard_s is {self.guard_s}: use less than 1, so that a revoked token stops working within a second"
            )
        if self.missed_heartbeats < 2:
            raise ConfigError(
                f"missed_heartbeats is {self.missed_heartbeats}: use 2 or more, because single heartbeats get lost"
            )
        if not 0 < self.freeze_fraction <= 1:
            raise ConfigError(f"freeze_fraction is {self.freeze_fraction}: use more than 0 and at most 1")
        if self.hello_burst < 1 or self.batch < 1 or self.report_batch < 1:
            raise ConfigError("hello_burst, batch and report_batch must be 1 or more")

    @property
    def lost_after_s(self) -> float:
        """How old a stored heartbeat may be: it lies up to one flush behind the one that came."""
        return self.heartbeat_s * self.missed_heartbeats + self.heartbeat_flush_s
