"""Input and output of a pass, pure: shards, members and participants of moves from observations; and the statuses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from shoal.crds.shard import HealthStatus, InstanceStatus, written
from shoal.kube.objects import Obj
from shoal.kube.times import format_time
from shoal.sharding.leases import LeaseState
from shoal.sharding.manager.conditions import ConditionFacts, condition, config_conditions
from shoal.sharding.manager.lifecycle import PodState, Shard, ShardPhase
from shoal.sharding.manager.memory import ManagerMemory, PassFigures
from shoal.sharding.manager.observed import Observed, ObservedInstance
from shoal.sharding.manager.pods import pod_problem, pod_state, template_hash
from shoal.sharding.manager.scaling import Direction, LoadSample, ScalingDecision
from shoal.sharding.manager.slots import TablePlan
from shoal.sharding.migration.plan import MoveParticipant, is_held
from shoal.sharding.model import JOINED, SlotEntry
from shoal.sharding.plan import Members

_ALIVE = frozenset({LeaseState.READY, LeaseState.EXPIRED, LeaseState.UNCERTAIN})
_NAMES_SHOWN = 100


def slots_per_shard(entries: Iterable[SlotEntry]) -> Counter[str]:
    """How many slots involve each shard: those it owns, those that move to it, and those that may return to it."""
    listed = tuple(entries)
    counts = Counter(entry.owner for entry in listed)
    for entry in listed:
        if entry.move is not None:
            counts.update({entry.move.to, entry.move.source} - {entry.owner})
    del counts[""]
    return counts


def shards_of(seen: Observed, memory: ManagerMemory, now_s: float) -> dict[str, Shard]:
    counts = slots_per_shard(seen.entries)
    wanted = template_hash(seen.spec)
    return {
        name: _shard(seen, memory, instance, counts[name], wanted, now_s) for name, instance in seen.instances.items()
    }


def _shard(
    seen: Observed, memory: ManagerMemory, instance: ObservedInstance, slots: int, template: str, now_s: float
) -> Shard:
    spec, status, name = instance.spec, instance.status, instance.name
    lease = seen.leases.get(name)
    ours = bool(spec.template_hash)
    threshold = seen.spec.health_check.failure_threshold if seen.spec.health_check is not None else 3
    return Shard(
        name=name,
        phase=ShardPhase(status.phase),
        phase_age_s=memory.phases.saw(instance.obj, now_s),
        reason=status.reason,
        lease=lease.state if lease is not None else None,
        leaving=lease is not None and lease.lease.leaving,
        pod=pod_state(seen.pods.get(name), expected=ours),
        slots=slots,
        joined=status.joined,
        load=lease.lease.report.effective_load if lease is not None else 0.0,
        outdated=ours and spec.template_hash != template,
        replaces=spec.replaces,
        drain=spec.drain,
        unhealthy=name in memory.health and memory.health[name].errors >= threshold,
    )


def members_of(shards: Mapping[str, Shard]) -> Members:
    """Which shards may own slots, and which take over the slots of others."""
    waiting = {shard.name for shard in shards.values() if _waits(shard, shards)}
    able = {shard.name for shard in shards.values() if _able(shard)} - waiting
    fresh = any(not shards[name].outdated for name in able)
    settled: list[str] = []
    joining: list[str] = []
    keeping: list[str] = []
    successors: dict[str, str] = {}
    for shard in shards.values():
        if shard.phase is not ShardPhase.RUNNING or shard.lease not in _ALIVE:
            continue
        if shard.name not in able or (shard.outdated and fresh):
            keeping.append(shard.name)
            continue
        (settled if shard.joined else joining).append(shard.name)
        if shard.replaces in shards and shards[shard.replaces].slots:
            successors[shard.replaces] = shard.name  # if the old shard has no slots, the new one joins normally
    return Members(
        settled=tuple(sorted(settled)), joining=tuple(sorted(joining)), keeping=tuple(sorted(keeping)),
        successors=successors,
    )  # fmt: skip


def _waits(shard: Shard, shards: Mapping[str, Shard]) -> bool:
    """Whether the shard that it replaces still runs."""
    return shard.replaces in shards and shards[shard.replaces].phase is ShardPhase.RUNNING


def _able(shard: Shard) -> bool:
    return (
        shard.phase is ShardPhase.RUNNING
        and shard.lease is LeaseState.READY
        and not shard.leaving
        and not shard.unhealthy
        and shard.pod is not PodState.LEAVING
    )


def participants_of(seen: Observed, members: Members) -> dict[str, MoveParticipant]:
    receiving = frozenset(members.receiving)
    return {
        name: MoveParticipant(
            term=found.lease.term,
            alive=found.state in _ALIVE,
            receiving=name in receiving,
            acks=found.lease.acks,
        )
        for name, found in seen.leases.items()
    }


def sample_of(seen: Observed, shards: Mapping[str, Shard], now_s: float) -> LoadSample | None:
    """A sample of the live shards; None when there are none."""
    reports = [
        seen.leases[name].lease.report
        for name, shard in shards.items()
        if shard.phase is ShardPhase.RUNNING and shard.lease is LeaseState.READY and seen.leases[name].lease.reported
    ]
    if not reports:
        return None
    count = len(reports)
    names = {name for report in reports for name in report.metrics}
    return LoadSample(
        at_s=now_s,
        shards=count,
        load=sum(report.effective_load for report in reports) / count,
        queue_depth=sum(report.queue_depth for report in reports) / count,
        latency_s=max(report.latency_s for report in reports),
        metrics={name: sum(report.metrics.get(name, 0.0) for report in reports) / count for name in names},
    )


# statuses


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """Results of a pass that the statuses show."""

    seen: Observed
    shards: Mapping[str, Shard]  # in their new phases
    entries: Sequence[SlotEntry]
    table: TablePlan | None
    participants: Mapping[str, MoveParticipant]
    decision: ScalingDecision
    desired: int
    now_at: float


def figures_of(done: Pass) -> PassFigures:
    live = [
        shard for shard in done.shards.values() if shard.phase is ShardPhase.RUNNING and shard.lease is LeaseState.READY
    ]
    reports = [done.seen.leases[shard.name].lease.report for shard in live]
    return PassFigures(
        phases=dict(Counter(shard.phase.value for shard in done.shards.values())),
        healthy=sum(not shard.unhealthy for shard in live),
        load=sum(shard.load for shard in live),
        queue_depth=sum(report.queue_depth for report in reports),
        unowned=sum(not is_held(entry, done.participants) for entry in done.entries),
        moving=sum(entry.move is not None for entry in done.entries),
    )


def config_status(done: Pass, memory: ManagerMemory, figures: PassFigures) -> Obj:
    seen = done.seen
    before: Obj = seen.config.get("status") or {}
    current = [shard for shard in done.shards.values() if shard.phase is not ShardPhase.TERMINATED]
    live = figures.phases.get("Running", 0)
    made: Obj = {
        "observedGeneration": seen.config["metadata"].get("generation", 0),
        "currentShards": len(current),
        "healthyShards": figures.healthy,
        "desiredShards": done.desired,
        "drainingShards": figures.phases.get("Draining", 0),
        "updatedShards": sum(not shard.outdated for shard in current),
        "totalLoad": round(figures.load, 3),
        "averageLoad": round(figures.load / live, 3) if live else 0.0,
        "queueDepth": figures.queue_depth,
        "strategy": seen.spec.load_balance_strategy,
        "assignedCount": memory.objects.total,
        "unassignedSlots": figures.unowned,
        "movingSlots": figures.moving,
        "epoch": max((entry.epoch for entry in done.entries), default=before.get("epoch", 0)),
        "decision": f"{done.decision.reason}: {done.decision.explanation}",
    }
    for name in ("lastScaleTime", "lastScale"):
        if name in before:
            made[name] = before[name]
    if done.decision.direction is not Direction.HOLD:
        made["lastScaleTime"] = format_time(done.now_at)
        made["lastScale"] = f"{done.decision.direction} to {done.desired}: {done.decision.explanation}"
    made["conditions"] = _conditions(done, memory, figures, before.get("conditions") or [])
    return made


def _conditions(done: Pass, memory: ManagerMemory, figures: PassFigures, before: Sequence[Obj]) -> list[Obj]:
    seen = done.seen
    starting = {name: shard for name, shard in done.shards.items() if shard.phase is ShardPhase.PENDING}
    problems = {name: text for name in starting if (text := pod_problem(seen.pods.get(name)))}
    facts = ConditionFacts(
        name=seen.key.name,
        generation=seen.config["metadata"].get("generation", 0),
        spec=seen.spec,
        figures=figures,
        decision=done.decision,
        pending_moves=done.table.pending if done.table is not None else 0,
        targets_named=bool((seen.config.get("spec") or {}).get("targets")),
        target_problems=memory.target_problems,
        pod_problems={**problems, **{name: text for name, text in memory.refused_pods.items() if name in starting}},
    )
    return config_conditions(facts, before, done.now_at)


def instance_status(
    instance: ObservedInstance,
    shard: Shard,
    done: Pass,
    memory: ManagerMemory,
    owned: Sequence[int],
    changed_reason: str,
) -> Obj:
    lease = done.seen.leases.get(instance.name)
    health, report = memory.health.get(instance.name), lease.lease.report if lease is not None else None
    before = instance.status
    moved_on = shard.phase.value != before.phase
    names = [name for slot in owned for name in memory.objects.names.get(slot, ())][:_NAMES_SHOWN]
    status = InstanceStatus(
        phase=shard.phase.value,
        phase_since=format_time(done.now_at) if moved_on or not before.phase_since else before.phase_since,
        reason=changed_reason if moved_on else before.reason,
        state=shard.lease.value if shard.lease is not None else "",
        term=lease.lease.term if lease is not None and shard.phase is not ShardPhase.TERMINATED else before.term,
        joined=shard.joined,
        load=round(report.effective_load, 3) if report is not None else 0.0,
        queue_depth=report.queue_depth if report is not None else 0,
        last_heartbeat=lease.lease.renewed_at if lease is not None and lease.lease.held else before.last_heartbeat,
        slots=len(owned),
        assigned_count=sum(memory.objects.counts[slot] for slot in owned),
        assigned_resources=names,
        health_status=HealthStatus(
            healthy=shard.phase is ShardPhase.RUNNING and shard.lease is LeaseState.READY and not shard.unhealthy,
            last_check=health.checked_at if health is not None else "",
            error_count=health.errors if health is not None else 0,
            message=health.message if health is not None else "",
        ),
        conditions=_joined(instance, done),
    )
    return {"phase": status.phase, "load": status.load, **written(status)}


def _joined(instance: ObservedInstance, done: Pass) -> list[Obj]:
    about = instance.obj["metadata"]
    if JOINED not in (about.get("annotations") or {}):
        return []
    said = ("True", "Joined", f"it is a shard of ShardConfig {done.seen.key.name}")
    return [condition("Joined", said, instance.status.conditions, about.get("generation", 0), done.now_at)]


def arrived(seen: Observed) -> list[str]:
    """Shards that users created and that no pass has seen yet."""
    return [
        name
        for name, instance in seen.instances.items()
        if JOINED in (instance.obj["metadata"].get("annotations") or {})
        and "phase" not in (instance.obj.get("status") or {})
    ]


VOLATILE = frozenset(
    {"load", "queueDepth", "lastHeartbeat", "assignedCount", "assignedResources", "healthStatus", "totalLoad",
     "averageLoad", "decision", "movingSlots", "slots", "conditions", "epoch", "term"}
)  # fmt: skip


def differs(before: Obj, after: Obj, *, wholly: bool) -> bool:
    """Whether to write a status: with ``wholly`` at any difference, else only when more than figures changed."""
    if before == after:
        return False
    if wholly:
        return True
    return {k: v for k, v in before.items() if k not in VOLATILE} != {
        k: v for k, v in after.items() if k not in VOLATILE
    }
