"""What was found out about a cluster, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class FindingVerdict(StrEnum):
    OK = "ok"
    WARNING = "warning"  # it works without
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check of a cluster. ``fix`` is empty if there is nothing to do."""

    name: str
    verdict: FindingVerdict
    found: str
    fix: str = ""


@dataclass(frozen=True, slots=True, order=True)
class Blocker:
    """What keeps a part from joining."""

    part: str
    what: str
    fix: str = ""

    def __str__(self) -> str:
        return f"{self.part}: {self.what}" + (f"\n  fix: {self.fix}" if self.fix else "")
