"""The flags of ``shoal up``, and where each process has its directory."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from shoal.base.files import write_private
from shoal.errors import ConfigError

REGIONS = ("eu", "us")
_REMEMBERED = "regions"  # in the directory
_REGION = re.compile(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?")


@dataclass(frozen=True, slots=True, kw_only=True)
class UpOptions:
    """The flags of ``shoal up``."""

    dir: Path
    regions: tuple[str, ...] = REGIONS
    port: int | None = None  # of the control plane
    empty: bool = False

    def __post_init__(self) -> None:
        if not self.regions:
            raise ConfigError(f"regions is empty: use for example {','.join(REGIONS)}")
        for name in self.regions:
            if not _REGION.fullmatch(name):
                raise ConfigError(f"regions has {name!r}: use up to 32 small letters, digits and dashes")
        if len(set(self.regions)) != len(self.regions):
            raise ConfigError(f"regions is {','.join(self.regions)!r}: name each region once")

    @property
    def control_dir(self) -> Path:
        return self.dir / "control"

    @property
    def navigator_dir(self) -> Path:
        return self.dir / "navigator"

    def cluster_dir(self, region: str) -> Path:
        return self.dir / "clusters" / cluster_of(region)


def cluster_of(region: str) -> str:
    """The name of a region's only cluster."""
    return f"{region}-1"


def parse_regions(text: str) -> tuple[str, ...]:
    return tuple(name for name in (part.strip() for part in text.split(",")) if name)


def remembered_regions(folder: Path) -> tuple[str, ...]:
    """Those of the last start in a directory; at the first one the default."""
    try:
        return parse_regions((folder / _REMEMBERED).read_text()) or REGIONS
    except FileNotFoundError:
        return REGIONS


def remember_regions(options: UpOptions) -> None:
    write_private(options.dir / _REMEMBERED, f"{','.join(options.regions)}\n".encode())
