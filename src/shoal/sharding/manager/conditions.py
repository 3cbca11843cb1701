"""The conditions of a ShardConfig, pure: whether it works, and what is missing, in words.

Accepted       the manager reconciles it
Ready          live shards own all slots; NoWorkers: there is no worker at all
Progressing    slots are moving
TargetsFound   the kinds to share out exist and can be listed; NoTargets: some do not
ScaleBlocked   the number of shards should change and cannot
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shoal.crds.shard import ConfigSpec
from shoal.kube.objects import Obj
from shoal.kube.times import format_time
from shoal.sharding.manager.memory import PassFigures
from shoal.sharding.manager.scaling import Direction, ScalingDecision

_BLOCKED = frozenset({"AtMaximum", "Settling", "Cooldown"})  # reasons to hold although more or fewer are needed

_Condition = tuple[str, str, str]  # status, reason, message


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionFacts:
    """What the conditions of one ShardConfig follow from."""

    name: str
    generation: int
    spec: ConfigSpec  # with the template of built-in workers, if it has those
    figures: PassFigures
    decision: ScalingDecision
    pending_moves: int
    targets_named: bool  # whether spec.targets is set, so that ShardedResources are not shared out by default
    target_problems: Mapping[str, str]  # target -> why its objects cannot be shared out
    pod_problems: Mapping[str, str]  # shard -> why its pod does not start


def config_conditions(facts: ConditionFacts, before: Sequence[Obj], now_at: float) -> list[Obj]:
    found = {
        "Accepted": ("True", "Valid", "the manager reconciles it"),
        "Ready": _ready(facts),
        "Progressing": _progressing(facts),
        "TargetsFound": _targets(facts),
        "ScaleBlocked": _blocked(facts),
    }
    return [condition(kind, now, before, facts.generation, now_at) for kind, now in found.items()]


def condition(kind: str, now: _Condition, before: Sequence[Obj], generation: int, now_at: float) -> Obj:
    known = next((each for each in before if each["type"] == kind), None)
    since = known["lastTransitionTime"] if known is not None and known["status"] == now[0] else format_time(now_at)
    return {
        "type": kind, "status": now[0], "reason": now[1], "message": now[2], "lastTransitionTime": since,
        "observedGeneration": generation,
    }  # fmt: skip


def _ready(facts: ConditionFacts) -> _Condition:
    figures, least = facts.figures, facts.spec.min_shards
    if not figures.phases.get("Running"):
        return "False", "NoWorkers", _no_workers(facts)
    if figures.unowned:
        return "False", "SlotsUnowned", f"{figures.unowned} slots have no live owner"
    if figures.healthy < least:
        return "False", "TooFewShards", f"{figures.healthy} of at least {least} shards are healthy"
    return "True", "AllSlotsOwned", f"{figures.healthy} healthy shards own all slots"


def _no_workers(facts: ConditionFacts) -> str:
    if facts.spec.template is not None:
        starting = facts.figures.phases.get("Pending", 0)
        text = f"no worker runs; {starting} of {facts.decision.shards} shards are starting"
        return text + "".join(f"; {shard}: {why}" for shard, why in list(facts.pod_problems.items())[:1])
    if facts.spec.external_workers:
        why = "spec.externalWorkers is set, so the manager starts none"
    else:
        why = "spec.template is not set, and the built-in worker handles only ShardedResources"
    return (
        f"no worker holds a Lease: {why}. Start workers with "
        f"`shoal shard worker MODULE:NAME --config {facts.name} --shard ID`, or set spec.template"
    )


def _progressing(facts: ConditionFacts) -> _Condition:
    if facts.figures.moving or facts.pending_moves:
        text = f"{facts.figures.moving} slots are moving, {facts.pending_moves} wait for their turn"
        return "True", "SlotsMoving", text
    return "False", "Settled", "no slot is moving"


def _targets(facts: ConditionFacts) -> _Condition:
    if facts.target_problems:
        return "False", "NoTargets", "; ".join(f"{name}: {why}" for name, why in sorted(facts.target_problems.items()))
    if not facts.targets_named:
        return "True", "DefaultTarget", "spec.targets is not set: the shards share ShardedResources"
    return "True", "Served", ", ".join(f"{it.kind}.{it.group}".rstrip(".") for it in facts.spec.targets)


def _blocked(facts: ConditionFacts) -> _Condition:
    decision, running = facts.decision, facts.figures.phases.get("Running", 0)
    if facts.pod_problems:
        text = "; ".join(f"{shard}: {why}" for shard, why in sorted(facts.pod_problems.items())[:3])
        return "True", "PodsNotStarting", text
    if facts.spec.template is None and 0 < running < decision.shards:
        text = f"{decision.shards} shards are wanted and {running} run: start more workers, the manager starts none"
        return "True", "ExternalWorkers", text
    if decision.direction is Direction.HOLD and decision.reason in _BLOCKED:
        return "True", decision.reason, decision.explanation
    return "False", "NotBlocked", f"{decision.shards} shards are wanted"
