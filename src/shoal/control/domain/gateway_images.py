"""A changed image reaches the gateways of an environment one region after the other.

    wanted ──▶ the first region's pods are replaced, never fewer ──▶ ready ──▶ SOAK_MS of requests ──▶ the next region

A gateway that does not become ready, or in whose region clearly more requests fail than before, ends it there: the
other regions keep their image until somebody sets another one. Where it is, is noted in annotations of the gateways it
has reached, so it survives a restart and needs no timer: each report of such a gateway goes on.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import select

from shoal.control.database import tables
from shoal.control.database.tables import Deployment, Sentinel
from shoal.control.domain.fields import Reader
from shoal.control.domain.gateways import MADE_BY, image_of, want_sentinel
from shoal.control.domain.kinds.scopes import read_environment
from shoal.control.domain.samples import read_samples
from shoal.control.domain.work import PendingWork

CHANGED_AT, READY_AT = "shoal.dev/image-changed-at", "shoal.dev/image-ready-at"  # in ms
FAULT = "shoal.dev/image-fault"
SOAK_MS = 60_000
_BEFORE_MS = 300_000
_MANY = 20  # fewer requests say nothing
_WORSE = 0.05  # of the requests, more than before


@dataclass(frozen=True, slots=True)
class Failures:
    """Requests of a region in a time, and those that were answered with 5xx."""

    requests: int = 0
    failed: int = 0

    @property
    def share(self) -> float:
        return self.failed / self.requests if self.requests else 0.0


def fault_of(before: Failures, since: Failures) -> str:
    """What is worse since a gateway has its image; empty when nothing is, or too little is known. Pure."""
    if since.requests < _MANY or since.share <= before.share + _WORSE:
        return ""
    return (
        f"{since.share:.0%} of {since.requests} requests failed since it has its new image, {before.share:.0%} of "
        f"{before.requests} before; the other regions keep theirs until spec.sentinel.image of the environment changes"
    )


async def advance(work: PendingWork, environment: tables.Environment) -> None:
    """Change the next gateway if those before it are well."""
    target = read_environment(Reader(environment.spec, "spec", [])).sentinel.image or work.gateways.image
    here = Sentinel.environment_id == environment.id, Sentinel.desired_state == "running"
    rows = await work.session.scalars(select(Sentinel).where(*here).order_by(Sentinel.name))
    made = [row for row in rows if MADE_BY in row.annotations]
    waiting = [row for row in made if image_of(row.image) != target]
    changed = [row for row in made if CHANGED_AT in row.annotations and row not in waiting]
    for row in changed:
        if not await _is_done(work, row):
            return
    if waiting:
        await _change(work, environment, waiting[0], target)
        return
    for row in changed:
        _annotate(row, {})


async def reported(work: PendingWork, sentinel: Sentinel) -> None:
    """A gateway has reported: if it has a changed image, the next one may be due."""
    if CHANGED_AT not in sentinel.annotations:
        return
    if READY_AT not in sentinel.annotations and _is_well(sentinel):
        _annotate(sentinel, {CHANGED_AT: sentinel.annotations[CHANGED_AT], READY_AT: str(work.now)})
    environment = await work.session.get(tables.Environment, sentinel.environment_id)
    if environment is not None:
        await work.session.flush()
        await advance(work, environment)


async def _is_done(work: PendingWork, sentinel: Sentinel) -> bool:
    """Whether the next region may follow."""
    notes = sentinel.annotations
    if FAULT in notes or READY_AT not in notes or not _is_well(sentinel):
        return False
    changed_at, ready_at = int(notes[CHANGED_AT]), int(notes[READY_AT])
    if work.now - ready_at < SOAK_MS:
        return False
    since = await _failures(work, sentinel, ready_at, work.now)
    fault = fault_of(await _failures(work, sentinel, changed_at - _BEFORE_MS, changed_at), since)
    if fault:
        _annotate(sentinel, {name: notes[name] for name in (CHANGED_AT, READY_AT)} | {FAULT: fault})
        _say(work, sentinel, "ImageFailed", fault, type_="Warning")
    return not fault


def _is_well(sentinel: Sentinel) -> bool:
    return sentinel.deploy_status == "ready" and sentinel.health == "healthy"


async def _failures(work: PendingWork, sentinel: Sentinel, after_ms: int, until_ms: int) -> Failures:
    ids = await work.session.scalars(
        select(Deployment.id).where(
            Deployment.environment_id == sentinel.environment_id, Deployment.desired_state == "running"
        )
    )
    samples = await read_samples(work.session, sentinel.environment_id, set(ids), after_ms, until_ms)
    found = [each for each in samples if each.region == sentinel.region_id]
    return Failures(sum(sum(each.codes) for each in found), sum(each.codes[4] for each in found))


async def _change(work: PendingWork, environment: tables.Environment, sentinel: Sentinel, image: str) -> None:
    await work.tx.claim()
    sentinel.image = image
    kept = {name: value for name, value in sentinel.spec.items() if name != "image"}
    sentinel.spec = {**kept, "image": image} if image else kept
    sentinel.generation += 1
    sentinel.version, sentinel.updated_at = await work.tx.number(), work.now
    _annotate(sentinel, {CHANGED_AT: str(work.now)})
    want_sentinel(work, sentinel)
    named = image or "the agent's"
    _say(work, sentinel, "ImageChanged", f"the gateway of {environment.name} gets the image {named}")


def _annotate(sentinel: Sentinel, notes: dict[str, str]) -> None:
    others = {k: v for k, v in sentinel.annotations.items() if k not in (CHANGED_AT, READY_AT, FAULT)}
    sentinel.annotations = others | notes


def _say(work: PendingWork, sentinel: Sentinel, reason: str, message: str, type_: str = "Normal") -> None:
    work.tx.event(
        workspace_id=sentinel.workspace_id, kind="Sentinel", object_id=sentinel.id, name=sentinel.name, reason=reason,
        message=message, type=type_, region=sentinel.name,
    )  # fmt: skip
