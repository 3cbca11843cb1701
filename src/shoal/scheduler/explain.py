"""Explains the scheduling of a pod from the API's objects: lists the objects of any cluster and plans here what the
scheduler would do. Writes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from shoal.base.clock import Clock
from shoal.client import EVERYTHING, Client, builtin
from shoal.errors import Forbidden, NotFound
from shoal.kube.objects import Obj
from shoal.reconcile.cache import Change, ChangeType
from shoal.reconcile.keys import key_of
from shoal.scheduler import messages
from shoal.scheduler.config import SchedulerConfig
from shoal.scheduler.intake import Intake
from shoal.scheduler.model import NodeExplanation
from shoal.scheduler.plan import Planner, Unplaced
from shoal.scheduler.queue import SchedulingQueue, gates_of
from shoal.scheduler.snapshot import Snapshot
from shoal.scheduler.wiring import handlers

_NEEDED = frozenset({"nodes", "pods"})

Lists = Mapping[str, Iterable[Obj]]  # by plural


@dataclass(frozen=True, slots=True)
class PodExplanation:
    """All nodes evaluated for the pod as if it were not scheduled yet, the best first."""

    namespace: str
    name: str
    node: str  # the node it is on; empty if none
    phase: str
    message: str  # why it fits on no node; empty if it fits
    said: str  # the scheduler's last message in the pod's status
    nominated: str  # the node on which preemption makes or could make room
    nodes: tuple[NodeExplanation, ...]
    unseen: tuple[str, ...] = ()  # resources that could not be listed and are treated as empty


async def explain(
    client: Client, namespace: str, name: str, *, clock: Clock, config: SchedulerConfig | None = None
) -> PodExplanation:
    """Read the pod and all objects that affect its placement. Raises ``NotFound`` if the pod does not exist."""
    pod = await client.of(builtin("pods")).get(name, namespace)
    lists: dict[str, list[Obj]] = {}
    unseen: list[str] = []

    async def fetch(plural: str, group: str) -> None:
        try:
            lists[plural] = list((await client.of(builtin(plural, group)).list(EVERYTHING)).items)
        except (Forbidden, NotFound):
            if plural in _NEEDED:
                raise
            unseen.append(plural)

    wanted = [(plural, group) for plural, group, _ in handlers(_intake(SchedulerConfig(), clock)[1])]
    await asyncio.gather(*(fetch(plural, group) for plural, group in wanted))
    return explain_from(pod, lists, clock=clock, config=config, unseen=tuple(sorted(unseen)))


def explain_from(
    pod: Obj, lists: Lists, *, clock: Clock, config: SchedulerConfig | None = None, unseen: tuple[str, ...] = ()
) -> PodExplanation:
    """Like ``explain``, from given lists."""
    planner, intake = _intake(config or SchedulerConfig(), clock)
    own = key_of(pod)
    for plural, _, handler in handlers(intake):
        for obj in lists.get(plural, ()):
            key = key_of(obj)
            if plural != "pods" or key != own:
                handler(Change(type=ChangeType.ADDED, key=key, new=obj))
    info = planner.snapshot.pod_info(pod)
    planner.snapshot.hold(info.shape)
    explained = planner.explain(info)
    message, nominated = explained.message, planner.snapshot.nomination(info)
    if gates := gates_of(info):
        message = messages.gated(gates)
    elif message and explained.nodes and planner.profile(info.shape.scheduler) is not None:
        decided = planner.place(info, lambda: 0.0)
        if isinstance(decided, Unplaced):
            message = decided.message
            if decided.candidate is not None:
                nominated = nominated or planner.snapshot.nodes[decided.candidate.slot].name
    status = pod.get("status") or {}
    return PodExplanation(
        own.namespace, own.name, pod["spec"].get("nodeName") or "", status.get("phase") or "", message, _said(status),
        nominated, explained.nodes, unseen,
    )  # fmt: skip


def _intake(config: SchedulerConfig, clock: Clock) -> tuple[Planner, Intake]:
    planner = Planner(Snapshot(), config)
    return planner, Intake(planner, SchedulingQueue(config), clock=clock, wake=lambda: None)


def _said(status: Obj) -> str:
    conditions = status.get("conditions") or ()
    found: Obj = next((each for each in conditions if each.get("type") == "PodScheduled"), {})
    return str(found.get("message") or "")
