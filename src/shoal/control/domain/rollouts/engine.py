"""Moves the rollout of an app on: facts from the database, a decision of ``control.rollout``, and the exchange of
instances and weights that follows from it.

Each decision is written before the next one is looked for, in the transaction of the report, the request or the sweep
that made it possible; what is decided follows from what the database says, so any control plane may do it, at any time.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from shoal.control.checks.job_rows import drop_jobs
from shoal.control.checks.plan import checks_of
from shoal.control.checks.rows import facts_of
from shoal.control.database.tables import Agent, Instance
from shoal.control.domain import exchange, gateways
from shoal.control.domain.app_facts import KnownApp, KnownRollout
from shoal.control.domain.deployments import place_of
from shoal.control.domain.exchange import say
from shoal.control.domain.gateways import BehindGateway
from shoal.control.domain.rollouts.deciding import WARNINGS, event_reason, remember_bad, take_decision
from shoal.control.domain.rollouts.judging import look
from shoal.control.domain.silence import outage_of
from shoal.control.domain.status import instance_text, worst_instance
from shoal.control.domain.work import PendingWork
from shoal.control.rollout.progress import CandidateFacts, CheckFacts, RolloutDecision, RolloutFacts
from shoal.sync.keys import Place

ROUNDS = 50  # more than a strategy has steps that nothing has to be waited for
CRASHES = 2  # restarts since the rollout began, of an instance that is failed again: the candidate will not come up


async def advance(work: PendingWork, known: KnownApp) -> None:
    """Take every step of an app's rollout, and of the exchange of its revisions, that is possible now."""
    for _ in range(ROUNDS):
        await exchange.advance(work, known)
        if known.rollout is None or not await _decide(work, known, known.rollout):
            break
    await _drop_jobs(work, known)


async def _drop_jobs(work: PendingWork, known: KnownApp) -> None:
    """Jobs of checks end with the step that asked for them."""
    if not any(row.check_jobs for row in known.rows):
        return
    rollout, key = known.rollout, None
    if rollout is not None and checks_of(rollout.strategy, rollout.progress):
        at = rollout.progress
        key = (rollout.row.id, at.wave, at.step, at.settled_ms)
    await drop_jobs(work.tx, known.rows, key)


async def _decide(work: PendingWork, known: KnownApp, rollout: KnownRollout) -> bool:
    """Returns whether something was decided: then instances and weights may have to change again."""
    regions = await facts_of_regions(work.session, known)
    facts = RolloutFacts(
        now_ms=work.now,
        regions=regions,
        analysis=await look(work, known, rollout),
        checks=await _checks(work, rollout),
        is_reverted=known.app.revision != rollout.row.revision,
    )
    decision = await take_decision(work, rollout, facts)
    if decision is not None:
        text = f"rollout: {decision.reason}"
        say(work, known, event_reason(decision), text, warning=decision.action in WARNINGS)
        if decision.action == "rollback":
            await _remember(work, known, rollout, decision)
    if not rollout.progress.is_active:
        known.rollout = None
    await work.session.flush()
    return decision is not None


async def _checks(work: PendingWork, rollout: KnownRollout) -> CheckFacts:
    if not rollout.strategy.checks:
        return CheckFacts()
    return await facts_of(work.session, rollout.row.id, rollout.strategy, rollout.progress)


async def _remember(work: PendingWork, known: KnownApp, rollout: KnownRollout, decision: RolloutDecision) -> None:
    """The candidate is bad: the same contents are refused from now on."""
    row = rollout.row
    record = known.record(row.revision)
    if record is not None:
        record.status, record.reason, record.updated_at = "failed", decision.reason, work.now
    await remember_bad(work, row, decision.reason)


async def facts_of_regions(session: AsyncSession, known: KnownApp) -> dict[str, CandidateFacts]:
    """The candidate in every region of the app, by region's id."""
    assert known.rollout is not None
    behind = await _behind(session, known)
    lost = await _lost(session, known)
    failures = await _failures(session, known) if known.rollout.strategy.is_configured else {}
    found: dict[str, CandidateFacts] = {}
    for region_id, rows in known.regions().items():
        facts = known.exchange(rows)
        stable = known.stable_row(rows)
        candidates = [row for row in rows if known.is_candidate(row)]
        new = next((each for each in facts.revisions if each.revision == known.rollout.row.revision), None)
        kept = (new.id if new else "", stable.deployment_id if stable else "")
        others = [each for each in facts.revisions if each.id not in kept]
        first = candidates[0] if candidates else rows[0]
        found[region_id] = CandidateFacts(
            region=str(first.reason.get("region") or region_id),
            size=facts.size,
            weight=new.weight if new else 0,
            routed=new.routed if new else 0,
            count=new.count if new else 0,
            ready=new.ready if new else 0,
            has_stable=stable is not None,
            others=max((each.routed for each in others), default=0),
            is_lost=not first.cluster_id or place_of(first) in lost,
            is_done=new is not None
            and len(facts.revisions) == 1
            and new.weight == 100 == new.routed
            and new.ready >= facts.size,
            failure=failures.get(region_id, ""),
            waits_for=", ".join(
                f"{each.name} ({', '.join(each.pods)})" for each in behind if each.region_id == region_id
            ),
        )
    return found


async def _behind(session: AsyncSession, known: KnownApp) -> list[BehindGateway]:
    if all(row.weight == row.routed for row in known.rows):
        return []
    routes = await gateways.routes_of_app(session, known.app)
    places = await gateways.served_places(session, known.app.workspace_id, known.app.environment_id)
    return await gateways.behind(session, places, [each.id for each in routes])


async def _lost(session: AsyncSession, known: KnownApp) -> set[Place]:
    """The places of the app of which nothing new is heard."""
    clusters = {row.cluster_id for row in known.rows}
    agents = await session.scalars(select(Agent).where(Agent.cluster_id.in_(clusters)))
    return {Place(each.cluster_id, each.shard) for each in agents if each.lost or outage_of(each)}


async def _failures(session: AsyncSession, known: KnownApp) -> Mapping[str, str]:
    """By region, why instances of the candidate fail again and again."""
    rows = [row for row in known.rows if known.is_candidate(row) and row.cluster_id]
    if not rows:
        return {}
    found = await session.scalars(
        select(Instance).where(
            Instance.workspace_id == known.app.workspace_id,
            Instance.deployment_id.in_({row.deployment_id for row in rows}),
            Instance.status == "failed",
            Instance.restarts >= CRASHES,
        )
    )
    assert known.rollout is not None
    before = known.rollout.progress.restarts
    failed: dict[Place, list[Instance]] = {}
    for each in found:
        if each.restarts - before.get(each.uid, 0) < CRASHES:
            continue
        failed.setdefault(Place(each.cluster_id, each.shard), []).append(each)
    return {row.region_id: text for row in rows if (text := _worst(failed.get(place_of(row), [])))}


def _worst(instances: list[Instance]) -> str:
    worst = worst_instance(instances)
    return instance_text(worst) if worst is not None else ""
