"""The settings of the navigator's manager."""

from __future__ import annotations

from dataclasses import dataclass

from shoal.base.settings import setting
from shoal.errors import ConfigError

_MIB = 1 << 20
_DAY_S = 86_400.0
LEAST_MESSAGE_BYTES = 64 << 10  # smaller messages would not fit common objects


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerConfig:
    """Times are in seconds."""

    grace_s: float = setting(10.0, doc="after an edge is lost, how long its cluster is reserved for it")
    retention_s: float = setting(7 * _DAY_S, doc="how long the history is kept")
    event_retention_s: float = setting(_DAY_S, doc="the same for Kubernetes events, of which there are many")
    forget_after_s: float = setting(30 * _DAY_S, doc="a cluster without an edge is removed after this time; 0: never")
    max_message_bytes: int = setting(4 * _MIB, doc="the largest message accepted from an edge")
    keep_alive_s: float = setting(15.0, doc="how often a silent edge is sent a ping")
    keep_alive_timeout_s: float = setting(20.0, doc="an edge that does not answer for this long is disconnected")
    identify_s: float = setting(10.0, doc="longest time until a new stream identifies itself")
    stale_intervals: float = setting(3.0, doc="intervals without a message after which a cluster is stale")
    heard_every_s: float = setting(30.0, doc="how often the time of each cluster's last message is stored")
    guard_s: float = setting(0.4, doc="how often created, rotated and revoked tokens are read")
    sweep_s: float = setting(60.0, doc="how often history older than the retention is deleted")
    max_requests: int = setting(256, doc="requests to one edge that may be open at a time")
    answer_bytes: int = setting(16 * _MIB, doc="parts of one answer that may wait for a slow reader")

    def __post_init__(self) -> None:
        for name in ("grace_s", "forget_after_s"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} is {getattr(self, name)}: use 0 or more seconds")
        for name in (
            "retention_s", "event_retention_s", "keep_alive_s", "keep_alive_timeout_s", "identify_s", "heard_every_s",
            "guard_s", "sweep_s",
        ):  # fmt: skip
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name} is {getattr(self, name)}: use more than 0 seconds")
        if self.guard_s > 0.9:
            raise ConfigError(f"guard_s is {self.guard_s}: use at most 0.9, so that a revoked token ends in a second")
        if self.max_message_bytes < LEAST_MESSAGE_BYTES:
            raise ConfigError(f"max_message_bytes is {self.max_message_bytes}: use {LEAST_MESSAGE_BYTES} or more")
        if self.stale_intervals < 3:
            raise ConfigError(f"stale_intervals is {self.stale_intervals}: use 3 or more, else states flap")
        if self.max_requests < 1 or self.answer_bytes < 1:
            raise ConfigError("max_requests and answer_bytes must be 1 or more")
