"""The settings of ``shoal sentinel start``: those of the gateway and of its process."""

from __future__ import annotations

from dataclasses import dataclass

from shoal.base.settings import setting
from shoal.sentinel.config import SentinelConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class SentinelSettings(SentinelConfig):
    log_level: str = setting("info", doc="debug, info, warning, error or off")
