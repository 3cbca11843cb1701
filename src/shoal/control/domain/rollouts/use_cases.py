"""Rollouts as people and time move them: commands, steps that are due, and the way back."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from shoal.base.logs import get_logger
from shoal.control.database import tables
from shoal.control.database.engine import Database
from shoal.control.domain import readiness
from shoal.control.domain.access import authorize
from shoal.control.domain.app_facts import load_apps
from shoal.control.domain.changes import Changes
from shoal.control.domain.gateway_rollouts import engine as gateway_engine
from shoal.control.domain.gateway_rollouts.known import load_gateways
from shoal.control.domain.gateway_rollouts.versions import with_written
from shoal.control.domain.model import GROUP, Actor, Diff, ObjectRef
from shoal.control.domain.objects import ObjectScope, get, withins
from shoal.control.domain.plan import spec_of_revision
from shoal.control.domain.rollouts import people
from shoal.control.domain.rollouts.engine import facts_of_regions
from shoal.control.domain.rollouts.records import active_rollouts, decisions_of, due_apps, find_rollout
from shoal.control.domain.rollouts.region_numbers import numbers_of, region_numbers
from shoal.control.domain.rollouts.reverting import needs_revert, revert
from shoal.control.domain.rollouts.views import rollout_details, rollout_json
from shoal.control.domain.work import PendingWork
from shoal.control.rollout.progress import ENDED, ROLLED_BACK, CandidateFacts
from shoal.errors import Conflict, Forbidden, NotFound, ServiceUnavailable

log = get_logger("control.rollouts")

ShownRegions = tuple[dict[str, CandidateFacts], dict[str, dict[str, Any]]]

ROLLOUTS = "rollouts"  # the actor of what the engine does


class RolloutCommands(Changes):
    async def command_rollout(self, who: Actor, ref: ObjectRef, verb: str, *, reason: str = "") -> dict[str, Any]:
        """Pause, resume, skip, promote or abort the rollout of an app, or of an environment's gateways, that is under
        way."""
        await self._authorize_rollout(who, ref, verb)
        async with self._changing(who, ref.kind, dry_run=False) as work:
            row, within = await get(work.session, who.workspace_id, ref)
            assert isinstance(row, tables.App | tables.Environment)
            await work.tx.claim()
            rollout = await people.command(work, row, ref, verb, reason)
            noted = [Diff("status.rollout", rollout.number, verb), *([Diff("reason", None, reason)] if reason else ())]
            self._audit(work, f"rollout-{verb}", ref, row, noted)
            if isinstance(row, tables.Environment):
                await gateway_engine.advance(work, row.id)
            else:
                await self._read_facts(work, None)
                await self._advance_rollout(work, row, within)
        return await self.rollout(who, ref)

    async def rollouts(self, who: Actor, ref: ObjectRef) -> list[dict[str, Any]]:
        """The rollouts of an app, or of an environment's gateways, newest first."""
        authorize(who, "read", ref.kind)
        async with self._database(who, ref.kind).reading() as session:
            app, _ = await get(session, who.workspace_id, ref)
            rows = await session.scalars(
                select(tables.Rollout).where(tables.Rollout.app_id == app.id).order_by(tables.Rollout.number.desc())
            )
            return [rollout_json(row) for row in rows]

    async def rollout(self, who: Actor, ref: ObjectRef, number: int = 0) -> dict[str, Any]:
        """One rollout of an app, or of an environment's gateways, with its regions and decisions; the newest without a
        number."""
        authorize(who, "read", ref.kind)
        infrastructure = await self._infrastructure()
        async with self._database(who, ref.kind).reading() as session:
            app, _ = await get(session, who.workspace_id, ref)
            row = await find_rollout(session, app.id, number)
            if row is None:
                raise NotFound.of("rollouts", GROUP, f"{ref}/{number}" if number else str(ref))
            shown = _gateways_shown if isinstance(app, tables.Environment) else _app_shown
            regions, numbers = await shown(session, app.id, self._now()) if row.phase != ENDED else ({}, {})
            decisions = await decisions_of(session, row)
        names = {id_: each.name for id_, each in infrastructure.regions.items()}
        return rollout_details(row, regions, names, decisions, numbers)

    async def spec_again(self, who: Actor, ref: ObjectRef, verb: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
        """Makes the spec to apply from the one there is: for ``retry``, with what the last rollout took back, for
        ``undo``, with what it began from."""
        await self._authorize_rollout(who, ref, verb)
        async with self._database(who, ref.kind).reading() as session:
            app, _ = await get(session, who.workspace_id, ref)
            row = await find_rollout(session, app.id)
            is_back = row is not None and row.outcome == ROLLED_BACK
            if row is None or is_back != (verb == "retry"):
                why = "the last rollout was not taken back" if verb == "retry" else "no rollout went forward"
                raise Conflict.of("rollouts", GROUP, str(ref), f"{why}: nothing to {verb}")
            if row.contents is not None:
                version = row.contents["candidate" if verb == "retry" else "stable"]
                return partial(with_written, written=version["written"])
            wanted = row.deployment_id if verb == "retry" else row.stable_id
            made = await session.get(tables.Deployment, wanted)
        if made is None:
            number = row.revision if verb == "retry" else row.stable_revision
            why = f"revision {number} is no longer known: apply it from its file"
            raise Conflict.of("rollouts", GROUP, str(ref), why)
        return partial(spec_of_revision, template=made.template)

    async def _authorize_rollout(self, who: Actor, ref: ObjectRef, verb: str) -> None:
        """A command that is refused leaves a line in the audit log: approvals are among them."""
        try:
            authorize(who, "rollout", ref.kind, self._operators)
        except Forbidden:
            async with self._changing(who, ref.kind, dry_run=False) as work:
                row, _ = await get(work.session, who.workspace_id, ref)
                self._audit(work, f"rollout-{verb}-denied", ref, row, [])
            raise

    async def keep_rollouts(self) -> None:
        """Take the steps of rollouts that are due by time; to be called every second."""
        for database in self._databases.all:
            async with database.reading() as session:
                due = await due_apps(session, database.time.now_ms())
            for app_id in due:
                try:
                    await self._keep_rollout(database, app_id)
                except ServiceUnavailable:
                    raise
                except Exception as error:  # one app's rollout must not hold up those of all others
                    log.error("a rollout cannot go on", app=app_id, error=error)

    async def _keep_rollout(self, database: Database, app_id: str) -> None:
        async with database.transaction(actor=ROLLOUTS) as tx:
            work = self._work(tx, database)
            await tx.claim()
            row = await tx.session.get(tables.App, app_id)
            if row is None:
                await gateway_engine.advance(work, app_id)  # or of the gateways of an environment
            else:
                await self._read_facts(work, {each["region"] for each in row.spec.get("topology") or ()})
                within = (await withins(tx.session, [row]))[row.id]
                await self._advance_rollout(work, row, within)
            await work.flush()

    async def _advance_rollout(self, work: PendingWork, app: tables.App, within: ObjectScope) -> None:
        """Take every step that is possible now, and apply the stable revision again where the rollout goes back."""
        await readiness.advance_apps(work, {app.id})
        rollout = (await active_rollouts(work.session, [app.id])).get(app.id)
        if rollout is not None and needs_revert(app, rollout):
            await revert(work, app, within, rollout)
            await readiness.advance_apps(work, {app.id})


async def _app_shown(session: AsyncSession, app_id: str, now_ms: int) -> ShownRegions:
    (known,) = await load_apps(session, [app_id])
    if known.rollout is None:
        return {}, {}
    return await facts_of_regions(session, known), await region_numbers(session, known, now_ms)


async def _gateways_shown(session: AsyncSession, environment_id: str, now_ms: int) -> ShownRegions:
    known = await load_gateways(session, environment_id)
    if known is None or known.rollout is None:
        return {}, {}
    return known.facts(), await numbers_of(session, environment_id, known.revisions(), now_ms)
