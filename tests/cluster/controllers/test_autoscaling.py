"""Autoscalers against an API server with a metrics API beside it, in virtual time."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, closing, suppress
from types import SimpleNamespace

import orjson
import pytest

from shoal.base.clock import FakeClock, RealClock
from shoal.base.tasks import cancel_all
from shoal.client import AccessConfig
from shoal.client.http import HttpTransport
from shoal.client.transport import Reply
from shoal.controllers.autoscaling import wiring
from shoal.kube.times import format_time
from shoal.testing.controllers import running
from shoal.testing.servers import local_server
from shoal.testing.waiting import eventually

LABELS = {"app": "web"}


class WithMetrics:
    """The server's transport, and an answer to those who ask for metrics."""

    def __init__(self, transport, clock):
        self._transport, self._clock = transport, clock
        self.used: dict[str, str] | None = None  # pod -> cpu
        self.external: str | None = None
        self.adapter: HttpTransport | None = None

    async def request(self, method, target, *, headers, body):
        if target.startswith("/apis/metrics.k8s.io/") and self.used is not None:
            return Reply(200, {}, orjson.dumps({"items": [self._pod(*each) for each in self.used.items()]}))
        if target.startswith("/apis/external.metrics.k8s.io/") and self.external is not None:
            return Reply(200, {}, orjson.dumps({"items": [{"value": self.external}]}))
        if target.startswith(("/apis/custom.metrics.k8s.io/", "/apis/external.metrics")) and self.adapter is not None:
            return await self.adapter.request(method, target, headers=headers, body=body)
        return await self._transport.request(method, target, headers=headers, body=body)

    def _pod(self, name, cpu):
        about = {"metadata": {"name": name}, "timestamp": format_time(self._clock.wall_s()), "window": "30s"}
        return about | {"containers": [{"name": "c", "usage": {"cpu": cpu}}]}

    async def stream(self, method, target, *, headers):
        return await self._transport.stream(method, target, headers=headers)

    async def close(self):
        await self._transport.close()


class Adapter:
    """A metrics adapter, over HTTP: remembers the paths it is asked for, and says the same number to all."""

    def __init__(self, value, pods=("web",)):
        self.asked: list[str] = []
        self._value, self._pods = value, pods
        self._connections: list[asyncio.Task[None]] = []

    def _accept(self, reader, writer):
        self._connections.append(asyncio.create_task(self._serve(reader, writer), name="adapter"))

    async def _serve(self, reader, writer):
        with suppress(asyncio.IncompleteReadError), closing(writer.transport):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                self.asked.append(head.split()[1].decode())
                stamp = format_time(0)
                items = [
                    {"describedObject": {"name": name}, "value": self._value, "timestamp": stamp} for name in self._pods
                ]
                body = orjson.dumps({"items": items})
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))

    @asynccontextmanager
    async def reached(self):
        """A transport that leads to it."""
        listener = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        port = listener.sockets[0].getsockname()[1]
        transport = HttpTransport(AccessConfig(url=f"http://127.0.0.1:{port}"), clock=RealClock())
        try:
            yield transport
        finally:
            await transport.close()
            listener.close()
            await cancel_all(*self._connections)
            await asyncio.sleep(0)  # the loop closes their sockets


class World:
    def __init__(self, context, clock, metrics):
        self.context, self.clock, self.metrics = context, clock, metrics
        self.hpas = context.resource("horizontalpodautoscalers", "autoscaling")
        self.deployments, self.pods = context.resource("deployments", "apps"), context.resource("pods")

    async def deployment(self, replicas):
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
        template = {"metadata": {"labels": LABELS}, "spec": {"containers": [container]}}
        spec = {"replicas": replicas, "selector": {"matchLabels": LABELS}, "template": template}
        made = await self.deployments.create({"metadata": {"name": "web"}, "spec": spec}, "default")
        await self.deployments.replace_status({**made, "status": {"replicas": replicas}})
        for number in range(replicas):
            await self.pod(f"p{number}", container)

    async def pod(self, name, container):
        spec = {"containers": [container], "nodeName": "n"}
        pod = await self.pods.create({"metadata": {"name": name, "labels": LABELS}, "spec": spec}, "default")
        started = format_time(self.clock.wall_s() - 3600)
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": started}
        status = {"phase": "Running", "startTime": started, "conditions": [ready]}
        await self.pods.replace_status({**pod, "status": status})

    async def hpa(self, *metrics, most=10, **more):
        target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
        spec = {"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": most, **more}
        if metrics:
            spec["metrics"] = list(metrics)
        await self.hpas.create({"metadata": {"name": "h"}, "spec": spec}, "default")

    async def replicas(self):
        return (await self.deployments.get("web", "default"))["spec"]["replicas"]

    async def conditions(self):
        found = (await self.hpas.get("h", "default")).get("status") or {}
        return {each["type"]: (each["status"], each["reason"]) for each in found.get("conditions") or ()}

    async def scaled_to(self, wanted):
        async def check():
            assert await self.replicas() == wanted
            return True

        await eventually(check)


