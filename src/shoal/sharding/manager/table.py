"""Writes the slot table of a config: creates its objects, writes the plan of ``slots``, deletes states after moves."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress

from shoal.base.logs import get_logger
from shoal.crds.shard import seconds
from shoal.errors import AlreadyExists, NotFound
from shoal.reconcile.keys import ObjectKey
from shoal.sharding.manager.lifecycle import Shard, ShardPhase
from shoal.sharding.manager.memory import ManagerMemory
from shoal.sharding.manager.observed import Observed
from shoal.sharding.manager.slots import TablePlan, TableView, plan_table
from shoal.sharding.manager.writers import Writers, config_reference
from shoal.sharding.migration.plan import MoveOutcome, MoveParticipant
from shoal.sharding.model import SLOTS_PER_TABLE, TABLES, SlotEntry, first_epoch, table_object, table_spec
from shoal.sharding.plan import Members

log = get_logger("sharding.table")

_AT_ONCE = 32  # deletions of states


class TableKeeper:
    def __init__(self, writers: Writers) -> None:
        self._writers = writers

    async def make(self, seen: Observed) -> None:
        """Create the missing objects of the table, with epochs higher than any issued before."""
        known = (seen.config.get("status") or {}).get("epoch", 0)
        epoch = first_epoch(self._writers.clock.wall_s(), known)
        owner = config_reference(seen.config)
        for index in range(TABLES):
            if index in seen.tables:
                continue
            first = index * SLOTS_PER_TABLE
            entries = [SlotEntry(slot=slot, epoch=epoch) for slot in range(first, first + SLOTS_PER_TABLE)]
            with suppress(AlreadyExists):
                await self._writers.tables.create(
                    table_object(seen.key.name, seen.key.namespace, index, entries, owner)
                )

    async def advance(
        self,
        seen: Observed,
        memory: ManagerMemory,
        members: Members,
        participants: Mapping[str, MoveParticipant],
        shards: Mapping[str, Shard],
        now_s: float,
    ) -> TablePlan:
        """Advance moves, assign slots without an owner, start new moves; and write the table."""
        memory.timers.look(seen.entries, now_s)
        plan = self._plan(seen, memory, members, participants, shards, now_s)
        for index in sorted({slot // SLOTS_PER_TABLE for slot in plan.changed}):
            first = index * SLOTS_PER_TABLE
            spec = table_spec(seen.key.name, plan.entries[first : first + SLOTS_PER_TABLE])
            await self._writers.tables.replace({**seen.tables[index], "spec": spec})
        memory.timers.look(plan.entries, now_s)
        self._count(seen, memory, plan, now_s)
        await self._discard(seen.key, [step.discard for step in plan.finished if step.discard])
        return plan

    def _plan(
        self,
        seen: Observed,
        memory: ManagerMemory,
        members: Members,
        participants: Mapping[str, MoveParticipant],
        shards: Mapping[str, Shard],
        now_s: float,
    ) -> TablePlan:
        timeout_s = seconds(seen.spec.migration_timeout)
        view = TableView(
            config=seen.key.name,
            entries=seen.entries,
            participants=participants,
            members=members,
            strategy=seen.spec.load_balance_strategy,
            limit=seen.spec.max_concurrent_migrations,
            weights=memory.objects.counts if memory.objects.known else None,
            loads=_loads(seen, memory, members, shards, now_s),
            rebalance_threshold=seen.spec.rebalance_threshold,
            timed_out=lambda entry: memory.timers.in_step_s(entry, now_s) >= timeout_s,
            may_move=lambda slot: memory.timers.may_move(slot, now_s),
        )
        return plan_table(view)

    def _count(self, seen: Observed, memory: ManagerMemory, plan: TablePlan, now_s: float) -> None:
        metrics, pause_s = self._writers.metrics, seconds(seen.spec.migration_timeout)
        for step in plan.finished:
            well = step.outcome is MoveOutcome.MOVED
            status = "succeeded" if well else "aborted"
            took_s = memory.timers.ended(step.entry.slot, now_s, well=well, pause_s=pause_s)
            metrics.migrations.labels(status).inc()
            metrics.migration_s.labels(status).observe(took_s)
        aborted = [step for step in plan.finished if step.outcome is MoveOutcome.ABORTED]
        if aborted:
            reasons = "; ".join(sorted({step.reason for step in aborted}))
            self._writers.record_event(seen.config, "MovesAborted", f"{len(aborted)} slots: {reasons}", warning=True)
            log.warning("moves were aborted", config=str(seen.key), slots=len(aborted), reasons=reasons)
        if plan.given:
            metrics.given.inc(sum(plan.given.values()))
            shown = ", ".join(f"{count} to {name}" for name, count in sorted(plan.given.items()))
            self._writers.record_event(seen.config, "SlotsGiven", f"slots without an owner: {shown}")
        if plan.rebalanced:
            memory.imbalanced_s = None
            self._writers.record_event(
                seen.config, "Rebalancing", f"{plan.rebalanced} slots move from the busiest shard to the idlest"
            )

    async def _discard(self, key: ObjectKey, names: Iterable[str]) -> None:
        """Delete states that no shard needs any more. The sweeper deletes those that are missed here."""
        limit = asyncio.Semaphore(_AT_ONCE)

        async def discard(name: str) -> None:
            async with limit:
                with suppress(NotFound):
                    await self._writers.states.delete(name, key.namespace)

        await asyncio.gather(*map(discard, names))


def still_gathering(seen: Observed, shards: Mapping[str, Shard]) -> bool:
    """Whether the first shards are still starting: slots that are assigned after that need not move again."""
    if any(entry.owner for entry in seen.entries):
        return False
    return any(shard.phase is ShardPhase.PENDING and shard.phase_age_s < seen.spec.lease_s for shard in shards.values())


def _loads(
    seen: Observed, memory: ManagerMemory, members: Members, shards: Mapping[str, Shard], now_s: float
) -> dict[str, float]:
    """The loads to even out, once they have differed too much for ``sustainedFor``; none before."""
    loads = {name: shards[name].load for name in members.settled}
    if members.joining or len(loads) < 2 or max(loads.values()) - min(loads.values()) <= seen.spec.rebalance_threshold:
        memory.imbalanced_s = None
        return {}
    if memory.imbalanced_s is None:
        memory.imbalanced_s = now_s
    return loads if now_s - memory.imbalanced_s >= seconds(seen.spec.sustained_for) else {}
