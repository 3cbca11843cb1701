"""Settings of the process runtime."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from shoal.errors import ConfigError

NAMESPACES = ("auto", "user", "off")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessConfig:
    """Settings of one node. ``root`` is the node's own folder."""

    root: Path
    log_bytes: int = 10 << 20  # of one file of a container's log, before it is rotated
    log_files: int = 5
    # auto: as root without a user namespace, else with one. off: volumes are only below $SHOAL_POD_DIR, never at their
    # paths, and pods can read all files of this user
    namespaces: str = "auto"
    # folders that no pod may see; the node's own is one of them always
    covered: tuple[Path, ...] = ()
    volumes: tuple[Path, ...] = ()  # folders inside covered ones that volumes of pods may be in
    look_s: float = 2.0  # interval of the check of all containers and of new listening sockets
    default_port: int = 8080  # $PORT of a container without declared ports
    cpu_milli: int = 0  # capacity of the node; 0: that of the machine
    memory_bytes: int = 0

    def __post_init__(self) -> None:
        if self.log_bytes < 4096 or self.log_files < 1:
            raise ConfigError("process.log_bytes must be 4096 or more and process.log_files 1 or more")
        if self.namespaces not in NAMESPACES:
            raise ConfigError(f"process.namespaces is {self.namespaces!r}: use one of {', '.join(NAMESPACES)}")
        if self.look_s <= 0:
            raise ConfigError("process.look_s must be more than 0")

    @property
    def sandboxes(self) -> Path:
        return self.root / "sandboxes"

    @property
    def containers(self) -> Path:
        return self.root / "containers"
