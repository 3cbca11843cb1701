"""What the gateways' numbers say of a candidate, as often as its strategy asks."""

from __future__ import annotations

from collections.abc import Mapping

from shoal.control.domain.app_facts import KnownApp, KnownRollout
from shoal.control.domain.samples import newest_sample, read_samples
from shoal.control.domain.work import PendingWork
from shoal.control.rollout.analysis import Rules
from shoal.control.rollout.goals import wave_of
from shoal.control.rollout.looking import (
    WARM_MS,
    JudgedRegion,
    heard_until,
    judge,
    of_wave,
    silent,
    span_of,
    windows,
    with_numbers,
)
from shoal.control.rollout.progress import RUNNING, AnalysisFacts
from shoal.control.rollout.samples import BOUNDS_MS


async def look(work: PendingWork, known: KnownApp, rollout: KnownRollout) -> AnalysisFacts | None:
    """A look at everything since the last one, once it is time."""
    return await look_at(work, known.app.environment_id, rollout, judged_regions(known))


async def look_at(
    work: PendingWork, environment: str, rollout: KnownRollout, regions: Mapping[str, JudgedRegion]
) -> AnalysisFacts | None:
    """The same at what gateways of an environment counted in these regions."""
    strategy, progress = rollout.strategy, rollout.progress
    if not strategy.is_judged or progress.phase != RUNNING or progress.is_hurried or not regions:
        return None
    if work.now < progress.looked_ms + round(strategy.interval_s * 1000):
        return None
    heard = heard_until(regions, await newest_sample(work.session, environment), work.now)
    span = span_of(progress, heard)
    if not heard:
        return silent(progress, regions)
    if span[0] >= span[1]:
        return None
    deployments = {id_ for each in regions.values() for id_ in (each.candidate, each.stable)}
    samples = await read_samples(work.session, environment, deployments, *span)
    if copied := {each.candidate for each in regions.values() if each.is_copied}:
        copies = await read_samples(work.session, environment, copied, *span, origin="mirror")
        samples += [each for each in copies if each.region in regions and regions[each.region].is_copied]
    found = windows(samples, regions, heard, span)
    has_settled = 0 < progress.settled_ms <= span[0]  # else weights were others in a part of the time
    rules = Rules(
        abort=strategy.abort,
        bounds_ms=BOUNDS_MS,
        regions={id_: each.name for id_, each in regions.items()},
        candidate=rollout.row.revision,
        stable=rollout.row.stable_revision,
        since_ms=progress.entered_ms,
        warm_until_ms=progress.settled_ms + WARM_MS if progress.settled_ms else work.now,
        weights={id_: each.weight for id_, each in regions.items() if each.weight and has_settled},
    )
    facts = judge(rules, progress, found)
    if facts is None:
        return None
    wave = [id_ for id_ in regions if wave_of(progress, id_) == progress.wave]
    return with_numbers(of_wave(facts, wave), found, regions)


def judged_regions(known: KnownApp) -> dict[str, JudgedRegion]:
    """The regions in which gateways send requests to the candidate, if only those of testers or copies, while stable is
    there too."""
    found: dict[str, JudgedRegion] = {}
    for region_id, rows in known.regions().items():
        stable = known.stable_row(rows)
        candidate = next((row for row in rows if known.is_candidate(row)), None)
        if stable is None or candidate is None or not (candidate.routed or candidate.extras):
            continue
        found[region_id] = JudgedRegion(
            name=str(candidate.reason.get("region") or region_id),
            candidate=candidate.deployment_id,
            stable=stable.deployment_id,
            weight=candidate.weight if candidate.weight == candidate.routed else 0,
            is_copied=not candidate.weight and bool((candidate.extras or {}).get("mirror")),
        )
    return found
