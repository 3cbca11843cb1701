"""Moves the rollout of an environment's gateways on: facts from the database, a decision of ``control.rollout``, and
what agents are told to run.

As with apps, each decision is written before the next one is looked for, in the transaction that made it possible.
"""

from __future__ import annotations

from shoal.control.database import tables
from shoal.control.database.traffic import gateway_version
from shoal.control.domain.app_facts import KnownRollout
from shoal.control.domain.gateway_rollouts.known import KnownGateway, KnownGateways, load_gateways
from shoal.control.domain.gateway_rollouts.versions import Version, digest_of, version_of, with_written, written_of
from shoal.control.domain.gateways import want_sentinel
from shoal.control.domain.model import Diff
from shoal.control.domain.plan import differences
from shoal.control.domain.rollouts.deciding import WARNINGS, event_reason, remember_bad, take_decision
from shoal.control.domain.rollouts.judging import look_at
from shoal.control.domain.work import PendingWork
from shoal.control.rollout.gateways import ToldGateway, step
from shoal.control.rollout.looking import JudgedRegion
from shoal.control.rollout.progress import GOING_BACK, PROMOTED, RolloutDecision, RolloutFacts

ROUNDS = 50  # more than a strategy has steps that nothing has to be waited for


async def advance(work: PendingWork, environment_id: str) -> None:
    """Take every step of the rollout of an environment's gateways that is possible now, if there is one. The counter
    must have been claimed."""
    known = await load_gateways(work.session, environment_id)
    if known is None:
        return
    for _ in range(ROUNDS):
        if known.rollout is None:
            break
        await _tell_agents(work, known, known.rollout)
        if known.rollout.progress.phase == GOING_BACK:
            await _revert(work, known, known.rollout.row)
        if not await _decide(work, known, known.rollout):
            break
    await work.flush()
    await work.session.flush()


async def _tell_agents(work: PendingWork, known: KnownGateways, rollout: KnownRollout) -> None:
    for gateway in known.gateways:
        if gateway.row.rollout is None:
            await _join(work, gateway, rollout)
        if gateway.row.rollout is not None:
            await tell(work, gateway, step(gateway.facts(known.goal(gateway))))


async def _join(work: PendingWork, gateway: KnownGateway, rollout: KnownRollout) -> None:
    """A gateway that was made since the rollout began goes with the wave that is under way."""
    candidate = (rollout.row.contents or {})["candidate"]
    if digest_of(version_of(gateway.row)) != rollout.row.digest:
        place_in(gateway.row, rollout.row.revision, candidate)


def place_in(row: tables.Sentinel, revision: int, candidate: Version) -> None:
    """A gateway takes part in a rollout, and runs what it ran before the first one that has not ended yet."""
    before = (row.rollout or {}).get("before") or version_of(row)
    told = {"count": 0, "kept": row.desired_replicas, "promoted": False}
    row.rollout = {
        "revision": revision,
        "image": candidate["image"],
        "resources": candidate["resources"],
        "before": before,
        **told,
    }


async def tell(work: PendingWork, gateway: KnownGateway, told: ToldGateway) -> None:
    """Write what a gateway's agent is to run, where that is news."""
    row, at = gateway.row, gateway.row.rollout or {}
    wanted = {"image": at["image"], "resources": at["resources"]} if told.promoted else at["before"]
    if told == gateway.told and wanted == version_of(row):
        return
    row.rollout = {**at, "count": told.count, "kept": told.kept, "promoted": told.promoted}
    await write_version(work, row, wanted)
    gateway.is_taken = False


async def write_version(work: PendingWork, row: tables.Sentinel, version: Version) -> None:
    """Write what a gateway's own pods are to run, and send it."""
    if version != version_of(row):
        image, resources = version["image"], version["resources"]
        kept = {name: value for name, value in row.spec.items() if name not in ("image", "resources")}
        row.image = image
        row.spec = {**kept, **({"image": image} if image else {}), **({"resources": resources} if resources else {})}
        row.generation += 1
        row.version, row.updated_at = await work.tx.number(), work.now
    want_sentinel(work, row)


async def _decide(work: PendingWork, known: KnownGateways, rollout: KnownRollout) -> bool:
    """Returns whether something was decided: then what agents run may have to change again."""
    contents = rollout.row.contents or {}
    written = [contents[name]["written"] for name in ("candidate", "stable")]
    facts = RolloutFacts(
        now_ms=work.now,
        regions=known.facts(),
        analysis=await look_at(work, known.environment.id, rollout, _judged_regions(known, rollout)),
        is_reverted=written_of(known.environment.spec) != written[0] or written[0] == written[1],
    )
    decision = await take_decision(work, rollout, facts)
    if decision is not None:
        tell_people(work, known.environment, known.name, decision)
        if decision.action == "rollback":
            await remember_bad(work, rollout.row, decision.reason)
    if not rollout.progress.is_active:
        await _end(work, known, rollout)
        known.rollout = None
    await work.session.flush()
    return decision is not None


def _judged_regions(known: KnownGateways, rollout: KnownRollout) -> dict[str, JudgedRegion]:
    """The regions in which pods of both versions serve. Connections are spread over pods, and not requests, so how many
    of those a version should get is not known."""
    candidate, stable = gateway_version(rollout.row.revision), gateway_version(0)
    return {
        each.row.region_id: JudgedRegion(each.region, candidate, stable, weight=0)
        for each in known.gateways
        if each.told.count and not each.told.promoted
    }


async def _end(work: PendingWork, known: KnownGateways, rollout: KnownRollout) -> None:
    """Where it was promoted, gateways whose agents were silent get the version too; those that failed keep theirs."""
    progress = rollout.progress
    for gateway in known.gateways:
        row, at = gateway.row, gateway.row.rollout
        if at is None:
            continue
        gets_it = progress.outcome == PROMOTED and row.region_id not in progress.failed
        row.rollout = None
        await write_version(
            work, row, {"image": at["image"], "resources": at["resources"]} if gets_it else at["before"]
        )  # fmt: skip


async def _revert(work: PendingWork, known: KnownGateways, row: tables.Rollout) -> None:
    """What the environment asks for becomes what it asked for before, so that its spec is what runs."""
    environment, contents = known.environment, row.contents or {}
    if written_of(environment.spec) != contents["candidate"]["written"]:
        return
    before = environment.spec
    after = with_written(before, contents["stable"]["written"])
    if after == before:
        return  # it is the control plane's own default that was changed
    environment.spec = after
    environment.generation += 1
    environment.version, environment.updated_at = await work.tx.number(), work.now
    changed: list[Diff] = differences({"spec": before}, {"spec": after})
    work.tx.audit(
        workspace_id=environment.workspace_id,
        action="rollback",
        kind="Environment",
        object_id=environment.id,
        name=known.name,
        diff=[each.as_json() for each in changed],
    )


def tell_people(work: PendingWork, environment: tables.Environment, name: str, decision: RolloutDecision) -> None:
    work.tx.event(
        workspace_id=environment.workspace_id,
        kind="Environment",
        object_id=environment.id,
        name=name,
        reason=event_reason(decision),
        message=f"rollout of gateways: {decision.reason}",
        type="Warning" if decision.action in WARNINGS else "Normal",
    )
