"""How managers and workers reconnect their watches."""

from __future__ import annotations

from shoal.base.backoff import Backoff
from shoal.reconcile import ReflectorConfig

# Without its watches a process misses dead shards and new slots: it reconnects sooner than other clients.
REFLECTOR_CONFIG = ReflectorConfig(backoff=Backoff(base_s=0.2, cap_s=2.0))
