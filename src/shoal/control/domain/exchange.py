"""Carries out the exchange of an app's revisions, region by region; ``shoal.control.rollout`` decides.

    reports ─▶ facts of each region ─▶ step ─▶ instances told to agents, weights told to gateways, rows removed

Only this module writes weights and instances. Each step follows from what the database says, so doing it twice, or
late, does nothing more. A region without instances leads to the revision that the other regions give most to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from shoal.control.database import tables
from shoal.control.database.tables import Topology
from shoal.control.domain import gateways
from shoal.control.domain.app_facts import KnownApp
from shoal.control.domain.deployments import remove_row, retire, want_row
from shoal.control.domain.gateways import BehindGateway, ServedPlace
from shoal.control.domain.work import PendingWork
from shoal.control.rollout.model import RegionFacts, RevisionStep
from shoal.control.rollout.plan import led_to, step

ROUNDS = 20  # without gateways nothing has to be waited for: all steps that are possible are done at once


@dataclass(slots=True)
class _Gateways:
    """What leads to the app: its routes, the places of gateways, and those of them that are behind."""

    routes: Sequence[tables.Route]
    places: Sequence[ServedPlace]
    behind: Sequence[BehindGateway] = ()

    def is_heard(self, region_id: str) -> bool:
        return all(each.region_id != region_id for each in self.behind)


async def advance(work: PendingWork, known: KnownApp) -> None:
    """Take every step of the exchange that is possible now."""
    if known.spec.desired == "stopped" or known.newest is None or not known.rows:
        return
    leading = _Gateways((), ())
    if _is_moving(known):
        leading = _Gateways(
            await gateways.routes_of_app(work.session, known.app),
            await gateways.served_places(work.session, known.app.workspace_id, known.app.environment_id),
        )
    told = _led_to(_facts(known))
    for _ in range(ROUNDS):
        await work.flush()
        await work.session.flush()
        leading.behind = await gateways.behind(work.session, leading.places, [each.id for each in leading.routes])
        changed = _take_acknowledgements(known, leading)
        facts = _facts(known)
        leads = _led_to(facts)
        without = _without_instances(facts, leading)
        if leads != told:
            told = leads
            gateways.send_routes(work, leading.routes, [at.place for at in leading.places if at.region_id in without])
            continue
        held = {leads} if without and all(map(leading.is_heard, without)) else _olds(known) if without else set()
        for region_id, region in facts.items():
            marked = tuple(replace(each, is_held=each.id in held) for each in region.revisions)
            steps = step(replace(region, revisions=marked))
            places = [at.place for at in leading.places if at.region_id == region_id]
            outcome = await _take(work, known, region_id, region, steps)
            if outcome.rerouted or (outcome.removed and without):  # others led to it, so routes kept it without weight
                gateways.send_routes(work, leading.routes, places)
            changed |= outcome != _Outcome()
        if not changed:
            break
    await _retire_empty(work, known)


def _is_moving(known: KnownApp) -> bool:
    """Whether weights may have to change."""
    return any(row.weight != row.routed or row.weight < 100 or not known.is_wanted(row) for row in known.rows)


def _facts(known: KnownApp) -> dict[str, RegionFacts]:
    return {region_id: known.exchange(rows) for region_id, rows in known.regions().items()}


def _led_to(facts: dict[str, RegionFacts]) -> str:
    return led_to(lead for region in facts.values() for lead in region.leads())


def _olds(known: KnownApp) -> set[str]:
    return {row.deployment_id for row in known.rows if not known.is_wanted(row)}


def _without_instances(facts: dict[str, RegionFacts], leading: _Gateways) -> set[str]:
    """Regions whose gateways lead to other regions."""
    serving = {id_ for id_, region in facts.items() if any(each.weight for each in region.revisions)}
    return {at.region_id for at in leading.places} - serving


def _take_acknowledgements(known: KnownApp, leading: _Gateways) -> bool:
    changed = False
    for row in known.rows:
        if row.routed != row.weight and leading.is_heard(row.region_id):
            row.routed, changed = row.weight, True
    return changed


@dataclass(slots=True)
class _Outcome:
    """What a step has changed in a region."""

    told: bool = False
    rerouted: bool = False
    removed: bool = False


async def _take(
    work: PendingWork, known: KnownApp, region_id: str, region: RegionFacts, steps: Sequence[RevisionStep]
) -> _Outcome:
    """Write the steps of a region."""
    rows = [row for row in known.rows if row.region_id == region_id]
    before = {each.id: each for each in region.revisions}
    alone = sum(not each.removed for each in steps) == 1
    outcome = _Outcome()
    for each in steps:
        own = [row for row in rows if row.deployment_id == each.id]
        if each.removed:
            await _remove(work, known, own)
            outcome.removed = True
            continue
        for row in own:
            outcome.told |= _tell(work, known, row, each, region.size, free=alone or each.is_free, alone=alone)
            row.weight, row.routed = each.weight, each.routed
            outcome.rerouted |= _extend(row, known.extras(row))
        outcome.rerouted |= each.weight != before[each.id].weight
        if each.weight == 100 != before[each.id].weight:
            name = str(own[0].reason.get("region") or "")
            say(work, known, "Live", f"revision {known.revision(own[0])} takes all requests", region=name)
    return outcome


def _extend(row: Topology, extras: dict[str, Any] | None) -> bool:
    """Write what gateways do for a candidate besides its weight; True where that is news. Until all gateways have
    heard of it, some may send more than the weight."""
    if row.extras == extras:
        return False
    row.routed, row.extras = max(row.routed, min(row.weight + 1, 100)), extras
    return True


def _tell(
    work: PendingWork, known: KnownApp, row: Topology, next_: RevisionStep, size: int, *, free: bool, alone: bool
) -> bool:
    """Write how many instances a row has. Where it is free, that is left to the replicas or the autoscaler of the
    region."""
    if row.desired_status == "stopped":
        return False
    was = _told(row)
    row.instances = None if free else next_.count
    row.target = 0 if alone else size if known.is_wanted(row) or row.instances is not None else 0
    if _told(row) == was:
        return False
    row.updated_at = work.now
    if not row.cluster_id:
        return True
    want_row(work, known.deployments[row.deployment_id], row)
    return True


def _told(row: Topology) -> tuple[int, bool]:
    if row.instances is not None:
        return row.instances, False
    return (0, True) if row.autoscaling else (row.replicas, False)


async def _remove(work: PendingWork, known: KnownApp, rows: Sequence[Topology]) -> None:
    for row in rows:
        known.rows.remove(row)
        async with work.as_user():
            await remove_row(work, row)


async def _retire_empty(work: PendingWork, known: KnownApp) -> None:
    """Old revisions that are nowhere any more are kept for the history only."""
    present = {row.deployment_id for row in known.rows}
    for deployment in [each for each in known.deployments.values() if each.id not in present]:
        if deployment.id == known.app.deployment_id or deployment.desired_state != "running":
            continue
        status = "failed" if deployment.status == "failed" else "superseded"
        say(work, known, "Superseded", f"revision {deployment.revision} is removed: a newer one has taken its place")
        await retire(work, deployment, status)
        del known.deployments[deployment.id]


def say(
    work: PendingWork, known: KnownApp, reason: str, message: str, *, warning: bool = False, region: str = ""
) -> None:
    """An event of the app."""
    work.tx.event(
        workspace_id=known.app.workspace_id,
        kind="App",
        object_id=known.app.id,
        name=known.name,
        reason=reason,
        message=message,
        type="Warning" if warning else "Normal",
        region=region,
    )
