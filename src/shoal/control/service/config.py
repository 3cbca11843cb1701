"""The settings of the cluster service."""

from __future__ import annotations

from dataclasses import dataclass

from shoal.base.settings import setting
from shoal.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceConfig:
    """Times are in seconds. The defaults are those of a fleet of a thousand agents on one process."""

    heartbeat_s: float = setting(10.0, doc="how often an agent says that it lives")
    missed_heartbeats: int = setting(3, doc="after this many an agent is lost")
    heartbeat_flush_s: float = setting(2.0, doc="heartbeats are stored together this often")
    freeze_fraction: float = setting(0.30, doc="more agents than this part vanishing together are not believed")
    digest_every_s: float = setting(60.0, doc="how often an agent is told the digest of what is desired; jittered")
    progress_every_s: float = setting(5.0, doc="an agent that was sent something learns its cursor at most this often")
    poll_s: float = setting(1.0, doc="how long a lost wake-up can delay a change")
    guard_s: float = setting(0.4, doc="how often newer epochs and revoked tokens are looked for; must be under 1")
    hello_rate: float = setting(200.0, doc="streams admitted per second")
    hello_burst: int = setting(100, doc="streams admitted at once")
    hello_wait_s: float = setting(20.0, doc="a stream that would wait longer is told to come back")
    batch: int = setting(100, doc="objects loaded together for one stream")
    cache_bytes: int = setting(8 << 20, doc="encoded objects kept in memory")
    retry_base_s: float = setting(0.2, doc="first wait after an object could not be loaded")
    retry_cap_s: float = setting(30.0, doc="longest wait after an object could not be loaded")
    report_batch: int = setting(2000, doc="reports committed together")
    read_max_bytes: int = setting(8 << 20, doc="largest message taken from an agent")

    def __post_init__(self) -> None:
        for name in ("heartbeat_s", "digest_every_s", "poll_s", "guard_s", "hello_rate"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name} is {getattr(self, name)}: use more than 0")
        if self.guard_s >= 1:
            raise ConfigError(f"guard_s is {self.guard_s}: use less than 1, a revoked token has to end within a second")
        if self.missed_heartbeats < 2:
            raise ConfigError(f"missed_heartbeats is {self.missed_heartbeats}: use 2 or more, one is lost now and then")
        if not 0 < self.freeze_fraction <= 1:
            raise ConfigError(f"freeze_fraction is {self.freeze_fraction}: use more than 0 and at most 1")
        if self.hello_burst < 1 or self.batch < 1 or self.report_batch < 1:
            raise ConfigError("hello_burst, batch and report_batch must be 1 or more")

    @property
    def lost_after_s(self) -> float:
        """How old a stored heartbeat may be: it lies up to one flush behind the one that came."""
        return self.heartbeat_s * self.missed_heartbeats + self.heartbeat_flush_s
