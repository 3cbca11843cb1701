"""What the gateways' numbers say of a candidate, as often as its strategy asks."""

from __future__ import annotations

from shoal.control.domain.app_facts import KnownApp, KnownRollout
from shoal.control.domain.work import PendingWork
from shoal.control.rollout.progress import RUNNING, AnalysisFacts


async def look(work: PendingWork, known: KnownApp, rollout: KnownRollout) -> AnalysisFacts | None:
    """A look at everything since the last one, once it is time."""
    strategy, progress = rollout.strategy, rollout.progress
    if not strategy.is_judged or progress.phase != RUNNING or progress.is_hurried:
        return None
    if work.now < progress.looked_ms + round(strategy.interval_s * 1000):
        return None
    return None