@asynccontextmanager
async def scaled():
    clock = FakeClock()
    async with local_server(clock=clock) as server:
        metrics = WithMetrics(server.transport, clock)
        async with running(SimpleNamespace(transport=metrics), [wiring.add], clock=clock) as context:
            yield World(context, clock, metrics)


def cpu(percent):
    target = {"type": "Utilization", "averageUtilization": percent}
    return {"type": "Resource", "resource": {"name": "cpu", "target": target}}


async def test_a_busy_workload_grows_at_once_and_an_idle_one_shrinks_after_five_minutes():
    async with scaled() as world:
        await world.deployment(2)
        world.metrics.used = {"p0": "900m", "p1": "900m"}
        await world.hpa(cpu(60))
        await world.scaled_to(3)

        async def reported():
            hpa = await world.hpas.get("h", "default")
            return hpa if hpa["status"].get("desiredReplicas") == 3 else None

        hpa = await eventually(reported)
        current = hpa["status"]["currentMetrics"][0]["resource"]["current"]
        assert current == {"averageUtilization": 90, "averageValue": "900m"}
        assert (await world.conditions())["ScalingActive"] == ("True", "ValidMetricFound")
        world.metrics.used = {"p0": "10m", "p1": "10m"}
        await world.clock.advance(120)
        assert await world.replicas() == 3
        assert (await world.conditions())["AbleToScale"] == ("True", "ScaleDownStabilized")
        await world.clock.advance(300)
        await world.scaled_to(1)
        events = [e["message"] for e in (await world.context.resource("events").list()).items]
        reason = "cpu resource utilization (percentage of request) above target"
        assert f"New size: 3; reason: {reason}" in events


async def test_without_metrics_nothing_is_scaled_and_the_status_has_the_reason():
    async with scaled() as world:
        await world.deployment(2)
        await world.hpa(cpu(50))

        async def reported():
            return (await world.conditions()).get("ScalingActive") == ("False", "FailedGetResourceMetric")

        await eventually(reported)
        assert await world.replicas() == 2


async def test_a_target_at_zero_or_absent_is_left_alone():
    async with scaled() as world:
        await world.hpa(cpu(50))

        async def unable():
            return (await world.conditions()).get("AbleToScale") == ("False", "FailedGetScale")

        await eventually(unable)
        await world.deployment(0)
        await world.clock.advance(20)

        async def disabled():
            return (await world.conditions()).get("ScalingActive") == ("False", "ScalingDisabled")

        await eventually(disabled)


async def test_the_metric_that_wants_most_counts_and_a_failing_one_does_not_stop_growth():
    async with scaled() as world:
        await world.deployment(2)
        world.metrics.external = "12"
        target = {"type": "AverageValue", "averageValue": "2"}
        await world.hpa(cpu(50), {"type": "External", "external": {"metric": {"name": "queue"}, "target": target}})
        await world.scaled_to(6)  # no cpu metrics, but the queue is long


async def test_bounds_are_enforced_also_on_what_others_have_scaled():
    async with scaled() as world:
        await world.deployment(6)
        world.metrics.used = {f"p{n}": "500m" for n in range(6)}
        await world.hpa(cpu(50), most=4)
        await world.scaled_to(4)


CUSTOM = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/default"
EXTERNAL = "/apis/external.metrics.k8s.io/v1beta1/namespaces/default"
METRIC = {"name": "requests-per-second", "selector": {"matchLabels": {"path": "cart"}}}
SELECTED = "metricLabelSelector=path%3Dcart"


def of_object(kind, version, name):
    described = {"kind": kind, "apiVersion": version, "name": name}
    target = {"type": "Value", "value": "10"}
    return {"type": "Object", "object": {"describedObject": described, "metric": METRIC, "target": target}}


@pytest.mark.parametrize(
    ("metric", "asked"),
    [
        (
            {"type": "Pods", "pods": {"metric": METRIC, "target": {"type": "AverageValue", "averageValue": "10"}}},
            f"{CUSTOM}/pods/*/requests-per-second?labelSelector=app%3Dweb&{SELECTED}",
        ),
        (of_object("Service", "v1", "front"), f"{CUSTOM}/services/front/requests-per-second?{SELECTED}"),
        (
            of_object("Ingress", "networking.k8s.io/v1", "main"),
            f"{CUSTOM}/ingresses.networking.k8s.io/main/requests-per-second?{SELECTED}",
        ),
        (of_object("Namespace", "v1", "elsewhere"), f"{CUSTOM}/metrics/requests-per-second?{SELECTED}"),
        (
            {"type": "External", "external": {"metric": METRIC, "target": {"type": "Value", "value": "10"}}},
            f"{EXTERNAL}/requests-per-second?labelSelector=path%3Dcart",
        ),
    ],
)  # fmt: skip
async def test_custom_and_external_metrics_are_requested_from_their_adapters(metric, asked):
    adapter = Adapter("30", pods=("p0",))
    async with scaled() as world, adapter.reached() as transport:
        world.metrics.adapter = transport
        await world.deployment(1)
        await world.hpa(metric)
        await world.scaled_to(3)
        assert set(adapter.asked) == {asked}
