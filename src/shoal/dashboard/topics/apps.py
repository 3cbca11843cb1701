"""The topics of one app and of rollouts."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any

from msgspec import Meta, Struct

from shoal.control.api.parameters import Name
from shoal.control.domain.live_reads import CountedTraffic
from shoal.control.domain.model import ObjectRef
from shoal.control.domain.rollouts.records import strategy_of_row
from shoal.control.domain.traffic_numbers import CountedSpan, TrafficSeries
from shoal.control.rollout.progress import FROZEN, GOING_BACK, PROMOTED
from shoal.dashboard.live.feed import Look, Source
from shoal.dashboard.live.plan import Row, row
from shoal.dashboard.live.ticks import looked
from shoal.dashboard.topics.entrances import GATEWAYS_OLD_S, entrance_rows, leads_to
from shoal.dashboard.topics.model import Audience, NoParameters, Topic, TopicDeps
from shoal.dashboard.topics.moments import ms_of, with_moments
from shoal.dashboard.topics.status_rows import (
    app_row,
    gateway_row,
    moment,
    place_rows,
    text,
    told,
    traffic_fields,
)
from shoal.dashboard.topics.traffic_rows import SERIES_MS, app_numbers, revision_rows, sample_rows
from shoal.errors import NotFound

_REVISIONS, _EVENTS = 20, 100
_ROLLOUT_SERIES_MS = 900_000
Json = Mapping[str, Any]


class OneApp(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    project: Name
    environment: Name
    app: Name

    @property
    def ref(self) -> ObjectRef:
        return ObjectRef("App", self.app, self.project, self.environment)


class OneRollout(OneApp, frozen=True, forbid_unknown_fields=True, kw_only=True):
    number: Annotated[int, Meta(ge=0)] = 0


class AppTopics:
    def __init__(self, deps: TopicDeps) -> None:
        self._deps = deps

    def topics(self) -> list[Topic[Any]]:
        return [
            Topic("app", OneApp, self.app),
            Topic("rollouts", NoParameters, self.rollouts),
            Topic("rollout", OneRollout, self.rollout),
        ]

    def app(self, audience: Audience, asked: OneApp) -> Source:
        # not shared: each start of the source reads the samples from the beginning
        return lambda: looked(
            self._deps.ticks, self._deps.clock, partial(self._app, audience, asked, TrafficSeries(SERIES_MS))
        )

    def rollouts(self, audience: Audience, _: NoParameters) -> Source:
        return partial(looked, self._deps.ticks, self._deps.clock, partial(self._rollouts, audience))

    def rollout(self, audience: Audience, asked: OneRollout) -> Source:
        return lambda: looked(
            self._deps.ticks, self._deps.clock,
            partial(self._rollout, audience, asked, TrafficSeries(_ROLLOUT_SERIES_MS)),
        )  # fmt: skip

    async def _app(self, audience: Audience, asked: OneApp, series: TrafficSeries) -> Look:
        fleet, reads, who, ref = self._deps.fleet, self._deps.reads, audience.reader, asked.ref
        now = reads.now_ms()
        shown = await fleet.get(who, ref)
        status = await fleet.status(who, ref, now=now)
        history = await fleet.history(who, ref, limit=_REVISIONS)
        instances = await fleet.instances(who, ref, now=now)
        events = await fleet.events(who, ref, limit=_EVENTS)
        explained = await fleet.explain(who, ref)
        counted = await reads.traffic(audience.workspace, series.since(now), app=shown["metadata"]["id"])
        environments = await reads.environment_ids(audience.workspace, asked.project, asked.environment)
        entrances = await reads.entrances(audience.workspace, now, environments)
        names = {"project": asked.project, "environment": asked.environment, "name": asked.app}
        place = names | status
        found: dict[str, Row] = {
            "app": app_row(place)
            | traffic_fields(app_numbers(counted, now).get(f"{asked.project}/{asked.environment}/{asked.app}"))
            | row(
                version=shown["metadata"]["version"],
                createdAt=ms_of(shown["metadata"]["createdAt"]),
                labels=shown["metadata"]["labels"] or None,
                spec=shown["spec"],
                desired=shown["spec"].get("desired"),
                conditions=status["conditions"],
                explain=[told(each) for each in explained["lines"]],
            )  # fmt: skip
        }
        found |= {f"place/{key}": each for key, each in place_rows(place, now).items()}
        found |= {f"revision/{each['revision']}": revision_row(each) for each in history["revisions"]}
        found |= {f"instance/{each['name']}": instance_row(each, now) for each in instances}
        found |= {f"event/{each['id']}": event_row(each) for each in events}
        found |= self._traffic(counted, series, now)
        if rollouts := await fleet.rollouts(who, ref):
            brief = status.get("rollout") or {}
            found["rollout"] = with_moments({**names_of(names), **rollouts[0], **brief}, _ROLLOUT_MOMENTS)
        gateways = (await self._deps.overview(audience, old_s=GATEWAYS_OLD_S))[1]["gateways"]
        regions = {each["region"] for each in status["regions"]}
        for each in gateways:
            here = (each["project"], each["environment"]) == (asked.project, asked.environment)
            if here or (not each["environment"] and each["region"] in regions):
                found[f"gateway/{each['region']}"] = gateway_row(each)
        routes = [each for each in entrances["route"] if leads_to(each, asked.app)]
        found |= {f"route/{each['name']}": entrance_rows(each) for each in routes}
        found |= {f"policy/{each['name']}": entrance_rows(each) for each in entrances["policy"] if routes}
        return Look(found, now)

    def _traffic(self, counted: CountedTraffic, series: TrafficSeries, now: int) -> dict[str, Row]:
        rows = revision_rows(counted, now)
        found = {f"traffic/{revision}/{region}": _unnamed(each) for (_, revision, region), each in rows.items()}
        revisions = {id_: revision for id_, (_, revision) in counted.revisions.items()}
        series.add(counted.spans, lambda each: revisions.get(each.deployment), now)
        for key, each in sample_rows(series).items():
            found[key] = each | {"revision": int(key.split("/")[1])}
        return found

    async def _rollouts(self, audience: Audience) -> Look:
        now = self._deps.reads.now_ms()
        listed = await self._deps.remembered(
            ("rollouts", audience.workspace), partial(self._deps.reads.rollouts, audience.workspace)
        ).get()
        rows = {
            f"{each['project']}/{each['environment']}/{each['app']}/{each['number']}": row(**_filled(each))
            for each in listed
        }
        return Look(rows, now)

    async def _rollout(self, audience: Audience, asked: OneRollout, series: TrafficSeries) -> Look:
        fleet, reads = self._deps.fleet, self._deps.reads
        now = reads.now_ms()
        found, shown = await asyncio.gather(
            fleet.rollout(audience.reader, asked.ref, asked.number), fleet.get(audience.reader, asked.ref)
        )
        app_id = shown["metadata"]["id"]
        record = await reads.rollout_row(audience.workspace, app_id, found["number"])
        if record is None:
            raise NotFound(f"rollout {found['number']} of {asked.ref} not found")
        until = record.ended_at or now
        counted = await reads.traffic(
            audience.workspace, max(series.since(now), until - _ROLLOUT_SERIES_MS), app=app_id
        )
        series.add(counted.spans, lambda each: _role(record.deployment_id, each, counted.regions), now)
        rows = rollout_rows(found, strategy_of_row(record).abort)
        rows["rollout"] |= names_of({"project": asked.project, "environment": asked.environment, "name": asked.app})
        for key, each in sample_rows(series).items():
            _, role, region, _ = key.split("/")
            rows[key] = each | {"role": role, "region": region}
        return Look(rows, now)


_ROLLOUT_MOMENTS = ("startedAt", "updatedAt", "endedAt", "keptUntil", "stepUntil", "holdEndsAt", "dueAt")
_LISTS = ("regions", "steps", "decisions", "waves")


def rollout_rows(found: Json, abort: Any) -> dict[str, Row]:
    """The rows of one rollout, from what ``shoal rollout status`` shows."""
    flat = {name: value for name, value in found.items() if name not in _LISTS}
    rows: dict[str, Row] = {
        "rollout": with_moments(_filled(flat), _ROLLOUT_MOMENTS)
        | {"steps": len(found["steps"]), "waves": len(found["waves"]), "waveRegions": found["waves"]}
    }
    for index, step in enumerate(found["steps"]):
        rows[f"step/{index}"] = row(index=index, state=_step_state(found, index), **step)
    rows |= {f"region/{each['region']}": region_row(each) for each in found["regions"]}
    for each in found["decisions"]:
        rows[f"decision/{each['id']}"] = with_moments(_filled(each), ("at",))
    if abort.errors is not None:
        rows["limit/errors"] = {
            "measure": "errors", "value": abort.errors, "unit": "share",
            "text": f"at most {abort.errors:.2%} of the candidate's requests may fail",
        }  # fmt: skip
    for limit in abort.latency:
        percent = limit.quantile * 100
        rows[f"limit/p{percent:g}"] = {
            "measure": f"p{percent:g}", "value": limit.ms, "unit": "ms",
            "text": f"{percent:g} % of the candidate's requests may take at most {limit.ms:g} ms",
        }  # fmt: skip
    if abort.errors is None and not abort.latency:
        rows["limit/stable"] = {"measure": "errors", "relative": True, "text": "the candidate is compared with stable"}
    return rows


def region_row(each: Json) -> Row:
    goal, candidate, stable = each["goal"] or {}, each["candidate"], each["stable"]
    flat = {f"candidate{_capital(name)}": value for name, value in candidate.items()}
    flat |= {f"stable{_capital(name)}": value for name, value in stable.items()}
    return row(
        region=each["region"], wave=each["wave"], size=each["size"], weight=each["weight"], routed=each["routed"],
        goalWeight=goal.get("weight"), goalInstances=goal.get("instances"), lost=each["lost"] or None,
        leftOut=each["leftOut"] or None, waitsFor=each["waitsFor"] or None, failure=text(each["failure"]), **flat,
    )  # fmt: skip


def revision_row(each: Json) -> Row:
    return row(
        revision=each["revision"], id=each["id"], image=each["image"], git=each["git"] or None, status=each["status"],
        state=each["state"], reason=text(each["reason"]), live=each["live"] or None, createdAt=ms_of(each["createdAt"]),
        readyAt=ms_of(each["readyAt"]), template=each["template"], name=each["name"],
    )  # fmt: skip


def instance_row(each: Json, now_ms: int) -> Row:
    plain = (
        "name", "revision", "region", "cluster", "shard", "node", "zone", "address", "namespace", "status", "ready",
        "restarts", "reason", "message", "cpuMillicores", "memoryMib",
    )  # fmt: skip
    return row(
        **{name: each[name] for name in plain if each[name] not in ("", None)}, exitCode=each["exitCode"] or None,
        startedAt=ms_of(each["startedAt"]), reportedAt=moment(each["age"], now_ms),
    )  # fmt: skip


def event_row(each: Json) -> Row:
    return with_moments(_filled(each), ("at",))


def names_of(names: Json) -> Row:
    return {"project": names["project"], "environment": names["environment"], "app": names["name"]}


def _role(candidate: str, span: CountedSpan, regions: Mapping[str, str]) -> str:
    """All else that has requests while a rollout is under way is stable: it may count under an earlier revision, whose
    instances it has taken over."""
    role = "candidate" if span.deployment == candidate else "stable"
    return f"{role}/{regions.get(span.region, span.region)}"


def _step_state(found: Json, index: int) -> str:
    """``failed`` is the step at which a rollout went back, ``skipped`` those that it did not come to."""
    if found["outcome"] == PROMOTED or index < found["step"]:
        return "done"
    if not found["outcome"] and found["phase"] not in (GOING_BACK, FROZEN):
        return "now" if index == found["step"] else "next"
    return "failed" if index == found["step"] else "skipped"


def _filled(found: Json) -> Row:
    """Without empty texts and lists."""
    return {name: value for name, value in found.items() if value not in ("", None, [], {})}


def _unnamed(each: Row) -> Row:
    return {name: value for name, value in each.items() if name not in ("project", "environment", "app")}


def _capital(name: str) -> str:
    return {"p50": "P50Ms", "p99": "P99Ms"}.get(name, f"{name[:1].upper()}{name[1:]}")
