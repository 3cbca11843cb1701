"""Scheduler throughput beside scheduler_perf's: the same cases, against the API server in one process.

    PYTHONPATH=src python bench/scheduler_bench.py [--quick] [CASE ...]

Pods are created (64 at a time) and bound through the API, on the memory store; a case's rate is its measured pods by
the time from the first create to the last binding, creating included. "deciding" is what finding a node takes. The
numbers beside are the thresholds of Kubernetes' performance tests: below them its own runs fail. They too run against
an API server in the same process. Fails when a case stays below its threshold and deciding took more than a tenth of
its time; where it took less, creating, binding and watching are what takes the time, and the line says so. ``--quick``
(a tenth of nodes and pods) never fails.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import uvloop

from shoal.base.clock import RealClock
from shoal.base.ids import Ids
from shoal.base.metrics import Metrics
from shoal.client import Client
from shoal.kube.objects import Obj
from shoal.reconcile import EventRecorder, Manager
from shoal.scheduler.queue import QueueState
from shoal.scheduler.service import Scheduler
from shoal.scheduler.wiring import build
from shoal.testing.fleets import metric_sum
from shoal.testing.servers import LocalServer, local_server
from shoal.testing.waiting import eventually

Template = Callable[[int], Obj]
ZONE, HOSTNAME = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
IN_FLIGHT = 64
_SETTLED_S = 600.0
_OWN_SHARE = 0.1


def pod(at: int, **spec: Any) -> Obj:
    labels = spec.pop("labels", {})
    requests = spec.pop("requests", {"cpu": "100m", "memory": "500Mi"})
    container = {"name": "pause", "image": "registry.k8s.io/pause:3.10", "resources": {"requests": requests}}
    about: Obj = {"generateName": "pod-", "labels": labels}
    if owner := spec.pop("owner", None):
        about["ownerReferences"] = [
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "owner", "uid": owner, "controller": True}
        ]
    return {"metadata": about, "spec": {"containers": [container], **spec}}


def affine(side: str, strength: str, key: str, color: str) -> Template:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"color": color}}}
    terms = [term] if strength == "required" else [{"weight": 1, "podAffinityTerm": term}]
    affinity = {side: {f"{strength}DuringSchedulingIgnoredDuringExecution": terms}}
    return lambda at: pod(at, labels={"color": color}, affinity=affinity)


def spread(hard: bool) -> Template:
    constraint = {
        "maxSkew": 5, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule" if hard else "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"color": "blue"}},
    }  # fmt: skip
    return lambda at: pod(at, labels={"color": "blue"}, topologySpreadConstraints=[constraint])


def in_zone(at: int) -> Obj:
    term = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["zone1", "zone2"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return pod(at, affinity={"nodeAffinity": required})


def daemon(nodes: int) -> Template:
    def template(at: int) -> Obj:
        term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [f"node-{at % nodes}"]}]}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
        return pod(at, affinity={"nodeAffinity": required})

    return template


@dataclass(frozen=True)
class Case:
    name: str
    nodes: int
    initial: int
    measured: int
    threshold: int
    template: Template
    first: Template = pod  # of the initial pods
    zones: int = 3


CASES = (
    Case("SchedulingBasic", 5000, 1000, 10000, 680, pod),
    Case("SchedulingDaemonset", 15000, 0, 30000, 1100, daemon(15000)),
    Case("SchedulingNodeAffinity", 5000, 5000, 10000, 540, in_zone),
    Case("SchedulingPodAntiAffinity", 5000, 1000, 2000, 180, affine("podAntiAffinity", "required", HOSTNAME, "green"),
         affine("podAntiAffinity", "required", HOSTNAME, "green")),
    Case("SchedulingPodAffinity", 5000, 5000, 5000, 70, affine("podAffinity", "required", ZONE, "blue"),
         affine("podAffinity", "required", ZONE, "blue"), zones=1),
    Case("SchedulingPreferredPodAffinity", 5000, 5000, 5000, 160, affine("podAffinity", "preferred", HOSTNAME, "red")),
    Case("SchedulingPreferredPodAntiAffinity", 5000, 5000, 5000, 190,
         affine("podAntiAffinity", "preferred", HOSTNAME, "yellow")),
    Case("TopologySpreading", 5000, 5000, 5000, 460, spread(True)),
    Case("PreferredTopologySpreading", 5000, 5000, 5000, 340, spread(False)),
    Case("DefaultTopologySpreading", 5000, 0, 50000, 160, lambda at: pod(at, labels={"app": "a"}, owner="owner")),
    Case("SchedulingWhileGated", 1, 0, 10000, 910, lambda at: pod(at, requests={}),
         lambda at: pod(at, schedulingGates=[{"name": "hold"}])),
    Case("Unschedulable", 5000, 100, 10000, 590, pod, lambda at: pod(at, requests={"cpu": "64"})),
)  # fmt: skip


async def add_nodes(server: LocalServer, case: Case) -> None:
    pods = "20000" if case.nodes == 1 else "110"
    size = {"cpu": "4" if case.nodes > 1 else "4000", "memory": "32Gi", "pods": pods}

    async def add(at: int) -> None:
        labels = {HOSTNAME: f"node-{at}", ZONE: f"zone{at % case.zones + 1}"}
        about = {"name": f"node-{at}", "labels": labels}
        await server.post("/api/v1/nodes", {"metadata": about, "status": {"capacity": size, "allocatable": size}})
        # no node lifecycle controller runs here that would take away the taint of a new node
        await server.patch(f"/api/v1/nodes/{about['name']}", {"spec": {"taints": None}})

    await many(case.nodes, add)


async def many(count: int, work: Callable[[int], Any]) -> None:
    for start in range(0, count, IN_FLIGHT):
        await asyncio.gather(*(work(at) for at in range(start, min(count, start + IN_FLIGHT))))


async def add_pods(server: LocalServer, count: int, template: Template) -> None:
    await many(count, lambda at: server.post("/api/v1/namespaces/default/pods", template(at)))


async def settled(scheduler: Scheduler, pods: int) -> None:
    """All pods that can be are bound, and the informer has seen it."""
    stuck = (QueueState.UNSCHEDULABLE, QueueState.GATED)

    def is_settled() -> bool:
        waiting = len(scheduler.queue) - sum(scheduler.queue.size(place) for place in stuck)
        return not waiting and len(scheduler.planner.snapshot.pods) + len(scheduler.queue) >= pods

    await eventually(is_settled, timeout_s=_SETTLED_S, every_s=0.002)


async def add_owner(server: LocalServer) -> str:
    template = {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"selector": {"matchLabels": {"app": "a"}}, "template": template, "replicas": 0}
    made = await server.post(
        "/apis/apps/v1/namespaces/default/replicasets", {"metadata": {"name": "owner"}, "spec": spec}
    )
    return str(made["metadata"]["uid"])


def deciding_so_far(metrics: Metrics) -> tuple[float, float]:
    """Seconds spent on finding nodes, and for how many pods."""
    text, name = metrics.render().decode(), "scheduler_scheduling_algorithm_duration_seconds"
    return metric_sum(text, f"{name}_sum"), metric_sum(text, f"{name}_count")


async def run(case: Case) -> tuple[float, float]:
    """Pods per second, and seconds of deciding per pod."""
    clock = RealClock()
    async with local_server() as server:
        await add_nodes(server, case)
        uid = await add_owner(server)
        client = Client(server.transport, clock=clock, field_manager="kube-scheduler")
        events = EventRecorder(client, "default-scheduler", "bench", clock=clock, new_suffix=Ids().new_suffix)
        manager, metrics = Manager(client, clock=clock, random=random.random), Metrics()
        scheduler = build(manager, clock=clock, random=random.random, metrics=metrics, events=events)
        recording = asyncio.create_task(events.run(), name="events")
        managing = asyncio.create_task(manager.run(), name="manager")
        await manager.ready.wait()
        await add_pods(server, case.initial, case.first)
        await settled(scheduler, case.initial)
        gc.collect()
        gc.freeze()
        before, decided = deciding_so_far(metrics)
        template = (lambda at: pod(at, labels={"app": "a"}, owner=uid)) if "Default" in case.name else case.template
        began = time.perf_counter()
        await add_pods(server, case.measured, template)
        await settled(scheduler, case.initial + case.measured)
        took = time.perf_counter() - began
        total, count = deciding_so_far(metrics)
        deciding = (total - before) / max(count - decided, 1)
        manager.stop()
        await managing
        recording.cancel()
        return case.measured / took, deciding


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("cases", nargs="*")
    options = parser.parse_args()
    chosen = [case for case in CASES if not options.cases or case.name in options.cases]
    print(f"{'case':36} {'nodes':>6} {'pods':>6} {'pods/s':>8} {'Kubernetes':>11} {'deciding':>9}")
    failed = False
    for case in chosen:
        if options.quick:
            nodes = max(case.nodes // 10, 1)
            template = daemon(nodes) if "Daemon" in case.name else case.template
            initial, measured = case.initial // 10, case.measured // 10
            case = replace(case, template=template, nodes=nodes, initial=initial, measured=measured)
        rate, deciding = uvloop.run(run(case))
        gc.unfreeze()
        low, share = rate < case.threshold, deciding * rate
        failed = failed or (low and share > _OWN_SHARE)
        remark = "" if not low else f"  below, {100 * share:.0f} % of the time spent deciding"
        print(
            f"{case.name:36} {case.nodes:6} {case.measured:6} {rate:8.0f} {case.threshold:11} {deciding * 1e6:6.0f} µs"
            f"{remark}",
            flush=True,
        )
    return int(failed and not options.quick)


if __name__ == "__main__":
    sys.exit(main())
