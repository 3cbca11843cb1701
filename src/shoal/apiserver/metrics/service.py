"""Serves NodeMetrics and PodMetrics. Kubelets are queried only while clients use this API, all at the same time.

The first requests wait for two samples, since usage is the difference of two; later ones get the current result.
The API group exists while there are nodes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import orjson

from shoal.apiserver.context import Call, Core
from shoal.apiserver.forms import document
from shoal.apiserver.http import Response
from shoal.apiserver.metrics.samples import (
    GROUP,
    NODE_SCHEMA,
    NODES,
    POD_SCHEMA,
    PODS,
    PRINTER,
    NodeReading,
    metrics_object,
    sample,
)
from shoal.apiserver.negotiate import representation
from shoal.apiserver.nodes.backend import Collected, Unreachable
from shoal.apiserver.nodes.service import NodeAccess
from shoal.apiserver.read import include_object
from shoal.apiserver.registry import Served
from shoal.base.deadline import run_within
from shoal.base.logs import get_logger
from shoal.base.tasks import OwnedTasks
from shoal.errors import ApiError, MethodNotAllowed, NotFound
from shoal.kube import fieldselector, labels
from shoal.kube.objects import Obj
from shoal.kube.resources import Resource
from shoal.store import Attrs, Entry, Key

log = get_logger("apiserver.metrics")

_FIRST_S = 1.0  # between the first two readings
_IDLE_S = 120.0  # sampling stops this long after the last request
_AT_ONCE = 32  # kubelets that are asked at the same time
_SUMMARY_BYTES = 64 * 1024 * 1024
_SUMMARY = "/stats/summary?only_cpu_and_memory=true"


class MetricsApi:
    """Answers requests for metrics.k8s.io."""

    group = GROUP

    def __init__(self, core: Core, nodes: NodeAccess) -> None:
        self._core = core
        self._nodes = nodes
        self._config = core.config.nodes
        self._readings: dict[str, NodeReading] = {}  # by node
        self._wanted_at = 0.0
        self._tasks = OwnedTasks()
        self._reader: asyncio.Task[None] | None = None  # while requests come
        self._first = asyncio.Event()  # set when there are readings to show
        self._offered = False

    def start(self) -> None:
        """The store must be started."""
        self._core.store.subscribe("nodes", lambda _: self._offer())
        self._offer()

    async def stop(self) -> None:
        await self._tasks.close()

    def _offer(self) -> None:
        """Serve the group while there are nodes whose kubelets can be asked."""
        wanted = self._nodes.credentials.known and self._core.store.count("nodes", None) > 0
        if wanted != self._offered:
            self._offered = wanted
            for resource in (NODES, PODS):
                self._core.registry.set_custom(resource.storage_key, [Served(resource)] if wanted else [], None)

    def schemas(self) -> list[tuple[Resource, Obj]]:
        """For OpenAPI."""
        return [(NODES, NODE_SCHEMA), (PODS, POD_SCHEMA)] if self._offered else []

    # -- answers -----------------------------------------------------------------------------------------------------

    async def handle(self, call: Call, verb: str) -> Response:
        if verb not in ("get", "list") or call.target.subresource:
            raise MethodNotAllowed("the server does not allow this method on the requested resource")
        await self._current()
        resource = call.served.resource
        if verb == "get":
            made = self._object(resource, self._core.store.get(Key(resource.plural, call.namespace or "", call.name)))
            if made is None:
                raise NotFound.of(resource.plural, GROUP, call.name)
            return self._shown(call, [made], collection=False)
        return self._shown(call, list(self._selected(call)), collection=True)

    def _shown(self, call: Call, made: list[Obj], *, collection: bool) -> Response:
        resource = call.served.resource
        choice = representation(call.request.headers.get(b"accept"), collection=collection)
        if choice.as_kind == "Table":
            from shoal.kube import tables

            table = tables.list_table(resource, made, {}, include_object(call), self._core.clock.wall_s(), use=PRINTER)
            return document(table, choice)
        if not collection:
            return document(made[0], choice)
        kind, version = resource.list_kind, resource.api_version
        return document({"kind": kind, "apiVersion": version, "metadata": {}, "items": made}, choice)

    def _selected(self, call: Call) -> Iterator[Obj]:
        matches = _selector(call)
        resource = call.served.resource
        pods = self._pod_usage() if resource is PODS else {}
        for entry in self._core.store.range(resource.plural, call.namespace).entries:
            if matches(entry.attrs):
                made = self._object(resource, entry, pods)
                if made is not None:
                    yield made

    def _object(self, resource: Resource, entry: Entry | None, pods: dict[Any, Any] | None = None) -> Obj | None:
        """The metrics of a stored node or pod; None without samples."""
        if entry is None:
            return None
        key, default_s = entry.key, self._config.stats_every_s
        metadata = {"name": key.name, "namespace": key.namespace, "labels": entry.attrs.labels}
        if resource is NODES:
            reading = self._readings.get(key.name)
            usage = None if reading is None else reading.node_usage()
            if reading is None or usage is None:
                return None
            return metrics_object(resource, metadata, reading, default_s, {"usage": usage})
        found = (self._pod_usage() if pods is None else pods).get((key.namespace, key.name))
        if found is None:
            return None
        return metrics_object(resource, metadata, found[0], default_s, {"containers": found[1]})

    def _pod_usage(self) -> dict[tuple[str, str], tuple[NodeReading, list[Obj]]]:
        return {
            key: (reading, containers)
            for reading in self._readings.values()
            for key, containers in reading.pod_usage().items()
        }

    # -- readings ----------------------------------------------------------------------------------------------------

    async def _current(self) -> None:
        """Return when there are samples that are not too old."""
        self._wanted_at = self._core.clock.monotonic()
        if self._reader is None:
            self._first = asyncio.Event()
            self._reader = self._tasks.start(self._read_on(self._first), name="metrics/readings")
        await self._first.wait()

    async def _read_on(self, first: asyncio.Event) -> None:
        clock = self._core.clock
        try:
            await self._read_all()
            await clock.sleep(_FIRST_S)
            while clock.monotonic() - self._wanted_at < _IDLE_S:
                await self._read_all()
                first.set()
                await clock.sleep(self._config.stats_every_s)
        finally:
            first.set()
            self._reader = None
            self._readings = {}

    async def _read_all(self) -> None:
        names = [entry.key.name for entry in self._core.store.range("nodes").entries]
        limit = asyncio.Semaphore(_AT_ONCE)

        async def one(name: str) -> None:
            async with limit:
                await self._read(name)

        await asyncio.gather(*(one(name) for name in names))
        for name in self._readings.keys() - set(names):
            del self._readings[name]

    async def _read(self, name: str) -> None:
        clock = self._core.clock
        try:
            summary = await run_within(clock, self._config.stats_wait_s, self._summary(name), name="metrics/summary")
            found = sample(summary, clock.wall_s())
        except (ApiError, Unreachable, TimeoutError, ValueError, TypeError, AttributeError) as error:
            self._readings.pop(name, None)
            log.debug("kubelet statistics not available", node=name, error=str(error))
            return
        before = self._readings.get(name)
        self._readings[name] = NodeReading(found, None if before is None else before.last)

    async def _summary(self, name: str) -> Any:
        endpoint = await self._nodes.kubelet(name)
        backend, head = await self._nodes.ask(endpoint, "GET", _SUMMARY)
        body = await Collected(backend, _SUMMARY_BYTES).read()
        if head.status != 200:
            raise Unreachable(f"the kubelet answered with status {head.status}")
        return orjson.loads(body)


def _selector(call: Call) -> Callable[[Attrs], bool]:
    """The selection of the request, by labels and names of the nodes or pods."""
    by_label = labels.parse(call.query.get("labelSelector", ""))
    by_field = fieldselector.parse(call.query.get("fieldSelector", ""))
    by_field.check({"metadata.name", "metadata.namespace"}, generic=True)
    return lambda attrs: by_label.matches(attrs.labels) and by_field.matches(attrs.fields)
