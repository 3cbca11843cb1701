"""Asks the checks of rollouts that are under way, in any number of control planes at once.

One pass finds the due checks, claims some of them, asks outside of any transaction, and stores the answers. A check
that this process claimed and could not answer is due again after ``LEASE_MS``, for any control plane.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from sqlalchemy import select

from shoal.base.clock import Clock
from shoal.base.logs import get_logger
from shoal.control.checks.asking import CheckAsker
from shoal.control.checks.metrics import CheckMetrics
from shoal.control.checks.passes import AT_ONCE, OF_ONE_WORKSPACE, count_done, fair_share, of_databases
from shoal.control.checks.plan import CheckAnswer, DueCheck, KnownCheck, answered, due_checks
from shoal.control.checks.reading import read_context
from shoal.control.checks.rows import claim, read_checks, store
from shoal.control.database.engine import Database, Databases
from shoal.control.database.tables import Rollout
from shoal.control.domain.kinds.rollout_checks import CHECKS
from shoal.control.rollout.progress import RUNNING, Progress
from shoal.control.rollout.progress_json import progress_from_json
from shoal.control.rollout.strategy import Strategy
from shoal.control.rollout.strategy_json import strategy_from_json
from shoal.errors import ServiceUnavailable

_EVERY_S = 1.0

AfterCheck = Callable[[str], Awaitable[None]]

_log = get_logger("control.checks")


@dataclass(frozen=True, slots=True)
class WatchedRollout:
    """A rollout under way, as it was read at a version."""

    database: Database
    id: str
    workspace_id: str
    version: int
    strategy: Strategy
    progress: Progress


@dataclass(frozen=True, slots=True)
class _Due:
    rollout: WatchedRollout
    due: DueCheck


class CheckRunner:
    """``after_check`` is called with the rollout's id once an answer is stored, outside of any transaction."""

    def __init__(
        self, databases: Databases, asker: CheckAsker, after_check: AfterCheck, *, clock: Clock, metrics: CheckMetrics
    ) -> None:
        self._databases = databases
        self._asker = asker
        self._after_check = after_check
        self._clock = clock
        self._metrics = metrics
        self._known: dict[str, dict[str, WatchedRollout]] = {}  # by database and id

    async def run(self) -> None:
        """Until cancelled. A failure ends it: it begins again without what it knew."""
        self._known = {}
        while True:
            await self.ask_due()
            await self._clock.sleep(_EVERY_S)

    async def ask_due(self) -> int:
        """One pass. Returns how many checks this process asked."""
        due = await of_databases(self._databases, self._due, "checks")
        chosen = fair_share(due, lambda each: each.rollout.workspace_id, AT_ONCE, OF_ONE_WORKSPACE)
        return await count_done(*(self._ask(each) for each in chosen), name="control-checks/ask")

    async def _due(self, database: Database) -> list[_Due]:
        watched = await self._watched(database)
        if not watched:
            return []
        async with database.reading() as session:
            rows = await read_checks(session, [each.id for each in watched])
        now_ms = database.time.now_ms()
        return [
            _Due(each, due)
            for each in watched
            for due in due_checks(each.strategy, each.progress, rows[each.id], now_ms)
        ]

    async def _watched(self, database: Database) -> list[WatchedRollout]:
        """The rollouts under way that have checks. Only those that changed are read."""
        before = self._known.get(database.name, {})
        async with database.reading() as session:
            asked = await session.execute(select(Rollout.id, Rollout.version).where(Rollout.phase == RUNNING))
            versions = {row.id: row.version for row in asked}
            changed = [id_ for id_, version in versions.items() if id_ not in before or before[id_].version != version]
            rows = list(await session.scalars(select(Rollout).where(Rollout.id.in_(changed)))) if changed else []
        known = {id_: before[id_] for id_ in versions if id_ in before} | {
            row.id: WatchedRollout(
                database, row.id, row.workspace_id, row.version, strategy_from_json(row.strategy),
                progress_from_json(row.progress),
            )
            for row in rows
        }  # fmt: skip
        self._known[database.name] = known
        return [each for each in known.values() if each.strategy.checks]

    async def _ask(self, each: _Due) -> bool:
        rollout, check = each.rollout, each.due.check
        claimed = await rollout.database.run(
            partial(claim, workspace_id=rollout.workspace_id, rollout_id=rollout.id, due=each.due),
            serial=False, short=True,
        )  # fmt: skip
        if claimed is None:
            return False
        answer = await self._answer(rollout, each.due)
        stored = await self._store(rollout, claimed, each.due, answer)
        kind = check.kind if check.kind in CHECKS else "other"
        self._metrics.checks.labels(kind, _result(answer) if stored else "late").inc()
        if stored:
            await self._after_check(rollout.id)
        return True

    async def _answer(self, rollout: WatchedRollout, due: DueCheck) -> CheckAnswer:
        try:
            context = await read_context(
                self._databases, rollout.database, rollout.id, rollout.strategy, rollout.progress
            )
            if context is None:
                return CheckAnswer(passed=None, reason="the app is gone")
            return await self._asker.ask(due.check, context, due)
        except ServiceUnavailable:
            raise
        except Exception as error:  # a fault of ours in one check must not keep others from being asked
            _log.error("a check cannot be asked", rollout=rollout.id, check=due.check.name, error=error)
            return CheckAnswer(passed=None, reason="the control plane could not ask it: see its log")

    async def _store(
        self, rollout: WatchedRollout, claimed: KnownCheck, due: DueCheck, answer: CheckAnswer
    ) -> bool:  # fmt: skip
        after = answered(claimed, due.check, answer, rollout.database.time.now_ms())
        # after the engine, which may be about to write when the rollout is due
        return await rollout.database.run(
            partial(store, rollout_id=rollout.id, claimed=claimed, after=after), short=True
        )


def _result(answer: CheckAnswer) -> str:
    if answer.again_s:
        return "pending"
    return {True: "passed", False: "failed", None: "inconclusive"}[answer.passed]
