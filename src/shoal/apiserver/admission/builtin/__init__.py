"""The admission plugins that are part of the server."""

from __future__ import annotations

from shoal.apiserver.admission.builtin.quota_status import QuotaEffects, QuotaStatus
from shoal.apiserver.admission.builtin.wiring import BuiltIn, builtin_chain

__all__ = ["BuiltIn", "QuotaEffects", "QuotaStatus", "builtin_chain"]
