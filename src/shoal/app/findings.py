"""What ``shoal doctor`` finds out about a machine, a fleet or a cluster."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class FindingVerdict(StrEnum):
    OK = "ok"
    WARNING = "warning"  # it works without
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check. ``fix`` is empty if there is nothing to do."""

    name: str
    verdict: FindingVerdict
    found: str
    fix: str = ""


def ok(name: str, found: str) -> Finding:
    return Finding(name, FindingVerdict.OK, found)


def warning(name: str, found: str, fix: str) -> Finding:
    return Finding(name, FindingVerdict.WARNING, found, fix)


def failed(name: str, found: str, fix: str) -> Finding:
    return Finding(name, FindingVerdict.FAILED, found, fix)
