"""A rollout begins with the revision that an apply makes, and ends the one before it.

a new template                   a rollout from the stable revision
another one during a rollout     a rollout from the same stable revision; the candidate before loses its requests first
stable's own template            the rollout goes back
what already runs everywhere     a rollout without steps: it is warm, as a revision that is kept
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sqlalchemy import select

from shoal.control.checks.outbox import START, notify
from shoal.control.database import tables
from shoal.control.database.tables import Deployment, Instance, Rollout, Topology
from shoal.control.domain.deployments import revision_of
from shoal.control.domain.kinds.rollout import strategy_of
from shoal.control.domain.objects import ObjectScope
from shoal.control.domain.rollouts.contents import content_digest, same_contents
from shoal.control.domain.rollouts.records import (
    KEPT,
    active_rollouts,
    forget_rollouts,
    next_number,
    note,
    progress_of_row,
    strategy_of_row,
    write,
)
from shoal.control.domain.work import PendingWork
from shoal.control.rollout.goals import begin
from shoal.control.rollout.machine import go_back, supersede
from shoal.control.rollout.progress import GOING_BACK, KEEPING, RolloutDecision
from shoal.control.rollout.progress_json import progress_as_json
from shoal.control.rollout.strategy_json import strategy_as_json


async def begin_rollout(
    work: PendingWork,
    app: tables.App,
    within: ObjectScope,
    made: Deployment,
    known: Mapping[str, Deployment],
    rows: Sequence[Topology],
) -> None:
    """``made`` is the new revision, ``known`` those before it. ``rows`` are what ran before; where the same containers
    run already, they count as the new one."""
    running = (await active_rollouts(work.session, [app.id])).get(app.id)
    stable = await _stable(work, app, known, running)
    if running is not None:
        strategy, progress = strategy_of_row(running), progress_of_row(running)
        if progress.phase == GOING_BACK:
            return  # this is its way back
        if progress.phase != KEEPING and stable is not None and same_contents(made, stable):
            said = f": {work.why}" if work.why else ""
            at, decision = go_back(progress, f"the template of the stable revision {stable.revision} was applied{said}")
            write(work.tx, running, strategy, at, decision)
            return
        at, decision = supersede(progress, f"revision {made.revision} takes its place")
        write(work.tx, running, strategy, at, decision)
    if stable is None:
        return
    strategy = strategy_of(app.spec, within.environment.spec if within.environment else {})
    is_warm = bool(rows) and all(revision_of(row, known[row.deployment_id]) == made.revision for row in _serving(rows))
    is_hurried = work.is_hurried or is_warm
    if is_hurried:  # it ran before, so what it would be compared with is worse
        strategy = replace(strategy, is_judged=False)
    regions = {
        region.id: name
        for name in (row["region"] for row in app.spec.get("topology") or ())
        if (region := work.infrastructure.region_named(name)) is not None
    }
    restarts = await _restarts(work, app, rows)
    progress = replace(begin(strategy, regions, work.now, is_hurried=is_hurried), why=work.why, restarts=restarts)
    number = await next_number(work.session, app.id)
    row = Rollout(
        id=work.new_id("Rollout"),
        workspace_id=app.workspace_id,
        app_id=app.id,
        number=number,
        deployment_id=made.id,
        revision=made.revision,
        stable_id=stable.id,
        stable_revision=stable.revision,
        digest=await content_digest(work.session, made),
        strategy=strategy_as_json(strategy),
        phase=progress.phase,
        outcome="",
        progress=progress_as_json(progress),
        version=1,
        due_at=work.now if strategy.is_configured else 0,
        actor=work.tx.actor,
        correlation=work.tx.correlation,
        created_at=work.now,
        updated_at=work.now,
        ended_at=0,
    )
    work.session.add(row)
    await work.session.flush()
    text = f"from revision {stable.revision} to {made.revision}: {strategy.kind}"
    if work.why:
        text = f"{text}; {work.why}"
    note(work.tx, row, RolloutDecision(action="start", reason=text, wave=0, step=0), work.tx.actor)
    await notify(work.tx, row, strategy, START, text)
    if number > KEPT:
        await forget_rollouts(work.session, app.id, before=number - KEPT)


async def end_rollout(work: PendingWork, app: tables.App, why: str) -> None:
    """End the rollout of an app, if one is under way, without an outcome for its candidate."""
    running = (await active_rollouts(work.session, [app.id])).get(app.id)
    if running is not None:
        at, decision = supersede(progress_of_row(running), why)
        write(work.tx, running, strategy_of_row(running), at, decision)


async def _stable(
    work: PendingWork, app: tables.App, known: Mapping[str, Deployment], running: Rollout | None
) -> Deployment | None:
    """The revision to go back to: that of the rollout under way, else what is live, else the newest before."""
    if running is not None:
        id_ = running.deployment_id if running.phase == KEEPING else running.stable_id
        return await work.session.get(Deployment, id_)
    if app.live_deployment_id:
        found = await work.session.get(Deployment, app.live_deployment_id)
        if found is not None:
            return found
    return max(known.values(), key=lambda each: each.revision, default=None)


async def _restarts(work: PendingWork, app: tables.App, rows: Sequence[Topology]) -> dict[str, int]:
    """How often instances have been restarted so far: those that count as the candidate may be old."""
    found = await work.session.execute(
        select(Instance.uid, Instance.restarts).where(
            Instance.workspace_id == app.workspace_id,
            Instance.deployment_id.in_({row.deployment_id for row in rows}),
            Instance.restarts > 0,
        )
    )
    return {each.uid: each.restarts for each in found}


def _serving(rows: Sequence[Topology]) -> list[Topology]:
    """By region, what runs as the newest revision there."""
    newest: dict[str, Topology] = {}
    for row in sorted(rows, key=lambda each: each.revision):
        newest[row.region_id] = row
    return list(newest.values())
