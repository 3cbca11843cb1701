"""Bounds of one layer; apart from other settings because the process that unpacks loads little."""

from __future__ import annotations

from dataclasses import dataclass

from shoal.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerLimits:
    """What one layer may be at most: an archive is written by someone else."""

    bytes: int = 16 << 30  # unpacked
    entries: int = 1_000_000
    ratio: int = 250  # unpacked to packed, once it is larger than ``ratio_from_bytes``
    ratio_from_bytes: int = 64 << 20
    header_bytes: int = 1 << 20  # of one extended header; all of a layer may have 64 times that

    def __post_init__(self) -> None:
        if min(self.bytes, self.entries, self.ratio, self.ratio_from_bytes, self.header_bytes) < 1:
            raise ConfigError("limits of layers must be 1 or more")
