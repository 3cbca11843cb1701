"""The topics of traffic and of events: routes, gateways, policies, refusals, hosts, numbers, and the service graph."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from functools import partial
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from shoal.base.logs import get_logger
from shoal.base.tasks import beside
from shoal.control.api.parameters import Name
from shoal.control.domain.kinds.checks import is_name
from shoal.control.domain.kinds.policy import KINDS as POLICIES
from shoal.control.domain.model import ObjectRef
from shoal.control.domain.specs import KINDS
from shoal.control.domain.traffic_numbers import TrafficSeries
from shoal.dashboard.live.feed import Look, Source
from shoal.dashboard.live.plan import Row, row
from shoal.dashboard.live.ticks import looked
from shoal.dashboard.topics.model import Audience, Topic, TopicDeps
from shoal.dashboard.topics.moments import with_moments
from shoal.dashboard.topics.status_rows import gateway_key, gateway_row, text, traffic_fields
from shoal.dashboard.topics.traffic_rows import SERIES_MS, app_numbers, revision_rows, sample_rows
from shoal.errors import ApiError, invalid, not_supported, required
from shoal.rest.answers import bad_fields

_GRAPH_S = 5.0
GATEWAYS_OLD_S = 1.0  # gateways and refusals change seldom, and are read with everything else
_SPAN = "1m"
_MOST_EVENTS = 500

_log = get_logger("dashboard")

Json = Mapping[str, Any]


class Selected(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """All of the workspace, a project, or one of its environments."""

    project: Name | None = None
    environment: Name | None = None
    namespace: str = ""  # of the service graph
    service: str = ""


class SelectedEvents(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """All of the workspace, or of one object."""

    kind: str = ""
    name: str = ""
    project: str = ""
    environment: str = ""
    type: Literal["Normal", "Warning"] | None = None
    limit: Annotated[int, Meta(ge=1, le=_MOST_EVENTS)] = 200

    @property
    def ref(self) -> ObjectRef | None:
        if not self.kind and not self.name:
            return None
        if not self.kind or not self.name:
            raise bad_fields([required("kind" if not self.kind else "name", "to name an object")])
        if self.kind not in KINDS:
            raise bad_fields([not_supported("kind", self.kind[:64], KINDS)])
        for field in ("name", "project", "environment"):
            value = getattr(self, field)
            for fault in is_name(value) if value else ():
                raise bad_fields([invalid(field, value[:64], fault)])
        return ObjectRef(self.kind, self.name, self.project, self.environment)


class EntranceTopics:
    def __init__(self, deps: TopicDeps) -> None:
        self._deps = deps

    def topics(self) -> list[Topic[Any]]:
        return [Topic("traffic", Selected, self.traffic), Topic("events", SelectedEvents, self.events)]

    def events(self, audience: Audience, asked: SelectedEvents) -> Source:
        return partial(looked, self._deps.ticks, self._deps.clock, partial(self._events, audience, asked, asked.ref))

    def traffic(self, audience: Audience, asked: Selected) -> Source:
        return partial(self._traffic, audience, asked)

    async def _events(self, audience: Audience, asked: SelectedEvents, ref: ObjectRef | None) -> Look:
        found = await self._deps.fleet.events(audience.reader, ref, limit=asked.limit)
        rows = {
            str(each["id"]): with_moments({name: value for name, value in each.items() if value != ""}, ("at",))
            for each in found
            if asked.type in (None, each["type"])
        }
        return Look(rows, self._deps.reads.now_ms())

    async def _traffic(self, audience: Audience, asked: Selected) -> AsyncGenerator[Look, None]:
        edges: dict[str, Row] = {}
        series = TrafficSeries(SERIES_MS)
        look = partial(self._look, audience, asked, series, edges)
        changed = asyncio.Event()
        looks = looked(self._deps.ticks, self._deps.clock, look, changed)
        async with beside(self._follow_graph(audience, asked, edges, changed), name="page/graph"), aclosing(looks):
            async for each in looks:
                yield each

    async def _look(self, audience: Audience, asked: Selected, series: TrafficSeries, edges: Mapping[str, Row]) -> Look:
        reads, workspace = self._deps.reads, audience.workspace
        now = reads.now_ms()
        environments = await reads.environment_ids(workspace, asked.project or "", asked.environment or "")
        counted = await reads.traffic(workspace, series.since(now), environments=environments)
        entrances = await reads.entrances(workspace, now, environments)
        _, overview = await self._deps.overview(audience, old_s=GATEWAYS_OLD_S)
        series.add(counted.spans, lambda _: "", now)
        by_app = app_numbers(counted, now)
        found: dict[str, Row] = {**edges, **sample_rows(series)}
        for (name, revision, region), each in revision_rows(counted, now).items():
            found[f"app/{name}/{revision}/{region}"] = each
        hosts: dict[str, list[tuple[str, list[str]]]] = {}
        for each in entrances["route"]:
            home = f"{each['project']}/{each['environment']}"
            apps = apps_of(each["spec"])
            numbers = [by_app[f"{home}/{app}"] for app in apps if f"{home}/{app}" in by_app]
            found[f"route/{home}/{each['name']}"] = (
                entrance_rows(each) | traffic_fields(summed(numbers)) | row(apps=apps or None)
            )
            hosts.setdefault(each["spec"].get("host", ""), []).append(
                (f"{home}/{each['name']}", [f"{home}/{app}" for app in apps])
            )
        for host, routes in hosts.items():
            names = sorted({app for _, apps in routes for app in apps})
            numbers = [by_app[name] for name in names if name in by_app]
            found[f"host/{host}"] = {"host": host, "routes": [name for name, _ in routes]} | traffic_fields(
                summed(numbers)
            )
        for each in entrances["policy"]:
            found[f"policy/{each['project']}/{each['environment']}/{each['name']}"] = entrance_rows(each)
        for each in overview["gateways"]:
            if self._is_selected(each, asked):
                found[f"gateway/{gateway_key(each)}"] = gateway_row(each)
        for each in overview["refused"]:
            found[f"refusal/{each['kind']}/{each['name']}/{each['cluster']}/{each['gateway']}"] = dict(each)
        return Look(found, now)

    def _is_selected(self, gateway: Json, asked: Selected) -> bool:
        if not gateway["environment"]:
            return True
        return asked.project in (None, gateway["project"]) and asked.environment in (None, gateway["environment"])

    async def _follow_graph(
        self, audience: Audience, asked: Selected, edges: dict[str, Row], changed: asyncio.Event
    ) -> None:
        """Keep the service graph; without a navigator there is none."""
        while True:
            try:
                graph = await self._deps.navigator.ask(
                    audience.asker, "graph", start=_SPAN, namespace=asked.namespace, service=asked.service
                )
                fresh = {f"edge/{edge_key(each)}": edge_row(each) for each in graph["connections"]}
            except ApiError as error:
                _log.debug("the service graph is not known", reason=error.message)
                fresh = {}
            if fresh != edges:
                edges.clear()
                edges.update(fresh)
                changed.set()
            await self._deps.clock.sleep(_GRAPH_S)


def apps_of(spec: Json) -> list[str]:
    """The apps that a route leads to."""
    found = [spec["app"]] if spec.get("app") else []
    found += [each["app"] for each in spec.get("backends") or () if each.get("app")]
    return list(dict.fromkeys(found))


def leads_to(route: Json, app: str) -> bool:
    return app in apps_of(route["spec"])


def entrance_rows(each: Json) -> Row:
    """A route or a policy."""
    spec = each["spec"]
    return row(
        project=each["project"], environment=each["environment"], name=each["name"], state=each["state"],
        message=text(each["message"]), host=text(spec.get("host")), path=text(spec.get("path")),
        type=next((kind for kind in POLICIES if kind in spec), None), spec=spec,
    )  # fmt: skip


def summed(numbers: list[Json]) -> Json | None:
    """Numbers of several apps together. Latencies cannot be added: the slowest one is shown."""
    if not numbers:
        return None
    rate, failing = sum(each["rate"] for each in numbers), sum(each["errorRate"] for each in numbers)
    found: dict[str, Any] = {"rate": round(rate, 3), "errorRate": round(failing, 3)}
    if rate:
        found["errorShare"] = round(failing / rate, 5)
    for name in ("p50Ms", "p99Ms"):
        known = [each[name] for each in numbers if name in each]
        if known:
            found[name] = max(known)
    return found


def edge_key(each: Json) -> str:
    return "/".join(
        (each["source"]["namespace"], each["source"]["service"], each["destination"]["namespace"],
         each["destination"]["service"])
    )  # fmt: skip


def edge_row(each: Json) -> Row:
    success = each["successRate"]
    return row(
        source=each["source"], destination=each["destination"], rate=each["requestsPerSecond"],
        errorRate=each["errorsPerSecond"], errorShare=None if success is None else round(1 - success, 6),
        p99Ms=each["p99Ms"], between=each["between"],
    )  # fmt: skip
