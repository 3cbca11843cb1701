"""Revisions that fail although they were ready: marked until they recover, never stopped or replaced.

A revision fails when instances of it fail and fewer than wanted are ready where it gets requests, or when at least half
of the requests that a gateway sent to it since its last report were answered with 5xx.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import select
from sqlalchemy.orm import aliased

from shoal.base.ids import Ids
from shoal.control.database.tables import Deployment, Desired, Instance, Topology
from shoal.control.database.transaction import Tx
from shoal.control.domain.app_facts import KnownApp, load_apps
from shoal.control.domain.exchange import say
from shoal.control.domain.model import Answers
from shoal.control.domain.status import instance_text, worst_instance
from shoal.control.domain.work import PendingWork
from shoal.sync.keys import key_of

MANY = 20  # requests between two reports: fewer say nothing
ANSWERS = "answers "  # begins the reason of a revision that fails by its answers


async def after_answers(tx: Tx, counted: Mapping[str, Answers]) -> None:
    """Gateways have counted answers of these deployments."""
    enough = {id_: each for id_, each in counted.items() if each.requests >= MANY}
    if not enough:
        return
    record = aliased(Deployment)  # the revision that a row counts as
    rows = await tx.session.execute(
        select(Deployment.id, Deployment.app_id, record.broken_at)
        .join(Topology, Topology.deployment_id == Deployment.id)
        .join(record, (record.app_id == Deployment.app_id) & (record.revision == Topology.revision))
        .where(Deployment.id.in_(enough), Topology.weight > 0)
    )
    concerned = {row.app_id for row in rows if enough[row.id].are_bad != bool(row.broken_at)}
    if not concerned:
        return
    await tx.claim()
    work = PendingWork(tx=tx, new_suffix=Ids().new_suffix)
    for known in await load_apps(tx.session, concerned):
        _judge(work, known, enough)


def _judge(work: PendingWork, known: KnownApp, counted: Mapping[str, Answers]) -> None:
    for row in known.rows:
        answers, record = counted.get(row.deployment_id), known.record(known.revision(row))
        if answers is None or record is None or not record.ready_at or row.reason.get("region") != answers.region:
            continue
        where = f" in {answers.region}"
        if answers.are_bad and not record.broken_at:
            why = f"{ANSWERS}{answers.failed} of {answers.requests} requests with 5xx{where}"
            record.broken_at, record.reason = work.now, why
            text = f"revision {record.revision} {why}; `shoal rollback app {known.app.name}` goes back"
            say(work, known, "Failing", text, warning=True, region=answers.region)
        elif record.broken_at and not answers.are_bad and record.reason.startswith(ANSWERS) and where in record.reason:
            record.broken_at, record.reason = 0, ""
            say(work, known, "Recovered", f"revision {record.revision} answers again", region=answers.region)


async def mark(work: PendingWork, known: KnownApp) -> None:
    """A revision that was ready and gets requests fails, or has recovered."""
    for record in list(known.deployments.values()):
        if not record.ready_at:
            continue
        facts = {each.id: each for each in known.row_facts(record.revision)}
        serving_rows = [row for row in known.rows if row.id in facts and row.weight and not row.moved_from]
        short = [row for row in serving_rows if facts[row.id].ready < facts[row.id].needed]
        why = await failure(work, short) if short else ""
        if why and not record.broken_at:
            record.broken_at, record.reason = work.now, why
            region = str(short[0].reason.get("region") or "")
            text = f"revision {record.revision} fails: {why}; `shoal rollback app {known.app.name}` goes back"
            say(work, known, "Failing", text, warning=True, region=region)
        elif record.broken_at and serving_rows and not short and not record.reason.startswith(ANSWERS):
            record.broken_at, record.reason = 0, ""
            say(work, known, "Recovered", f"revision {record.revision} is ready again")


async def failure(work: PendingWork, rows: Sequence[Topology]) -> str:
    """Why instances of these rows fail, in words; empty when none does."""
    for row in rows:
        found = await work.session.scalars(
            select(Instance).where(
                Instance.workspace_id == row.workspace_id,
                Instance.deployment_id == row.deployment_id,
                Instance.cluster_id == row.cluster_id,
                Instance.shard == row.shard,
            )
        )
        worst = worst_instance([each for each in found if each.status == "failed"])
        if worst is not None:
            return f"{row.reason.get('region') or row.region_id}: {instance_text(worst)}"
    return ""


async def missing(work: PendingWork, rows: Sequence[Topology]) -> str:
    """Why instances of these rows cannot be made, as their cluster says it; empty when it says nothing."""
    for row in rows:
        observed = await work.session.scalar(
            select(Desired.observed).where(
                Desired.cluster_id == row.cluster_id,
                Desired.shard == row.shard,
                Desired.key == key_of("deployment", row.deployment_id),
            )
        )
        if fault := (observed or {}).get("fault"):
            return f"{row.reason.get('region') or row.region_id}: {fault['reason']}: {fault['message']}"
    return ""
