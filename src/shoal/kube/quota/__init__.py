"""Resource quotas: the usage of objects, whether a write fits, and the total usage."""

from __future__ import annotations

from shoal.kube.quota.charge import Count, QuotaRefused, charge, matches, selectors_of
from shoal.kube.quota.evaluators import Evaluator, evaluator_of, resources_behind

__all__ = [
    "Count", "Evaluator", "QuotaRefused", "charge", "evaluator_of", "matches", "resources_behind", "selectors_of",
]  # fmt: skip
