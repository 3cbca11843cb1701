"""The pod security policy of a namespace, from the levels and versions in its labels."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from shoal.errors import FieldError, invalid

PREFIX: Final = "pod-security.kubernetes.io/"
PRIVILEGED, BASELINE, RESTRICTED = "privileged", "baseline", "restricted"
LEVELS: Final = (PRIVILEGED, BASELINE, RESTRICTED)  # in order of strictness
LATEST: Final = 1_000_000  # newer than every minor version
_BAD_LEVEL: Final = f"must be one of {', '.join(LEVELS)}"
_BAD_VERSION: Final = 'must be "latest" or "v1.x"'
_is_version = re.compile(r"v1\.([0-9]|[1-9][0-9]*)", re.ASCII).fullmatch


@dataclass(frozen=True, slots=True)
class Standard:
    """A level as it was in a minor version of Kubernetes 1."""

    level: str = PRIVILEGED
    minor: int = LATEST

    def __str__(self) -> str:
        return f"{self.level}:{'latest' if self.minor == LATEST else f'v1.{self.minor}'}"


@dataclass(frozen=True, slots=True)
class PodSecurityLevels:
    """The standards of a namespace: enforced, noted in the audit log, and warned about."""

    enforce: Standard = Standard()
    audit: Standard = Standard()
    warn: Standard = Standard()

    @property
    def privileged(self) -> bool:
        return self.enforce.level == self.audit.level == self.warn.level == PRIVILEGED


EVERYTHING_ALLOWED: Final = PodSecurityLevels()


def policy_of(labels: Mapping[str, str] | None) -> tuple[PodSecurityLevels, list[FieldError]]:
    """The policy of a namespace with these labels, and the errors of the labels. An invalid level counts as restricted
    if it is enforced, and as privileged for audit and warnings."""
    if not labels:
        return EVERYTHING_ALLOWED, []
    errors: list[FieldError] = []
    found = {}
    for mode in ("enforce", "audit", "warn"):
        unreadable = RESTRICTED if mode == "enforce" else PRIVILEGED
        level = _level(labels, PREFIX + mode, unreadable, errors)
        found[mode] = Standard(level, _minor(labels, f"{PREFIX}{mode}-version", errors))
    enforced = labels.get(f"{PREFIX}enforce") in LEVELS
    if enforced and f"{PREFIX}warn" not in labels and found["enforce"].level != PRIVILEGED:
        has_version = f"{PREFIX}warn-version" in labels
        found["warn"] = Standard(found["enforce"].level, (found["warn"] if has_version else found["enforce"]).minor)
    return PodSecurityLevels(**found), errors


def _level(labels: Mapping[str, str], label: str, unreadable: str, errors: list[FieldError]) -> str:
    text = labels.get(label)
    if text is None:
        return PRIVILEGED
    if text in LEVELS:
        return text
    errors.append(invalid(f"metadata.labels[{label}]", text, _BAD_LEVEL))
    return unreadable


def _minor(labels: Mapping[str, str], label: str, errors: list[FieldError]) -> int:
    text = labels.get(label)
    if text is None or text == "latest":
        return LATEST
    matched = _is_version(text)
    if matched is None:
        errors.append(invalid(f"metadata.labels[{label}]", text, _BAD_VERSION))
        return LATEST
    return int(matched[1])


def is_stricter(level: str, other: str) -> bool:
    return LEVELS.index(level) > LEVELS.index(other)
