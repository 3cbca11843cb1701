"""The manager's pass over one ShardConfig: read, decide, write.

    take expired Leases ─▶ phases ─▶ slot table ─▶ number of shards ─▶ create, drain, remove ─▶ statuses

Every write is at the resourceVersion that was read and carries the fence of the leader. A conflict ends the pass; the
next one reads again. A pass never waits for a worker: it sees the workers' progress in the caches.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace

from shoal.base.logs import get_logger
from shoal.crds.shard import InstanceSpec, seconds, written
from shoal.errors import Conflict, NotFound
from shoal.kube.objects import Obj
from shoal.kube.times import format_micro_time, parse_epoch
from shoal.reconcile import DONE, Change, Result
from shoal.reconcile.keys import ObjectKey
from shoal.sharding.leases import LeaseState, next_change_s, taken
from shoal.sharding.manager import lifecycle, scaling
from shoal.sharding.manager.conditions import condition
from shoal.sharding.manager.lifecycle import PhaseDecision, Shard, ShardPhase
from shoal.sharding.manager.memory import ManagerMemory
from shoal.sharding.manager.observed import ManagerInformers, Observed, ObservedInstance, ObservedLease, Observer
from shoal.sharding.manager.pods import BuiltinWorker
from shoal.sharding.manager.provisioning import ShardProvisioner
from shoal.sharding.manager.scaling import Direction, ScalingDecision
from shoal.sharding.manager.slots import TablePlan
from shoal.sharding.manager.table import TableKeeper, still_gathering
from shoal.sharding.manager.view import (
    Pass,
    arrived,
    config_status,
    differs,
    figures_of,
    instance_status,
    members_of,
    participants_of,
    sample_of,
    shards_of,
)
from shoal.sharding.manager.writers import Writers
from shoal.sharding.model import CONFIG_LABEL, TABLES, arcs, largest, slots_by_owner
from shoal.sharding.plan import Members

log = get_logger("sharding.manager")

_LOOK_S = 5.0  # a pass at least this often: samples for scaling
_FIGURES_S = 5.0  # figures in statuses are at most this old
_REFUSED_S = 60.0
_AT_ONCE = 32  # writes


class ShardManager:
    """Reconciles ShardConfigs."""

    def __init__(self, writers: Writers, sources: ManagerInformers, builtin: BuiltinWorker) -> None:
        self._writers = writers
        self._clock = writers.clock
        self._sources = sources
        self._observer = Observer(
            sources,
            writers.configs.overlay,
            writers.instances.overlay,
            writers.tables.overlay,
            writers.leases.overlay,
            writers.pods.overlay,
            builtin=builtin,
        )
        self._table = TableKeeper(writers)
        self._provisioner = ShardProvisioner(writers)
        self.memory: dict[ObjectKey, ManagerMemory] = {}

    def observe_lease(self, change: Change) -> None:
        """A Lease was seen, or it was deleted. The leader and the standbys record it."""
        memory = self._memory_of(change.object)
        if change.new is not None:
            self._observer.note_lease(change.new, memory, self._clock.monotonic())
        else:
            memory.forget(change.key.name)

    def observe_phase(self, change: Change) -> None:
        """A ShardInstance was seen, or it was deleted. The leader and the standbys record it."""
        phases = self._memory_of(change.object).phases
        if change.new is not None:
            phases.saw(change.new, self._clock.monotonic())
        else:
            phases.forget(change.key.name)

    def _memory_of(self, obj: Obj) -> ManagerMemory:
        about = obj["metadata"]
        key = ObjectKey(about.get("namespace") or "", (about.get("labels") or {}).get(CONFIG_LABEL, ""))
        return self.memory.setdefault(key, ManagerMemory())

    async def reconcile(self, key: ObjectKey) -> Result:
        memory = self.memory.setdefault(key, ManagerMemory())
        seen = self._observer.observe(key, memory, self._clock.monotonic())
        if seen is None or seen.config["metadata"].get("deletionTimestamp"):
            await self._abandon(key)
            return DONE
        older = self._older_config(seen)
        if older:
            await self._refuse(
                seen,
                f"{older} has the same name and is older: objects' labels have only the name",
            )
            return Result(after_s=_REFUSED_S)
        seen = await self._take(seen)
        if seen.spec.template is None:
            adopted = await self._provisioner.adopt(seen)
            seen = replace(seen, instances={**seen.instances, **adopted})
        return await self._pass(seen, memory)

    async def _pass(self, seen: Observed, memory: ManagerMemory) -> Result:
        now_s, now_at = self._clock.monotonic(), self._clock.wall_s()
        shards = shards_of(seen, memory, now_s)
        phase_decisions = {
            name: found for name, shard in shards.items() if (found := lifecycle.decide_phase(shard)) is not None
        }
        _apply_decisions(shards, phase_decisions)
        members = members_of(shards)
        participants = participants_of(seen, members)
        if len(seen.tables) < TABLES:
            await self._table.make(seen)
        entries, table = seen.entries, None
        if entries and not still_gathering(seen, shards):
            table = await self._table.advance(seen, memory, members, participants, shards, now_s)
            entries = table.entries
            _note_joined(shards, members, table)
        decision = self._decide(seen, memory, shards, now_s, now_at)
        done = Pass(
            seen=seen, shards=shards, entries=entries, table=table, participants=participants, decision=decision,
            desired=decision.shards, now_at=now_at,
        )  # fmt: skip
        await self._report(done, memory, now_s)
        if seen.spec.template is not None:
            scaled = await self._provisioner.scale(seen, memory, shards, decision.shards)
            phase_decisions |= scaled
            _apply_decisions(shards, scaled)
            await self._provisioner.create_pods(seen, memory, shards)
        for name in await self._provisioner.remove(seen, shards):
            del shards[name]
        await self._write_instances(done, memory, phase_decisions, now_s)
        return Result(after_s=self._again_s(seen, table, now_s))

    def _again_s(self, seen: Observed, table: TablePlan | None, now_s: float) -> float:
        after_s = min(_LOOK_S, max(0.2, min(seconds(seen.spec.sustained_for), seconds(seen.spec.cooldown)) / 4))
        for found in seen.leases.values():
            after_s = min(after_s, next_change_s(found.lease, found.observed_s, now_s))
        if table is None or table.moving or table.pending:
            after_s = min(after_s, 1.0, seconds(seen.spec.migration_timeout))
        return max(0.01, after_s)

    # leases

    async def _take(self, seen: Observed) -> Observed:
        """Take the expired Leases. Only then may other shards get their slots."""
        late = [found for found in seen.leases.values() if found.state is LeaseState.UNCERTAIN]
        now = format_micro_time(self._clock.wall_s())
        answers = await asyncio.gather(*(self._take_one(found, now) for found in late))
        leases = dict(seen.leases)
        for found, ok in zip(late, answers, strict=True):
            if ok:
                shard = found.lease.shard
                leases[shard] = replace(found, state=LeaseState.DEAD)
                text = f"shard {shard} did not renew its Lease for {found.lease.lease_s:g} s; its slots move to others"
                self._writers.record_event(seen.config, "LeaseTaken", text, warning=True)
        return replace(seen, leases=leases)

    async def _take_one(self, found: ObservedLease, now: str) -> bool:
        try:
            await self._writers.leases.replace(taken(found.obj, now))
        except (Conflict, NotFound):
            return False  # its worker was faster
        self._writers.metrics.taken.inc()
        log.warning("took a Lease that was not renewed", shard=found.lease.shard)
        return True

    async def _abandon(self, key: ObjectKey) -> None:
        """The config and its objects are deleted. It does not own Leases: delete those that were released."""
        self.memory.pop(key, None)
        for obj in self._sources.leases.cache:
            about = obj["metadata"]
            ours = about.get("namespace") == key.namespace and about["labels"].get(CONFIG_LABEL) == key.name
            if ours and not (obj.get("spec") or {}).get("holderIdentity"):
                await self._writers.leases.delete_unchanged(obj)

    # accepted or not

    def _older_config(self, seen: Observed) -> str:
        """An older config of the same name in another namespace; empty: there is none."""
        mine = seen.config["metadata"]
        for obj in self._sources.configs.cache:
            other = obj["metadata"]
            if other["name"] == mine["name"] and other["namespace"] != mine["namespace"]:
                if (other["creationTimestamp"], other["uid"]) < (mine["creationTimestamp"], mine["uid"]):
                    return f"{other['namespace']}/{other['name']}"
        return ""

    async def _refuse(self, seen: Observed, message: str) -> None:
        before: Obj = seen.config.get("status") or {}
        known = before.get("conditions") or []
        generation = seen.config["metadata"].get("generation", 0)
        now = condition("Accepted", ("False", "NameTaken", message), known, generation, self._clock.wall_s())
        if now not in known:
            await self._writers.configs.replace_status({**seen.config, "status": {**before, "conditions": [now]}})

    # how many

    def _decide(
        self, seen: Observed, memory: ManagerMemory, shards: Mapping[str, Shard], now_s: float, now_at: float
    ) -> ScalingDecision:
        spec, status = seen.spec, seen.config.get("status") or {}
        sample = sample_of(seen, shards, now_s)
        if sample is not None:
            memory.samples.append(sample)
        horizon_s = max(seconds(spec.sustained_for), seconds(spec.cooldown)) + 2 * _LOOK_S
        while memory.samples and memory.samples[0].at_s < now_s - horizon_s:
            memory.samples.popleft()
        if memory.scaled_s is None and status.get("lastScaleTime"):
            memory.scaled_s = now_s - max(0.0, now_at - parse_epoch(status["lastScaleTime"]))
        state = scaling.ScalingState(
            desired=status.get("desiredShards") or spec.min_shards,
            scaled_s=memory.scaled_s,
            arriving=sum(
                shard.phase is ShardPhase.PENDING or (shard.phase is ShardPhase.RUNNING and not shard.joined)
                for shard in shards.values()
            ),
        )
        active = sum(shard.active for shard in shards.values())
        decision = scaling.joined(spec, arrived(seen), active, state.desired) or scaling.decide(
            spec, tuple(memory.samples), state, now_s
        )
        if decision.direction is not Direction.HOLD:
            memory.scaled_s = now_s
            self._writers.metrics.scalings.labels(decision.direction.value, decision.reason).inc()
            reason = "ScalingUp" if decision.direction is Direction.UP else "ScalingDown"
            text = f"{state.desired} to {decision.shards} shards: {decision.explanation}"
            self._writers.record_event(seen.config, reason, text)
            log.info("scaling", config=str(seen.key), to=decision.shards, reason=decision.explanation)
        return decision

    # statuses

    async def _report(self, done: Pass, memory: ManagerMemory, now_s: float) -> None:
        memory.figures = figures = figures_of(done)
        status = config_status(done, memory, figures)
        before = done.seen.config.get("status") or {}
        if differs(before, status, wholly=self._figures_due(done, memory, "", now_s)):
            await self._writers.configs.replace_status({**done.seen.config, "status": status})
            memory.status_s[""] = now_s

    def _figures_due(self, done: Pass, memory: ManagerMemory, name: str, now_s: float) -> bool:
        """Whether to write changed figures: every 5 s, or with every health check if those are more frequent."""
        pause_s = min(_FIGURES_S, seconds(done.seen.spec.health_check_interval))
        return now_s - memory.status_s.get(name, float("-inf")) >= pause_s

    async def _write_instances(
        self, done: Pass, memory: ManagerMemory, phase_decisions: Mapping[str, PhaseDecision], now_s: float
    ) -> None:
        owned = slots_by_owner(done.entries)
        limit = asyncio.Semaphore(_AT_ONCE)

        async def write(name: str) -> None:
            async with limit:
                await self._write_instance(done, memory, name, owned.get(name, []), phase_decisions.get(name), now_s)

        await asyncio.gather(*map(write, done.shards))

    async def _write_instance(
        self,
        done: Pass,
        memory: ManagerMemory,
        name: str,
        slots: list[int],
        decision: PhaseDecision | None,
        now_s: float,
    ) -> None:
        instance, shard = done.seen.instances[name], done.shards[name]
        at_rest = done.table is not None and not done.table.moving and not done.table.pending
        due = decision is not None or self._figures_due(done, memory, name, now_s)
        obj = await self._write_ranges(instance, slots) if due or at_rest else instance.obj
        status = instance_status(instance, shard, done, memory, slots, decision.reason if decision is not None else "")
        if differs(obj.get("status") or {}, status, wholly=due):
            await self._writers.instances.replace_status({**obj, "status": status})
            memory.status_s[name] = now_s
        if decision is not None and shard.phase.value != instance.status.phase:
            warning = shard.phase is ShardPhase.FAILED
            self._writers.record_event(
                instance.obj, shard.phase.value, f"{decision.reason}: {decision.text}", warning=warning
            )

    async def _write_ranges(self, instance: ObservedInstance, slots: list[int]) -> Obj:
        """Also where a user has set them, for example by applying a file again."""
        ranges = arcs(slots)
        widest = largest(ranges)
        spec: InstanceSpec = instance.spec
        if (widest, ranges) == (spec.hash_range, spec.hash_ranges):
            return instance.obj
        kept = {k: v for k, v in instance.obj["spec"].items() if k not in ("hashRange", "hashRanges")}
        if widest is not None:
            kept |= {"hashRange": written(widest), "hashRanges": [written(each) for each in ranges]}
        return await self._writers.instances.replace({**instance.obj, "spec": kept})


def _apply_decisions(shards: dict[str, Shard], phase_decisions: Mapping[str, PhaseDecision]) -> None:
    """Put the shards into their new phases."""
    for name, decision in phase_decisions.items():
        shard = shards[name]
        if decision.phase is shard.phase:
            continue
        lifecycle.transition(shard.phase, decision.phase)
        # a shard that runs again receives a share again
        joined = shard.joined and decision.phase is not ShardPhase.RUNNING
        shards[name] = replace(shard, phase=decision.phase, reason=decision.reason, phase_age_s=0.0, joined=joined)


def _note_joined(shards: dict[str, Shard], members: Members, table: TablePlan) -> None:
    """A new shard has joined when it owns slots and no move from or to it is left."""
    owners = {entry.owner for entry in table.entries}
    for name in members.joining:
        if name in owners and name not in table.waiting_for:
            shards[name] = replace(shards[name], joined=True)
