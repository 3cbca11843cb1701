"""Reads metrics from the resource, custom and external metrics APIs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from shoal.client import Client, TransportError
from shoal.controllers.autoscaling.model import MetricError, PodSample
from shoal.errors import ApiError
from shoal.kube.objects import Obj
from shoal.kube.quantity import parse
from shoal.kube.times import parse_duration, parse_epoch

_RESOURCE = "/apis/metrics.k8s.io/v1beta1"
_CUSTOM = "/apis/custom.metrics.k8s.io/v1beta2"
_EXTERNAL = "/apis/external.metrics.k8s.io/v1beta1"
_WINDOW = "1m"


class MetricsReader:
    def __init__(self, client: Client) -> None:
        self._client = client

    async def _get(self, path: str, params: Mapping[str, str], what: str, reason: str) -> Any:
        try:
            return await self._client.request("GET", path, params={k: v for k, v in params.items() if v} or None)
        except (ApiError, TransportError) as error:
            raise MetricError(f"unable to get {what}: {error}", reason) from error

    async def of_pods(self, resource: str, namespace: str, selector: str, container: str = "") -> dict[str, PodSample]:
        """The resource usage of pods, or of one container of each."""
        what, reason = f"metrics for resource {resource}", "FailedGetResourceMetric"
        if container:
            reason = "FailedGetContainerResourceMetric"
        path = f"{_RESOURCE}/namespaces/{namespace}/pods"
        found = await self._get(path, {"labelSelector": selector}, what, reason)
        samples = {
            item["metadata"]["name"]: sample
            for item in found.get("items") or ()
            if (sample := _sample(item, resource, container)) is not None
        }
        if not samples:
            raise MetricError(f"unable to get {what}: no metrics returned from resource metrics API", reason)
        return samples

    async def of_pods_custom(self, metric: Obj, namespace: str, selector: str) -> dict[str, PodSample]:
        params = {"labelSelector": selector, "metricLabelSelector": selector_text(metric.get("selector"))}
        path = f"{_CUSTOM}/namespaces/{namespace}/pods/*/{quote(metric['name'])}"
        what, reason = f"metric {metric['name']}", "FailedGetPodsMetric"
        items = (await self._get(path, params, what, reason)).get("items") or ()
        if not items:
            raise MetricError(f"unable to get {what}: no metrics returned from custom metrics API", reason)
        return {
            item["describedObject"]["name"]: PodSample(
                milli=parse(str(item["value"])).milli(), at=parse_epoch(item["timestamp"]),
                window_s=float(item.get("windowSeconds") or 0),
            )
            for item in items
        }  # fmt: skip

    async def of_object(self, metric: Obj, namespace: str, resource: str, name: str) -> int:
        """The value of a metric of one object, in thousandths; ``resource`` is plural.group. For namespaces it is
        always the autoscaler's own, whichever is named."""
        params = {"metricLabelSelector": selector_text(metric.get("selector"))}
        whose = "metrics" if resource == "namespaces" else f"{resource}/{quote(name)}"
        path = f"{_CUSTOM}/namespaces/{namespace}/{whose}/{quote(metric['name'])}"
        what, reason = f"metric {metric['name']}", "FailedGetObjectMetric"
        items = (await self._get(path, params, what, reason)).get("items") or ()
        if not items:
            raise MetricError(f"unable to get {what}: no metrics returned from custom metrics API", reason)
        return parse(str(items[0]["value"])).milli()

    async def external(self, metric: Obj, namespace: str) -> int:
        """The sum of all values of a metric, in thousandths."""
        params = {"labelSelector": selector_text(metric.get("selector"))}
        path = f"{_EXTERNAL}/namespaces/{namespace}/{quote(metric['name'])}"
        what, reason = f"external metric {namespace}/{metric['name']}", "FailedGetExternalMetric"
        items = (await self._get(path, params, what, reason)).get("items") or ()
        if not items:
            raise MetricError(f"unable to get {what}: no metrics returned from external metrics API", reason)
        return sum(parse(str(item["value"])).milli() for item in items)


def _sample(item: Obj, resource: str, container: str) -> PodSample | None:
    """The sum over the containers; None if one has no sample."""
    total = 0
    seen = False
    for each in item.get("containers") or ():
        if container and each["name"] != container:
            continue
        amount = (each.get("usage") or {}).get(resource)
        if amount is None:
            return None
        total += parse(str(amount)).milli()
        seen = True
    if not seen:
        return None
    window_s = parse_duration(item.get("window") or _WINDOW) / 1e9
    return PodSample(milli=total, at=parse_epoch(item["timestamp"]), window_s=window_s)


def selector_text(selector: Obj | None) -> str:
    """A label selector as text for a query."""
    if not selector:
        return ""
    parts = [f"{key}={value}" for key, value in (selector.get("matchLabels") or {}).items()]
    for each in selector.get("matchExpressions") or ():
        key, operator, values = each["key"], each["operator"], ",".join(each.get("values") or ())
        parts.append({
            "In": f"{key} in ({values})", "NotIn": f"{key} notin ({values})", "Exists": key, "DoesNotExist": f"!{key}",
        }[operator])  # fmt: skip
    return ",".join(parts)
