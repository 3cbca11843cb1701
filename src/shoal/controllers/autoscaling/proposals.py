"""Reads each metric of an autoscaler and computes its proposal with ``plan``."""

from __future__ import annotations

from dataclasses import dataclass

from shoal.client import Client
from shoal.controllers.autoscaling.metrics import MetricsReader
from shoal.controllers.autoscaling.model import MetricError, PodSample, Proposal, Tolerance
from shoal.controllers.autoscaling.plan import (
    for_average,
    for_share,
    for_total,
    for_utilization,
    group_pods,
    pod_request,
)
from shoal.errors import NotFound
from shoal.kube.objects import Obj
from shoal.kube.quantity import Quantity, parse


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleTarget:
    """The scaled workload, from its scale subresource."""

    namespace: str
    selector: str
    replicas: int  # desired
    present: int  # actual
    pods: tuple[Obj, ...]


def milli_text(milli: int) -> str:
    """Thousandths as a quantity: 1500 is ``1500m``, 2000 is ``2``."""
    return str(Quantity(milli, -3)) if milli % 1000 else str(Quantity(milli // 1000))


class Proposals:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._metrics = MetricsReader(client)

    async def of(self, metric: Obj, target: ScaleTarget, tolerance: Tolerance, now: float) -> Proposal:
        kind = metric["type"]
        if kind == "Resource":
            return await self._resource(metric["resource"], target, tolerance, now)
        if kind == "ContainerResource":
            source = metric["containerResource"]
            return await self._resource(source, target, tolerance, now, container=source["container"])
        if kind == "Pods":
            return await self._pods(metric["pods"], target, tolerance, now)
        if kind == "Object":
            return await self._object(metric["object"], target, tolerance)
        if kind == "External":
            return await self._external(metric["external"], target, tolerance)
        raise MetricError(f'unknown metric source type "{kind}"', "InvalidMetricSourceType")

    async def _resource(
        self, source: Obj, target: ScaleTarget, tolerance: Tolerance, now: float, container: str = ""
    ) -> Proposal:
        name, wanted = source["name"], source["target"]
        samples = await self._metrics.of_pods(name, target.namespace, target.selector, container)
        samples = _known(samples, target)
        groups = group_pods(target.pods, samples, name, now)
        current: Obj
        if wanted.get("averageValue") is not None:
            average = parse(str(wanted["averageValue"])).milli()
            replicas, used = for_average(target.replicas, average, samples, groups, tolerance)
            current, title = {"averageValue": milli_text(used)}, f"{name} resource"
        else:
            counted = [pod for pod in target.pods if pod["metadata"]["name"] not in groups.ignored]
            requests = {pod["metadata"]["name"]: pod_request(pod, name, container) for pod in counted}
            replicas, percent, used = for_utilization(
                target.replicas, wanted["averageUtilization"], samples, requests, groups, tolerance
            )
            current = {"averageUtilization": percent, "averageValue": milli_text(used)}
            title = f"{name} resource utilization (percentage of request)"
        if not container:
            status = {"type": "Resource", "resource": {"name": name, "current": current}}
            return Proposal(replicas, title, status)
        about = {"name": name, "container": container, "current": current}
        title = f"{name} container resource utilization (percentage of request)"
        return Proposal(replicas, title, {"type": "ContainerResource", "containerResource": about})

    async def _pods(self, source: Obj, target: ScaleTarget, tolerance: Tolerance, now: float) -> Proposal:
        metric = source["metric"]
        samples = _known(await self._metrics.of_pods_custom(metric, target.namespace, target.selector), target)
        groups = group_pods(target.pods, samples, "", now)
        average = parse(str(source["target"]["averageValue"])).milli()
        replicas, used = for_average(target.replicas, average, samples, groups, tolerance)
        about = {"metric": metric, "current": {"averageValue": milli_text(used)}}
        return Proposal(replicas, f"pods metric {metric['name']}", {"type": "Pods", "pods": about})

    async def _object(self, source: Obj, target: ScaleTarget, tolerance: Tolerance) -> Proposal:
        metric, described = source["metric"], source["describedObject"]
        try:
            resource = (await self._client.by_kind(described["kind"], described.get("apiVersion", ""))).type.qualified
        except NotFound as error:
            raise MetricError(str(error), "FailedGetObjectMetric") from error
        total = await self._metrics.of_object(metric, target.namespace, resource, described["name"])
        replicas, current = _single(source["target"], total, target, tolerance)
        about = {"metric": metric, "describedObject": described, "current": current}
        return Proposal(replicas, f"{described['kind']} metric {metric['name']}", {"type": "Object", "object": about})

    async def _external(self, source: Obj, target: ScaleTarget, tolerance: Tolerance) -> Proposal:
        metric = source["metric"]
        total = await self._metrics.external(metric, target.namespace)
        replicas, current = _single(source["target"], total, target, tolerance)
        name = f"external metric {metric['name']}"
        return Proposal(replicas, name, {"type": "External", "external": {"metric": metric, "current": current}})


def _known(samples: dict[str, PodSample], target: ScaleTarget) -> dict[str, PodSample]:
    """The samples of existing pods: the metrics API may lag."""
    if not target.pods:
        raise MetricError("no pods returned by selector while calculating replica count")
    names = {pod["metadata"]["name"] for pod in target.pods}
    return {name: sample for name, sample in samples.items() if name in names}


def _single(wanted: Obj, total: int, target: ScaleTarget, tolerance: Tolerance) -> tuple[int, Obj]:
    """A proposal for a metric that is not per pod: against a value, or divided by all pods."""
    if wanted.get("averageValue") is not None:
        average = parse(str(wanted["averageValue"])).milli()
        replicas, share = for_share(target.present, average, total, tolerance)
        return replicas, {"averageValue": milli_text(share)}
    ready = sum(_is_ready(pod) for pod in target.pods)
    value = parse(str(wanted["value"])).milli()
    return for_total(target.replicas, value, total, ready, tolerance), {"value": milli_text(total)}


def _is_ready(pod: Obj) -> bool:
    status = pod.get("status") or {}
    conditions = status.get("conditions") or ()
    return status.get("phase") == "Running" and any(
        each["type"] == "Ready" and each["status"] == "True" for each in conditions
    )
