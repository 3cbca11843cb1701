"""The topic that explains an object: the chain of reasons, as rows."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from functools import partial
from typing import Annotated, Any, Literal
from urllib.parse import quote

from msgspec import Meta, Struct

from shoal.control.domain.kinds.checks import is_name
from shoal.control.domain.model import ObjectRef
from shoal.dashboard.live.feed import Look, Source
from shoal.dashboard.live.plan import Row
from shoal.dashboard.live.ticks import looked
from shoal.dashboard.topics.entrances import leads_to
from shoal.dashboard.topics.model import Audience, Topic, TopicDeps
from shoal.dashboard.topics.why_rows import (
    app_steps,
    chain,
    cluster_steps,
    place_steps,
    pod_steps,
    rollout_steps,
)
from shoal.errors import ApiError, invalid, required
from shoal.rest.answers import bad_fields

_POD_S = 3.0

Kind = Literal["App", "Rollout", "Route", "Policy", "ApiKey", "Sentinel", "Cluster", "Pod"]


class WhyParameters(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A pod is named by its cluster and namespace, everything else as in the API."""

    kind: Kind
    name: Annotated[str, Meta(max_length=253)]
    project: str = ""
    environment: str = ""
    cluster: str = ""
    namespace: str = ""

    @property
    def ref(self) -> ObjectRef:
        kind = "App" if self.kind == "Rollout" else self.kind
        for field in ("name", "project", "environment"):
            value = getattr(self, field)
            for fault in is_name(value) if value else ():
                raise bad_fields([invalid(field, value[:64], fault)])
        if kind in ("App", "Route", "Policy", "ApiKey") and not (self.project and self.environment):
            raise bad_fields([required("project" if not self.project else "environment")])
        return ObjectRef(kind, self.name, self.project, self.environment)


class WhyTopics:
    def __init__(self, deps: TopicDeps) -> None:
        self._deps = deps

    def topics(self) -> list[Topic[Any]]:
        return [Topic("why", WhyParameters, self.why)]

    def why(self, audience: Audience, asked: WhyParameters) -> Source:
        if asked.kind == "Pod":
            for field in ("cluster", "namespace"):
                if not getattr(asked, field):
                    raise bad_fields([required(field, "to name a pod")])
            return partial(self._pod, audience, asked)
        known: dict[str, Callable[[Audience, ObjectRef], Awaitable[dict[str, Row]]]] = {
            "App": self._app, "Rollout": self._rollout, "Cluster": self._cluster,
        }  # fmt: skip
        explain = known.get(asked.kind, self._placed)
        return partial(looked, self._deps.ticks, self._deps.clock, partial(self._look, explain, audience, asked.ref))

    async def _look(
        self, explain: Callable[[Audience, ObjectRef], Awaitable[dict[str, Row]]], audience: Audience, ref: ObjectRef
    ) -> Look:
        now = self._deps.reads.now_ms()
        return Look(await explain(audience, ref), now)

    async def _app(self, audience: Audience, ref: ObjectRef) -> dict[str, Row]:
        fleet, who, now = self._deps.fleet, audience.reader, self._deps.reads.now_ms()
        status = await fleet.status(who, ref, now=now)
        history = await fleet.history(who, ref, limit=1)
        rollout = ""
        if status.get("rollout") and status["rollout"]["configured"]:
            lines = (await fleet.explain(who, ref))["lines"]
            rollout = next((each for each in lines if each.startswith("rollout ")), "")
        environments = await self._deps.reads.environment_ids(audience.workspace, ref.project, ref.environment)
        entrances = await self._deps.reads.entrances(audience.workspace, now, environments)
        regions = {each["region"] for each in status["regions"]}
        gateways = [
            each for each in (await fleet.status(who, now=now))["gateways"]
            if (each["project"], each["environment"]) == (ref.project, ref.environment)
            or (not each["environment"] and each["region"] in regions)
        ]  # fmt: skip
        routes = [each for each in entrances["route"] if leads_to(each, ref.name)]
        steps = app_steps(str(ref), status, history, rollout, gateways, routes, now)
        return chain(steps, f"{ref.name}: {status['summary']}")

    async def _rollout(self, audience: Audience, ref: ObjectRef) -> dict[str, Row]:
        found = await self._deps.fleet.rollout(audience.reader, ref)
        how = found["outcome"] or found["phase"]
        return chain(rollout_steps(str(ref), found), f"rollout {found['number']} of {ref.name}: {how}")

    async def _placed(self, audience: Audience, ref: ObjectRef) -> dict[str, Row]:
        shown = await self._deps.fleet.status(audience.reader, ref, now=self._deps.reads.now_ms())
        return chain(place_steps(ref.kind, str(ref), shown), shown["summary"])

    async def _cluster(self, audience: Audience, ref: ObjectRef) -> dict[str, Row]:
        now = self._deps.reads.now_ms()
        shown = await self._deps.fleet.status(audience.reader, ref, now=now)
        try:
            seen = await self._deps.navigator.ask(audience.asker, f"clusters/{ref.name}")
        except ApiError:
            seen = None
        return chain(cluster_steps(ref.name, shown["agents"], seen, now), f"{ref.name} takes what is wanted there")

    async def _pod(self, audience: Audience, asked: WhyParameters) -> AsyncGenerator[Look, None]:
        ask = self._deps.navigator.ask
        path = "/".join(quote(part, safe="") for part in (asked.cluster, asked.namespace, asked.name))
        while True:
            pod = await ask(audience.asker, f"pods/{path}")
            try:
                events = (await ask(audience.asker, f"pods/{path}/events"))["items"]
            except ApiError:
                events = []
            steps = pod_steps(pod, events, await self._node(audience, asked.cluster, pod.get("node")))
            yield Look(chain(steps, f"{asked.name} runs"), self._deps.reads.now_ms())
            await self._deps.clock.sleep(_POD_S)

    async def _node(self, audience: Audience, cluster: str, name: str | None) -> dict[str, Any] | None:
        if not name or "'" in name or "'" in cluster:
            return None
        text = f"nodes where cluster = '{cluster}' and name = '{name}'"
        try:
            found = await self._deps.navigator.ask(audience.asker, "query", q=text)
        except ApiError:
            return None
        return found["items"][0] if found["items"] else None  # nodes are of whole clusters: not all may read them
