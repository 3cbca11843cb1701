"""How managers and workers follow what they watch."""

from __future__ import annotations

from shoal.base.backoff import Backoff
from shoal.reconcile import ReflectorConfig

# Shards may die and slots may be ours while we cannot see it: whoever was cut off must not wait for long afterwards.
FOLLOWING = ReflectorConfig(backoff=Backoff(base_s=0.2, cap_s=2.0))
