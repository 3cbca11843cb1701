"""The pod security standards privileged, baseline and restricted, in every version."""

from __future__ import annotations

from shoal.kube.podsecurity.evaluate import findings, in_detail, in_short
from shoal.kube.podsecurity.findings import Violation
from shoal.kube.podsecurity.policy import (
    BASELINE,
    EVERYTHING_ALLOWED,
    LATEST,
    PREFIX,
    PRIVILEGED,
    RESTRICTED,
    PodSecurityLevels,
    Standard,
    is_stricter,
    policy_of,
)

__all__ = [
    "BASELINE",
    "EVERYTHING_ALLOWED",
    "LATEST",
    "PREFIX",
    "PRIVILEGED",
    "RESTRICTED",
    "Violation",
    "PodSecurityLevels",
    "Standard",
    "findings",
    "in_detail",
    "in_short",
    "is_stricter",
    "policy_of",
]
