"""Settings of the sandbox runtime, beside those of the process runtime."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from shoal.errors import ConfigError

IDS = ("auto", "one")
GROUPS = ("auto", "off")
OVERLAY = ("auto", "off")


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxConfig:
    """Settings of one cluster's sandboxes."""

    helper: Path  # folder of the helper, one per cluster
    ids: str = "auto"  # one: do not look for more than one user and group, as on a machine without newuidmap
    groups: str = "auto"  # off: limits are not set by control groups but watched, as on a machine without them
    overlay: str = (
        "auto"  # off: the layers of an image are copied for each container, as where the kernel has no overlay
    )
    processes: int = 4096  # of one container; 0: no limit

    def __post_init__(self) -> None:
        if self.ids not in IDS:
            raise ConfigError(f"sandbox.ids is {self.ids!r}: use one of {', '.join(IDS)}")
        if self.groups not in GROUPS:
            raise ConfigError(f"sandbox.groups is {self.groups!r}: use one of {', '.join(GROUPS)}")
        if self.overlay not in OVERLAY:
            raise ConfigError(f"sandbox.overlay is {self.overlay!r}: use one of {', '.join(OVERLAY)}")
        if self.processes < 0:
            raise ConfigError("sandbox.processes must be 0 or more")
