"""Builds the manager's components and their watches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from shoal.base.clock import Clock
from shoal.base.metrics import Metrics
from shoal.client import Scope, builtin
from shoal.kube.objects import Obj
from shoal.reconcile import (
    Change,
    Controller,
    ControllerConfig,
    EventRecorder,
    Manager,
    RateLimit,
    ReconcileMetrics,
)
from shoal.reconcile.keys import ObjectKey
from shoal.sharding.leases import ACKS, LEAVING, read_lease
from shoal.sharding.manager.admission import Assigner
from shoal.sharding.manager.health import HealthMonitor, Probe, http_probe
from shoal.sharding.manager.joining import InstanceJoiner, is_member
from shoal.sharding.manager.memory import ManagerMemory, PassFigures
from shoal.sharding.manager.metrics import ShardMetrics
from shoal.sharding.manager.observed import ManagerInformers
from shoal.sharding.manager.pods import BuiltinWorker
from shoal.sharding.manager.reconcile import ShardManager
from shoal.sharding.manager.sweep import SweepDeps
from shoal.sharding.manager.sweeper import Sweeper
from shoal.sharding.manager.writers import CONFIGS, INSTANCES, LEASES, PODS, TABLE, WriterDeps, Writers
from shoal.sharding.model import CONFIG_LABEL

_WORKERS = 5  # configs at a time
_PHASES = ("Pending", "Running", "Draining", "Failed", "Terminated")


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerDeps:
    """Dependencies of a manager, from its process."""

    clock: Clock
    random: Callable[[], float]
    new_id: Callable[[], str]
    new_suffix: Callable[[], str]
    metrics: Metrics
    builtin: BuiltinWorker = BuiltinWorker()
    probe: Probe | None = None
    kept_s: float = 60.0  # terminated shards are shown for this long
    period_s: float = 300.0  # between two rounds of the sweep


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerComponents:
    manager: ShardManager
    sweeper: Sweeper
    health: HealthMonitor
    sources: ManagerInformers
    controller: Controller
    metrics: ShardMetrics
    loops: ReconcileMetrics
    assigner: Assigner


def add(
    manager: Manager, events: EventRecorder, deps: ManagerDeps, *, before: ManagerComponents | None = None
) -> ManagerComponents:
    """Add the components to a manager that is not running yet. ``before`` are those of the previous term in this
    process: metrics and observations of Leases and phases continue from them."""
    labelled = Scope(label_selector=CONFIG_LABEL)
    sources = ManagerInformers(
        configs=manager.informer(CONFIGS),
        instances=manager.informer(INSTANCES),
        tables=manager.informer(TABLE),
        leases=manager.informer(LEASES, labelled),
        pods=manager.informer(PODS, labelled),
    )
    namespaces = manager.informer(builtin("namespaces"))
    metrics = before.metrics if before is not None else ShardMetrics(deps.metrics)
    loops = before.loops if before is not None else ReconcileMetrics(deps.metrics)
    writers = Writers(
        WriterDeps(
            client=manager.client,
            events=events,
            clock=deps.clock,
            metrics=metrics,
            new_suffix=deps.new_suffix,
            kept_s=deps.kept_s,
        )
    )
    shards = ShardManager(writers, sources, deps.builtin)
    controller = Controller(
        "shards", shards.reconcile, clock=deps.clock, random=deps.random, new_id=deps.new_id,
        metrics=loops,
        config=ControllerConfig(workers=_WORKERS, limit=RateLimit(base_s=0.02, cap_s=30.0)),
    )  # fmt: skip
    # before the controller's own handler: a pass needs the observation
    sources.leases.cache.add_handler(shards.observe_lease)
    sources.instances.cache.add_handler(shards.observe_phase)
    controller.watches(sources.configs, when=_more_than_status)
    for informer in (sources.instances, sources.tables, sources.pods):
        controller.maps(informer, _config_of)
    controller.maps(sources.leases, _config_of, when=_more_than_a_heartbeat)
    joiner = InstanceJoiner(writers, sources, deps.builtin)
    joining = Controller(
        "shard-instances", joiner.reconcile, clock=deps.clock, random=deps.random, new_id=deps.new_id, metrics=loops,
        config=ControllerConfig(workers=1, limit=RateLimit(base_s=0.05, cap_s=30.0)),
    )  # fmt: skip
    joining.watches(sources.instances, when=lambda change: change.new is not None and not is_member(change.new))
    joining.maps(sources.configs, joiner.unjoined, when=_more_than_status)
    sweep_deps = SweepDeps(
        client=manager.client,
        clock=deps.clock,
        random=deps.random,
        metrics=metrics,
        namespaces=namespaces,
        period_s=deps.period_s,
    )
    sweeper = Sweeper(sweep_deps, sources, shards.memory)
    probe = deps.probe or partial(http_probe, clock=deps.clock)
    health = HealthMonitor(sources, shards.memory, clock=deps.clock, probe=probe, wake=controller.queue.add)
    for part in (controller, joining, sweeper, health):
        manager.add(part)
    if before is not None:
        for key, memory in before.manager.memory.items():
            shards.memory[key] = ManagerMemory(
                observations=memory.observations, phases=memory.phases, objects=memory.objects
            )
    _follow(metrics, shards)
    return ManagerComponents(
        manager=shards, sweeper=sweeper, health=health, sources=sources, controller=controller, metrics=metrics,
        loops=loops, assigner=Assigner(sources, namespaces.cache, sweeper.chooser, metrics),
    )  # fmt: skip


def _config_of(obj: Obj) -> tuple[ObjectKey, ...]:
    about = obj["metadata"]
    name = (about.get("labels") or {}).get(CONFIG_LABEL)
    return (ObjectKey(about.get("namespace") or "", name),) if name else ()


def _more_than_status(change: Change) -> bool:
    if change.old is None or change.new is None:
        return True
    before, after = change.old["metadata"], change.new["metadata"]
    return bool(
        before.get("generation") != after.get("generation")
        or before.get("deletionTimestamp") != after.get("deletionTimestamp")
    )


def _more_than_a_heartbeat(change: Change) -> bool:
    """Renewals alone are recorded but do not start a pass."""
    if change.old is None or change.new is None:
        return True
    old, new = change.old["metadata"].get("annotations") or {}, change.new["metadata"].get("annotations") or {}
    if any(old.get(name) != new.get(name) for name in (ACKS, LEAVING)):
        return True
    before, after = read_lease(change.old), read_lease(change.new)
    return (before.holder, before.term, before.lease_s) != (after.holder, after.term, after.lease_s)


def _follow(metrics: ShardMetrics, shards: ShardManager) -> None:
    def figures() -> list[PassFigures]:
        return [memory.figures for memory in shards.memory.values() if memory.figures is not None]

    for phase in _PHASES:
        metrics.shards.follow(partial(_in_phase, figures, phase), phase)
    metrics.healthy.follow(lambda: float(sum(each.healthy for each in figures())))
    metrics.load.follow(lambda: _average(figures()))
    metrics.queue_depth.follow(lambda: float(sum(each.queue_depth for each in figures())))
    metrics.unowned.follow(lambda: float(sum(each.unowned for each in figures())))
    metrics.moving.follow(lambda: float(sum(each.moving for each in figures())))
    metrics.resources.follow(lambda: float(sum(memory.objects.total for memory in shards.memory.values())))


def _in_phase(figures: Callable[[], list[PassFigures]], phase: str) -> float:
    return float(sum(each.phases.get(phase, 0) for each in figures()))


def _average(figures: list[PassFigures]) -> float:
    live = sum(each.phases.get("Running", 0) for each in figures)
    return sum(each.load for each in figures) / live if live else 0.0
