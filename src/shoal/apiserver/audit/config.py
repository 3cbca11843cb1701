"""Settings of the audit log, checked when they are made."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from shoal.apiserver.audit.policy import AuditPolicy
from shoal.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditConfig:
    """Where the log goes and how large it may become; ``path`` None turns it off, no policy is the default one."""

    path: Path | None = None
    policy: AuditPolicy | None = None
    max_size_mb: int = 100
    max_backups: int = 10  # 0: no limit
    max_age_days: int = 0  # 0: no limit

    def __post_init__(self) -> None:
        if self.max_size_mb < 1:
            raise ConfigError(f"audit_max_size is {self.max_size_mb}: use 1 or more megabytes")
        for name, value in (("audit_max_backups", self.max_backups), ("audit_max_age", self.max_age_days)):
            if value < 0:
                raise ConfigError(f"{name} is {value}: use 0 or more; 0 means no limit")
