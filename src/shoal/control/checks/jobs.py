"""A Job in a cluster as a check: begun beside the candidate's instances, and judged by how its program ends.

Jobs are in ``check_jobs`` of the row of ``deployment_topology`` that the candidate has at a place. The agent there runs
them and reports how they end (``shoal.control.service.reports``). A control plane that asks the check begins the job,
or finds how it ended; nothing about it is in memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from sqlalchemy import select

from shoal.base.ids import Ids
from shoal.control.checks.job_rows import key_of_job, set_jobs
from shoal.control.checks.model import CheckContext
from shoal.control.checks.plan import CheckAnswer, CheckKey, DueCheck, KnownCheck
from shoal.control.database.engine import Databases
from shoal.control.database.tables import Topology
from shoal.control.database.transaction import Tx
from shoal.control.rollout.strategy import CheckSpec

AGAIN_S = 5.0  # while it runs
GRACE_S = 60.0  # for its agent to begin it, and to report its end
TRY_LATER = 75  # the exit code by which a program says neither (EX_TEMPFAIL of sysexits.h)


class CheckJobs:
    def __init__(self, databases: Databases, ids: Ids) -> None:
        self._databases = databases
        self._ids = ids

    async def ask(self, check: CheckSpec, context: CheckContext, due: DueCheck) -> CheckAnswer:
        """Begin the job of a check, look at it, or tell how it ended. Its end is told until that answer is stored; the
        next question begins another one."""
        work = partial(self._ask, check=check, context=context, due=due)
        return await self._databases.of(context.workspace_id).run(work)

    async def _ask(self, tx: Tx, check: CheckSpec, context: CheckContext, due: DueCheck) -> CheckAnswer:
        region = str(check.settings.get("region") or "")
        row = await _place_of_candidate(tx, context, region)
        if row is None:
            where = region or "the regions of this step"
            return CheckAnswer(passed=None, reason=f"the candidate is not in {where}, so its job cannot run there")
        key = (context.rollout_id, due.key.wave, due.key.step, due.key.settled_ms)
        jobs = [each for each in row.check_jobs or () if key_of_job(each) == key]
        found = next((each for each in jobs if each["check"] == check.name), None)
        named = f"the job in {row.reason.get('region') or row.region_id}"
        if found is None or _is_told(found, due.known):
            kept = [each for each in jobs if each is not found]
            await set_jobs(tx, row, [*kept, self._made(check, context, due.key, tx.now)])
            return CheckAnswer(passed=None, reason=f"{named} begins", again_s=AGAIN_S)
        result = found.get("result") or {}
        if result.get("state", "running") == "running" and tx.now < _given_up_ms(found):
            why = f": {result['message']}" if result.get("message") else ""
            return CheckAnswer(passed=None, reason=f"{named} runs{why}", again_s=AGAIN_S)
        return answer_of(result, named)

    def _made(self, check: CheckSpec, context: CheckContext, key: CheckKey, now_ms: int) -> dict[str, Any]:
        settings = check.settings
        return {
            "id": f"check-{check.name[:36].rstrip('-')}-{self._ids.new_suffix()}",
            "check": check.name,
            "rollout": context.rollout_id,
            "wave": key.wave,
            "step": key.step,
            "settled": key.settled_ms,
            "startedAt": now_ms,
            "image": settings["image"],
            "command": settings.get("command") or [],
            "args": settings.get("args") or [],
            "env": {"SHOAL_STABLE_REVISION": str(context.stable_revision), "SHOAL_WEIGHT": str(context.weight)},
            "resources": settings["resources"],
            "timeoutSeconds": settings["timeoutSeconds"],
        }


def _given_up_ms(job: Mapping[str, Any]) -> int:
    """When nobody reports its end any more."""
    return int(job["startedAt"] + (job["timeoutSeconds"] + GRACE_S) * 1000)


def _is_told(job: Mapping[str, Any], known: KnownCheck | None) -> bool:
    """Whether the newest answer that is stored is how this job ended."""
    result = job.get("result") or {}
    ended_ms = result.get("at", 0) if result.get("state", "running") != "running" else _given_up_ms(job)
    return known is not None and known.asked_ms >= ended_ms


def answer_of(result: dict[str, Any], named: str) -> CheckAnswer:
    """What the end of a job says; ``result`` is empty, or says that it runs, where none was reported in time."""
    state, message, code = result.get("state", ""), str(result.get("message") or ""), int(result.get("exitCode") or 0)
    said = f": {message}" if message else ""
    match state:
        case "succeeded":
            return CheckAnswer(passed=True, reason=f"{named} succeeded{said}", numbers={"exitCode": 0})
        case "failed":
            passed = None if code == TRY_LATER else False
            return CheckAnswer(
                passed=passed, reason=f"{named} ended with exit code {code}{said}", numbers={"exitCode": code}
            )
        case "timedOut":
            return CheckAnswer(passed=None, reason=f"{named} did not end in time{said}")
        case "broken":
            return CheckAnswer(passed=None, reason=f"{named} could not run{said}")
        case _:
            return CheckAnswer(passed=None, reason=f"{named} was not reported in time{said}; is its agent up to date?")


async def _place_of_candidate(tx: Tx, context: CheckContext, region: str) -> Topology | None:
    """Where the job runs: in the region that the check names, else in the first of the wave."""
    rows = await tx.session.scalars(
        select(Topology)
        .where(Topology.deployment_id == context.deployment_id, Topology.desired_status == "running")
        .order_by(Topology.id)
    )
    wanted = (region,) if region else context.regions
    known = {str(row.reason.get("region")): row for row in rows if row.cluster_id}
    return next((known[name] for name in wanted if name in known), None)
