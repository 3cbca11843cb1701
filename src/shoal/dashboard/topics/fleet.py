"""The topics of the first views: the fleet with what is wrong in it, and all apps in all places."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from functools import partial
from typing import Any

from shoal.base.logs import get_logger
from shoal.base.tasks import beside
from shoal.control.domain.placement.model import ClusterFacts
from shoal.control.domain.traffic_numbers import LATE_MS, WINDOW_MS
from shoal.dashboard.live.feed import Look, Source
from shoal.dashboard.live.plan import Row, row
from shoal.dashboard.live.ticks import looked
from shoal.dashboard.topics.model import Audience, NoParameters, Topic, TopicDeps
from shoal.dashboard.topics.moments import ms_of
from shoal.dashboard.topics.status_rows import (
    agent_row,
    apps_rows,
    problems,
    rollout_problems,
    summary,
    text,
    with_broken,
)
from shoal.dashboard.topics.traffic_rows import app_numbers
from shoal.errors import ApiError

_NAVIGATOR_S = 5.0
_NODES, _MOST_NODES = 1000, 20_000

_TRAFFIC_S = 0.8

_log = get_logger("dashboard")


class FleetTopics:
    def __init__(self, deps: TopicDeps) -> None:
        self._deps = deps

    def topics(self) -> list[Topic[Any]]:
        return [Topic("fleet", NoParameters, self.fleet), Topic("apps", NoParameters, self.apps)]

    def fleet(self, audience: Audience, _: NoParameters) -> Source:
        return partial(self._fleet, audience)

    def apps(self, audience: Audience, _: NoParameters) -> Source:
        return partial(looked, self._deps.ticks, self._deps.clock, partial(self._apps, audience), has_pace=True)

    async def _apps(self, audience: Audience) -> Look:
        now, overview = await self._deps.overview(audience)
        return Look(apps_rows(overview, now, await self._traffic(audience)), now)

    async def _traffic(self, audience: Audience) -> Mapping[str, Mapping[str, Any]]:
        """By app, what its users asked for lately. Gateways say it every few seconds."""

        async def read() -> Mapping[str, Mapping[str, Any]]:
            now = self._deps.reads.now_ms()
            return app_numbers(await self._deps.reads.traffic(audience.workspace, now - WINDOW_MS - LATE_MS), now)

        key = "traffic", audience.workspace
        found: Mapping[str, Mapping[str, Any]] = await self._deps.remembered(key, read).get(old_s=_TRAFFIC_S)
        return found

    async def _fleet(self, audience: Audience) -> AsyncGenerator[Look, None]:
        seen: dict[str, Row] = {}
        changed = asyncio.Event()
        read = partial(self._look_at_fleet, audience, seen)
        looks = looked(self._deps.ticks, self._deps.clock, read, changed, has_pace=True)
        follow = self._follow_navigator(audience, seen, changed)
        async with beside(follow, name="page/fleet-navigator"), aclosing(looks):
            async for look in looks:
                yield look

    async def _look_at_fleet(self, audience: Audience, seen: dict[str, Row]) -> Look:
        now, overview = await self._deps.overview(audience)
        infrastructure, facts = await self._deps.remembered("places", self._deps.reads.places).get()
        broken = {(infrastructure.cluster_name(at.cluster), at.shard): ms for at, ms in self._deps.broken().items()}
        overview = {**overview, "agents": with_broken(overview["agents"], broken, self._deps.reads.now_ms())}
        found: dict[str, Row] = {
            f"region/{region.name}": row(
                name=region.name, platform=text(region.platform), schedulable=region.can_schedule,
                clusters=sum(each.region == region.name for each in facts),
            )
            for region in infrastructure.regions.values()
        }  # fmt: skip
        agents = {f"agent/{each['cluster']}/{each['shard']}": agent_row(each, now) for each in overview["agents"]}
        clusters = [
            _cluster_row(each, [agent for agent in agents.values() if agent["cluster"] == each.name])
            | (_load(each) if audience.sees_everything else {})
            | seen.get(each.name, {})
            for each in facts
        ]
        rollouts = await self._deps.remembered(
            ("rollouts", audience.workspace), partial(self._deps.reads.rollouts, audience.workspace)
        ).get()
        wrong = problems(overview, clusters) | rollout_problems(rollouts, now)
        found |= {f"cluster/{each['name']}": each for each in clusters} | agents
        found |= {f"problem/{key}": each for key, each in wrong.items()}
        found["#"] = summary(overview, clusters, wrong)
        return Look(found, now)

    async def _follow_navigator(self, audience: Audience, seen: dict[str, Row], changed: asyncio.Event) -> None:
        """Keep what the navigator knows of each cluster. The fleet is shown without it too."""
        ask = self._deps.navigator.ask
        while True:
            try:
                listed = await ask(audience.asker, "clusters")
                fresh = {each["name"]: _seen_cluster(each) for each in listed["items"]}
                async for each in self._nodes(audience):
                    _add_node(fresh.setdefault(str(each["cluster"]), {}), each)
            except ApiError as error:
                _log.debug("the navigator is not asked", reason=error.message)
                fresh = {}
            if fresh != seen:
                seen.clear()
                seen.update(fresh)
                changed.set()
            await self._deps.clock.sleep(_NAVIGATOR_S)

    async def _nodes(self, audience: Audience) -> AsyncGenerator[dict[str, Any], None]:
        """Those of all clusters, page by page."""
        position, count = "", 0
        while count < _MOST_NODES:
            found = await self._deps.navigator.ask(
                audience.asker, "query", q="nodes", limit=_NODES, **{"continue": position}
            )
            for each in found["items"]:
                yield each
            count, position = count + len(found["items"]), found["continue"]
            if not position:
                return


def _cluster_row(cluster: ClusterFacts, agents: list[Row]) -> Row:
    bad = next((each for each in agents if each["state"] != "Joined"), None)
    held = next((each for each in agents if each.get("held")), None)
    state, problem = "Ready", None
    if not agents:
        state, problem = "NoAgent", "no agent has joined"
    elif bad is not None:
        state, problem = bad["state"], bad.get("reason")
    elif held is not None:
        state, problem = "Held", "deletions wait for confirmation"
    return row(
        name=cluster.name, region=cluster.region, schedulable=cluster.can_schedule and cluster.region_can_schedule,
        taints=[f"{each.key}={each.value}:{each.effect}" for each in cluster.taints] or None, state=state,
        problem=problem, agents=len(agents), cpu=cluster.capacity.cpu_millicores, memory=cluster.capacity.memory_mib,
    )  # fmt: skip


def _load(cluster: ClusterFacts) -> Row:
    """What all workspaces have placed there."""
    load = cluster.load
    return row(deployments=load.deployments, cpuUsed=load.cpu_millicores or None, memoryUsed=load.memory_mib or None)


def _seen_cluster(cluster: dict[str, Any]) -> Row:
    rows = {each["kind"]: each["rows"] for each in cluster["kinds"]}
    return row(
        freshness=cluster["freshness"], version=text(cluster["metadata"].get("version")),
        heardAt=ms_of(cluster["heardAt"]), pods=rows.get("pods"),
    )  # fmt: skip


def _add_node(seen: Row, node: dict[str, Any]) -> None:
    seen["nodes"] = seen.get("nodes", 0) + 1
    seen["nodesReady"] = seen.get("nodesReady", 0) + bool(node.get("ready"))
