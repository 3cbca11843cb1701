"""The result of one check of ``shoal doctor``."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class CheckResult(StrEnum):
    OK = "ok"
    WARNING = "warning"  # it works without
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class DoctorCheck:
    """The result of one check. ``fix`` is empty when nothing has to be done."""

    name: str
    verdict: CheckResult
    found: str
    fix: str = ""


def ok(name: str, found: str) -> DoctorCheck:
    return DoctorCheck(name, CheckResult.OK, found)


def warning(name: str, found: str, fix: str) -> DoctorCheck:
    return DoctorCheck(name, CheckResult.WARNING, found, fix)


def failed(name: str, found: str, fix: str) -> DoctorCheck:
    return DoctorCheck(name, CheckResult.FAILED, found, fix)
