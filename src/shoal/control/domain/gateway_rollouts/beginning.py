"""A rollout of gateways begins when their environment asks for another image or size, and ends the one before it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sqlalchemy import delete, func, select

from shoal.control.database import tables
from shoal.control.database.tables import BadRevision, Rollout
from shoal.control.domain.fields import Reader
from shoal.control.domain.gateway_rollouts.engine import advance, place_in
from shoal.control.domain.gateway_rollouts.known import gateways_of
from shoal.control.domain.gateway_rollouts.versions import (
    Version,
    digest_of,
    shown,
    version_of,
    wanted_version,
    written_of,
)
from shoal.control.domain.kinds.scopes import EnvironmentSpec, read_environment
from shoal.control.domain.model import GROUP
from shoal.control.domain.rollouts.contents import bad_revision
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
from shoal.control.rollout.progress import GOING_BACK, RolloutDecision
from shoal.control.rollout.progress_json import progress_as_json
from shoal.control.rollout.strategy_json import strategy_as_json
from shoal.errors import Conflict


async def wanted_otherwise(
    work: PendingWork, environment: tables.Environment, name: str, before: dict[str, Any]
) -> None:
    """The spec of an environment was written, ``before`` is what it was. ``Conflict`` where it asks for a version that
    was taken back, unless that is forced."""
    spec = read_environment(Reader(environment.spec, "spec", []))
    was = wanted_version(read_environment(Reader(before, "spec", [])).sentinel, work.gateways)
    wanted = wanted_version(spec.sentinel, work.gateways)
    if wanted == was and written_of(before) == written_of(environment.spec):
        return
    await _refuse_bad(work, environment, name, wanted)
    await work.tx.claim()
    await _begin(work, environment, spec, wanted, before)
    await advance(work, environment.id)


async def forget(work: PendingWork, environment_id: str) -> None:
    """The environment is deleted."""
    await forget_rollouts(work.session, environment_id)
    await work.session.execute(delete(BadRevision).where(BadRevision.app_id == environment_id))


async def _refuse_bad(work: PendingWork, environment: tables.Environment, name: str, wanted: Version) -> None:
    bad = await bad_revision(work.session, environment.id, digest_of(wanted))
    if bad is None:
        return
    if not work.is_forced:
        why = (
            f"gateways with {shown(wanted)} were taken back as revision {bad.revision}: {bad.reason}; change "
            "spec.sentinel, or apply it with --force"
        )
        raise Conflict.of("environments", GROUP, name, why)
    await work.session.delete(bad)


async def _begin(
    work: PendingWork, environment: tables.Environment, spec: EnvironmentSpec, wanted: Version, before: dict[str, Any]
) -> None:
    rows = await gateways_of(work.session, environment.id)
    running = (await active_rollouts(work.session, [environment.id])).get(environment.id)
    candidate = {**wanted, "written": written_of(environment.spec)}
    stable = (running.contents or {})["stable"] if running is not None else None
    if running is not None:
        strategy, progress = strategy_of_row(running), progress_of_row(running)
        assert stable is not None
        if digest_of(wanted) == digest_of(stable):
            if progress.phase != GOING_BACK:
                said = f": {work.why}" if work.why else ""
                at, decision = go_back(progress, f"the stable version {shown(stable)} was applied{said}")
                write(work.tx, running, strategy, at, decision)
            return
        at, decision = supersede(progress, f"{shown(wanted)} takes its place")
        write(work.tx, running, strategy, at, decision)
        await work.session.flush()
    others = [row for row in rows if row.rollout is not None or digest_of(version_of(row)) != digest_of(wanted)]
    if not others:
        return
    first = (others[0].rollout or {}).get("before") or version_of(others[0])
    stable = stable or {**first, "written": written_of(before)}
    row = await _row(work, environment, spec, {"candidate": candidate, "stable": stable}, others)
    for each in others:
        place_in(each, row.revision, wanted)
    await work.session.flush()


async def _row(
    work: PendingWork,
    environment: tables.Environment,
    spec: EnvironmentSpec,
    contents: dict[str, Any],
    gateways: list[tables.Sentinel],
) -> Rollout:
    strategy = spec.sentinel.rollout
    if work.is_hurried:  # it ran before, so what it would be compared with is worse
        strategy = replace(strategy, is_judged=False)
    regions = {row.region_id: str(row.spec.get("region") or row.name) for row in gateways}
    progress = replace(begin(strategy, regions, work.now, is_hurried=work.is_hurried), why=work.why)
    number = await next_number(work.session, environment.id)
    stable = await _revision_of(work, environment.id, contents["stable"])
    newest = await work.session.scalar(select(func.max(Rollout.revision)).where(Rollout.app_id == environment.id))
    row = Rollout(
        id=work.new_id("Rollout"),
        workspace_id=environment.workspace_id,
        app_id=environment.id,
        number=number,
        deployment_id="",
        revision=max(newest or 0, stable) + 1,
        stable_id="",
        stable_revision=stable,
        digest=digest_of(contents["candidate"]),
        strategy=strategy_as_json(strategy),
        contents=contents,
        phase=progress.phase,
        outcome="",
        progress=progress_as_json(progress),
        version=1,
        due_at=work.now,
        actor=work.tx.actor,
        correlation=work.tx.correlation,
        created_at=work.now,
        updated_at=work.now,
        ended_at=0,
    )
    work.session.add(row)
    await work.session.flush()
    text = f"gateways from {shown(contents['stable'])} to {shown(contents['candidate'])}: {strategy.kind}"
    if work.why:
        text = f"{text}; {work.why}"
    note(work.tx, row, RolloutDecision(action="start", reason=text, wave=0, step=0), work.tx.actor)
    if number > KEPT:
        await forget_rollouts(work.session, environment.id, before=number - KEPT)
    return row


async def _revision_of(work: PendingWork, environment_id: str, version: Version) -> int:
    """The number that a version had when it was rolled out; what gateways were made with is the first."""
    found = await work.session.scalar(
        select(func.max(Rollout.revision)).where(
            Rollout.app_id == environment_id, Rollout.digest == digest_of(version), Rollout.outcome == "promoted"
        )
    )
    return found or 1
