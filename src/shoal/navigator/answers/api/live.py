"""Paths that send requests to edges: logs, events, the configuration of a proxy, the service graph."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import orjson
from msgspec import Meta, Struct

from shoal.base.asgi_common import Application
from shoal.errors import (
    ApiError,
    InternalError,
    NotFound,
    ServiceUnavailable,
    Timeout,
    TooManyRequests,
    invalid,
)
from shoal.navigator.answers.api import bodies
from shoal.navigator.answers.api.parameters import Limit, Moment, OfCluster, OfNamespace, known_cluster
from shoal.navigator.answers.api.sources import ROOT, Caller, SourcesOf
from shoal.navigator.answers.asking import as_items, parts_of, whole_answer
from shoal.navigator.answers.graph import DeploymentPlaces, GraphRequest, graph
from shoal.navigator.answers.workloads import pod_row
from shoal.rest.answers import bad_query
from shoal.rest.operations import Operation, RestCall
from shoal.rest.streams import RestStreams
from shoal.wire.navigator.v1.navigator_pb import ClusterEvents, PodLogs, ProxyConfig

DEADLINE_S = 30.0
FOLLOW_S = 12 * 3600.0
_DEFAULT_SPAN_S = 300.0
_POD = f"{ROOT}/pods/{{cluster}}/{{namespace}}/{{name}}"
Json = dict[str, Any]


class LogsOf(Struct, frozen=True, kw_only=True):
    container: Annotated[str, Meta(description="Name of the container; needed if the pod has several")] = ""
    follow: Annotated[bool, Meta(description="Follow the log")] = False
    previous: Annotated[bool, Meta(description="The log of the container's previous run")] = False
    timestamps: Annotated[bool, Meta(description="Put a timestamp before each line")] = False
    tail: Annotated[int, Meta(ge=-1, le=10_000_000, description="Number of lines from the end; -1 for all")] = -1
    since: Annotated[
        int, Meta(ge=0, le=10**9, description="Only lines of the last so many seconds; 0 for all")
    ] = 0  # fmt: skip


class RawConfig(Struct, frozen=True):
    raw: Annotated[bool, Meta(description="Envoy's own dump")] = False


class ListedEvents(Struct, frozen=True, kw_only=True):
    cluster: OfCluster = ""
    namespace: OfNamespace = ""
    kind: Annotated[str, Meta(description="Only about objects of this kind, for example Pod")] = ""
    name: Annotated[str, Meta(description="Only about objects of this name")] = ""
    limit: Limit = 200


class GraphParameters(Struct, frozen=True, kw_only=True):
    cluster: OfCluster = ""
    namespace: OfNamespace = ""
    service: Annotated[str, Meta(description="Only its callers and the services it calls")] = ""
    start: Annotated[Moment, Meta(description="Start: a moment, or how long ago; default 5m")] = ""
    end: Annotated[Moment, Meta(description="End; default now")] = ""


class Live:
    def __init__(self, sources: SourcesOf, streams: RestStreams) -> None:
        self._sources = sources
        self._streams = streams

    def operations(self) -> list[Operation]:
        asking = (NotFound, TooManyRequests, ServiceUnavailable, Timeout)
        return [
            Operation(
                method="GET", path=f"{_POD}/logs", id="getPodLogs", tag="pods", summary="The log of a pod",
                handler=self.logs, answers={200: str}, media="text/plain", errors=asking,
            ),
            Operation(
                method="GET", path=f"{_POD}/events", id="getPodEvents", tag="pods", handler=self.pod_events,
                summary="The cluster's events about a pod", answers={200: bodies.Items}, errors=asking,
            ),
            Operation(
                method="GET", path=f"{_POD}/proxy-config", id="getProxyConfig", tag="pods", handler=self.proxy_config,
                summary="Listeners, routes, clusters and endpoints of the pod's Envoy", answers={200: Json},
                errors=asking,
            ),
            Operation(
                method="GET", path=f"{ROOT}/events", id="listClusterEvents", tag="events", handler=self.events,
                summary="The Kubernetes events of one cluster or of all, oldest first",
                answers={200: bodies.ClusterEventsBody}, errors=asking,
            ),
            Operation(
                method="GET", path=f"{ROOT}/graph", id="getGraph", tag="mesh", handler=self.graph,
                summary="Which service calls which, with rates, errors and latency", answers={200: bodies.Graph},
                errors=(NotFound,),
            ),
        ]  # fmt: skip

    async def logs(self, call: RestCall[Caller], query: LogsOf) -> Application:
        cluster, namespace, name = self._pod(call)
        request = PodLogs(
            namespace=namespace,
            pod=name,
            container=query.container,
            tail=query.tail,
            follow=query.follow,
            previous=query.previous,
            timestamps=query.timestamps,
            since_seconds=query.since,
        )
        parts = parts_of(
            self._sources(call).edges, cluster, request, deadline_s=FOLLOW_S if query.follow else DEADLINE_S
        )
        return self._streams.text(call.request.token, parts, "logs")

    async def pod_events(self, call: RestCall[Caller]) -> Json:
        cluster, namespace, name = self._pod(call)
        request = ClusterEvents(namespace=namespace, kind="Pod", name=name)
        return {"items": await self._events(call, cluster, request)}

    async def events(self, call: RestCall[Caller], query: ListedEvents) -> Json:
        view, limit = self._sources(call).view(), query.limit
        chosen = known_cluster(view, query.cluster)
        request = ClusterEvents(namespace=query.namespace, kind=query.kind, name=query.name)
        if chosen:
            return {"items": (await self._events(call, chosen, request))[-limit:], "failed": []}
        clusters = [each.name for each in view.clusters()]
        answers = await asyncio.gather(*(self._events_or_why(call, each, request) for each in clusters))
        items = [item for found, _ in answers for item in found]
        items.sort(key=lambda item: str(item["at"]))
        return {"items": items[-limit:], "failed": [why for _, why in answers if why is not None]}

    async def proxy_config(self, call: RestCall[Caller], query: RawConfig) -> Any:
        cluster, namespace, name = self._pod(call)
        request = ProxyConfig(namespace=namespace, pod=name, raw=query.raw)
        answer = await whole_answer(self._sources(call).edges, cluster, request, deadline_s=DEADLINE_S)
        try:
            return orjson.loads(answer)
        except ValueError as error:
            raise InternalError(f"the edge's answer is malformed: {error}") from None

    async def graph(self, call: RestCall[Caller], query: GraphParameters) -> Json:
        view = self._sources(call).view()
        chosen = known_cluster(view, query.cluster)
        end_s = self._sources(call).moment("end", query.end) or self._sources(call).clock.wall_s()
        start_s = self._sources(call).moment("start", query.start) or end_s - _DEFAULT_SPAN_S
        if start_s >= end_s:
            raise bad_query(invalid("start", query.start, "must be before end"))
        request = GraphRequest(start_s=start_s, end_s=end_s, namespace=query.namespace, service=query.service)
        clusters = [chosen] if chosen else [each.name for each in view.clusters()]
        places = DeploymentPlaces(view, self._sources(call).deployments())
        return await graph(self._sources(call).edges, clusters, request, places=places, deadline_s=DEADLINE_S)

    def _pod(self, call: RestCall[Caller]) -> tuple[str, str, str]:
        cluster, namespace, name = (call.path[part] for part in ("cluster", "namespace", "name"))
        pod_row(self._sources(call).view(), cluster, namespace, name)
        return cluster, namespace, name

    async def _events(self, call: RestCall[Caller], cluster: str, request: ClusterEvents) -> list[dict[str, Any]]:
        answer = await whole_answer(self._sources(call).edges, cluster, request, deadline_s=DEADLINE_S)
        found = [event_json(cluster, each) for each in as_items(answer) if isinstance(each, dict)]
        return sorted(found, key=lambda each: str(each["at"]))

    async def _events_or_why(
        self, call: RestCall[Caller], cluster: str, request: ClusterEvents
    ) -> tuple[list[dict[str, Any]], dict[str, str] | None]:
        try:
            return await self._events(call, cluster, request), None
        except ApiError as error:
            return [], {"cluster": cluster, "code": error.reason, "message": error.message}


def event_json(cluster: str, event: dict[str, Any]) -> dict[str, Any]:
    """The main fields of a Kubernetes event, of either API."""
    about = event.get("involvedObject") or event.get("regarding") or {}
    series = event.get("series") or {}
    at = (
        series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("deprecatedLastTimestamp")
        or event.get("eventTime") or (event.get("metadata") or {}).get("creationTimestamp") or ""
    )  # fmt: skip
    return {
        "at": at,
        "cluster": cluster,
        "type": event.get("type") or "",
        "reason": event.get("reason") or "",
        "namespace": about.get("namespace") or (event.get("metadata") or {}).get("namespace") or "",
        "kind": about.get("kind") or "",
        "name": about.get("name") or "",
        "count": series.get("count") or event.get("count") or event.get("deprecatedCount") or 1,
        "message": event.get("message") or event.get("note") or "",
    }
