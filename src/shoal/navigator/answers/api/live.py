"""Paths that ask the edges: logs, events, the configuration of a proxy, the service graph. They are about now."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
from starlette.responses import Response

from shoal.errors import ApiError, InternalError, invalid
from shoal.navigator.answers.api import describe
from shoal.navigator.answers.api.answers import json_answer
from shoal.navigator.answers.api.calls import Call, Operation, Parameter, bad_query
from shoal.navigator.answers.api.gate import Authenticate
from shoal.navigator.answers.api.sources import ROOT, Sources
from shoal.navigator.answers.api.streams import Streams, TextStream
from shoal.navigator.answers.asking import as_items, parts_of, whole_answer
from shoal.navigator.answers.graph import GraphRequest, graph
from shoal.navigator.answers.workloads import pod_row
from shoal.wire.navigator.v1.navigator_pb import ClusterEvents, PodLogs, ProxyConfig

DEADLINE_S = 30.0
FOLLOW_S = 12 * 3600.0
_DEFAULT_SPAN_S = 300.0
_POD = f"{ROOT}/pods/{{cluster}}/{{namespace}}/{{name}}"
_WHOLE = {"type": "integer", "minimum": 0}

_LOGS = (
    Parameter("container", {"type": "string"}, "Which container; needed where the pod has several"),
    Parameter("follow", {"type": "boolean"}, "Go on as more is written"),
    Parameter("previous", {"type": "boolean"}, "Of the container's run before"),
    Parameter("timestamps", {"type": "boolean"}, "Each line with its time"),
    Parameter("tail", {"type": "integer", "minimum": -1}, "The last so many lines; -1 for all, which is the default"),
    Parameter("since", _WHOLE, "Only what was written in the last so many seconds"),
)
_EVENTS_OF = (
    Parameter("kind", {"type": "string"}, "Only about objects of this kind, for example Pod"),
    Parameter("name", {"type": "string"}, "Only about objects of this name"),
)
_SPAN = (
    Parameter("start", {"type": "string"}, "From when: a moment, or how long ago; default 5m"),
    Parameter("end", {"type": "string"}, "To when; default now"),
)


class Live:
    def __init__(self, sources: Sources, streams: Streams, authenticate: Authenticate) -> None:
        self._sources = sources
        self._streams = streams
        self._authenticate = authenticate

    def operations(self) -> list[Operation]:
        asking = (404, 429, 503, 504)
        return [
            Operation(
                method="GET", path=f"{_POD}/logs", id="getPodLogs", tag="pods", summary="What a pod writes",
                handler=self.logs, answer="Text", media="text/plain", parameters=_LOGS, errors=asking,
            ),
            Operation(
                method="GET", path=f"{_POD}/events", id="getPodEvents", tag="pods", handler=self.pod_events,
                summary="The cluster's events about a pod", answer="Items", errors=asking,
            ),
            Operation(
                method="GET", path=f"{_POD}/proxy-config", id="getProxyConfig", tag="pods", handler=self.proxy_config,
                summary="Listeners, routes, clusters and endpoints of the pod's Envoy", answer="Anything",
                parameters=(Parameter("raw", {"type": "boolean"}, "Envoy's own dump"),), errors=asking,
            ),
            Operation(
                method="GET", path=f"{ROOT}/events", id="listClusterEvents", tag="events", handler=self.events,
                summary="The Kubernetes events of one cluster or of all, oldest first", answer="Items",
                parameters=(describe.CLUSTER, describe.NAMESPACE, *_EVENTS_OF, describe.LIMIT), errors=asking,
            ),
            Operation(
                method="GET", path=f"{ROOT}/graph", id="getGraph", tag="mesh", handler=self.graph,
                summary="Which service calls which, with rates, errors and latency", answer="Graph",
                parameters=(
                    describe.CLUSTER, describe.NAMESPACE,
                    Parameter("service", {"type": "string"}, "Only what calls it and what it calls"), *_SPAN,
                ),
                errors=(404,),
            ),
        ]  # fmt: skip

    async def logs(self, call: Call) -> Response:
        cluster, namespace, name = self._pod(call)
        follow = bool(call.flag("follow"))
        request = PodLogs(
            namespace=namespace,
            pod=name,
            container=call.text("container"),
            tail=call.integer("tail", -1, -1, 10_000_000),
            follow=follow,
            previous=bool(call.flag("previous")),
            timestamps=bool(call.flag("timestamps")),
            since_seconds=call.integer("since", 0, 0, 10**9),
        )
        parts = parts_of(self._sources.edges, cluster, request, deadline_s=FOLLOW_S if follow else DEADLINE_S)
        token = str(call.request.scope["state"]["token"])

        async def allowed() -> bool:
            return await self._authenticate(token) is not None

        return TextStream(self._streams, parts, allowed)

    async def pod_events(self, call: Call) -> Response:
        cluster, namespace, name = self._pod(call)
        request = ClusterEvents(namespace=namespace, kind="Pod", name=name)
        return json_answer({"items": await self._events(cluster, request)})

    async def events(self, call: Call) -> Response:
        view, limit = self._sources.view(), call.limit(200)
        chosen = call.cluster(view)
        request = ClusterEvents(namespace=call.text("namespace"), kind=call.text("kind"), name=call.text("name"))
        if chosen:
            return json_answer({"items": (await self._events(chosen, request))[-limit:], "failed": []})
        clusters = [each.name for each in view.clusters()]
        answers = await asyncio.gather(*(self._events_or_why(each, request) for each in clusters))
        items = [item for found, _ in answers for item in found]
        items.sort(key=lambda item: str(item["at"]))
        return json_answer({"items": items[-limit:], "failed": [why for _, why in answers if why is not None]})

    async def proxy_config(self, call: Call) -> Response:
        cluster, namespace, name = self._pod(call)
        request = ProxyConfig(namespace=namespace, pod=name, raw=bool(call.flag("raw")))
        answer = await whole_answer(self._sources.edges, cluster, request, deadline_s=DEADLINE_S)
        try:
            return json_answer(orjson.loads(answer))
        except ValueError as error:
            raise InternalError(f"the edge's answer is not understood: {error}") from None

    async def graph(self, call: Call) -> Response:
        view = self._sources.view()
        chosen = call.cluster(view)
        end_s = call.moment("end") or call.now_s
        start_s = call.moment("start") or end_s - _DEFAULT_SPAN_S
        if start_s >= end_s:
            raise bad_query(invalid("start", call.text("start"), "must be before end"))
        request = GraphRequest(
            start_s=start_s, end_s=end_s, namespace=call.text("namespace"), service=call.text("service")
        )  # fmt: skip
        clusters = [chosen] if chosen else [each.name for each in view.clusters()]
        return json_answer(await graph(self._sources.edges, clusters, request, deadline_s=DEADLINE_S))

    def _pod(self, call: Call) -> tuple[str, str, str]:
        cluster, namespace, name = (call.name(part) for part in ("cluster", "namespace", "name"))
        pod_row(self._sources.view(), cluster, namespace, name)
        return cluster, namespace, name

    async def _events(self, cluster: str, request: ClusterEvents) -> list[dict[str, Any]]:
        answer = await whole_answer(self._sources.edges, cluster, request, deadline_s=DEADLINE_S)
        found = [event_json(cluster, each) for each in as_items(answer) if isinstance(each, dict)]
        return sorted(found, key=lambda each: str(each["at"]))

    async def _events_or_why(
        self, cluster: str, request: ClusterEvents
    ) -> tuple[list[dict[str, Any]], dict[str, str] | None]:
        try:
            return await self._events(cluster, request), None
        except ApiError as error:
            return [], {"cluster": cluster, "code": error.reason, "message": error.message}


def event_json(cluster: str, event: dict[str, Any]) -> dict[str, Any]:
    """A Kubernetes event, of either API, in the few words that people read."""
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
