"""The topics that the navigator answers: clusters, services, workloads, pods, queries, checks, mistakes, shards.

What it streams is passed on: it is asked once for all pages that may see the same, and its whole answers become
differences here.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import aclosing
from functools import partial
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from shoal.dashboard.live.feed import Look, Source
from shoal.dashboard.live.plan import Row, row
from shoal.dashboard.topics.model import Audience, NoParameters, Topic, TopicDeps
from shoal.dashboard.topics.moments import ms_of, with_moments
from shoal.errors import ServiceUnavailable

MOST = 10_000
_CLUSTERS_S = 2.0
_APART_MS = 2500  # ages are told in parts of seconds: a moment that follows from one may be off by so much
_AGE = "age"

Json = Mapping[str, Any]
RowsOf = Callable[[Json], dict[str, Row]]


class Within(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    cluster: str = ""
    namespace: str = ""
    limit: Annotated[int, Meta(ge=1, le=MOST)] = MOST


class WithinPods(Within, frozen=True, forbid_unknown_fields=True, kw_only=True):
    exposed: bool | None = None


class OneService(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    namespace: Annotated[str, Meta(max_length=253)]
    name: Annotated[str, Meta(max_length=253)]


class QueryText(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    text: Annotated[str, Meta(max_length=4096)]
    limit: Annotated[int, Meta(ge=1, le=MOST)] = 1000


class Mistaken(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    cluster: str = ""
    namespace: str = ""
    severity: Literal["error", "warning"] | None = None


class SeenTopics:
    def __init__(self, deps: TopicDeps) -> None:
        self._deps = deps

    def topics(self) -> list[Topic[Any]]:
        def watched(path: str, rows: RowsOf, **fixed: Any) -> Callable[[Audience, Any], Source]:
            def source(audience: Audience, asked: Struct) -> Source:
                given = {name: getattr(asked, name) for name in asked.__struct_fields__}
                return partial(self._watch, audience, path, rows, {**given, **fixed})

            return source

        return [
            Topic("clusters", NoParameters, self.clusters),
            Topic("services", Within, watched("services", service_rows)),
            Topic("service", OneService, self.service),
            Topic("workloads", Within, watched("workloads", workload_rows)),
            Topic("pods", WithinPods, watched("pods", query_rows)),
            Topic("query", QueryText, self.query),
            Topic("checks", NoParameters, watched("checks", check_rows)),
            Topic("mistakes", Mistaken, watched("mesh/mistakes", mistake_rows)),
            Topic("shards", NoParameters, watched("shards", shard_rows)),
        ]

    def query(self, audience: Audience, asked: QueryText) -> Source:
        return partial(self._watch, audience, "query", query_rows, {"q": asked.text, "limit": asked.limit})

    def service(self, audience: Audience, asked: OneService) -> Source:
        return partial(self._watch, audience, f"services/{asked.namespace}/{asked.name}", one_service_rows, {})

    def clusters(self, audience: Audience, _: NoParameters) -> Source:
        return partial(self._clusters, audience)

    async def _clusters(self, audience: Audience) -> AsyncGenerator[Look, None]:
        """Asked again and again: when each was heard last changes all the time."""
        while True:
            answer = await self._deps.navigator.ask(audience.asker, "clusters")
            yield Look({each["name"]: cluster_row(each) for each in answer["items"]}, self._now())
            await self._deps.clock.sleep(_CLUSTERS_S)

    async def _watch(
        self, audience: Audience, path: str, rows: RowsOf, query: Mapping[str, Any]
    ) -> AsyncGenerator[Look, None]:
        known: dict[str, Row] = {}
        async with aclosing(self._deps.navigator.watch(audience.asker, path, **query)) as answers:
            async for answer in answers:
                try:
                    known = steady(known, rows(answer), age_columns(answer))
                except (KeyError, TypeError, ValueError) as error:
                    raise ServiceUnavailable(f"an answer of the navigator is malformed: {error}") from error
                yield Look(known, ms_of(answer.get("at")) or self._now())

    def _now(self) -> int:
        return self._deps.reads.now_ms()


def age_columns(answer: Json) -> list[str]:
    return [each["name"] for each in answer.get("columns") or () if each["type"] == _AGE]


def steady(before: Mapping[str, Row], after: dict[str, Row], names: Iterable[str]) -> dict[str, Row]:
    """Rows in which moments that follow from ages stay what they were, unless they differ by more than ages are
    exact."""
    for name in names:
        for key, new in after.items():
            old = before.get(key, {}).get(name)
            if old is not None and name in new and abs(new[name] - old) < _APART_MS:
                new[name] = old
    return after


def query_rows(answer: Json) -> dict[str, Row]:
    now_ms = ms_of(answer["at"]) or 0
    ages = age_columns(answer)
    about = row(
        kind=answer["kind"], columns=answer["columns"], total=answer["total"], plan=answer["plan"],
        notFresh=[_stale(each) for each in answer["notFresh"]] or None, forbidden=answer["forbidden"] or None,
    )  # fmt: skip
    found: dict[str, Row] = {"#": about}
    for number, item in enumerate(answer["items"]):
        parts = [str(item[part]) for part in ("cluster", "namespace", "name") if item.get(part)]
        key = "/".join(parts) if item.get("name") else str(number)
        if key in found:
            key = f"{key}/{number}"
        made = {name: value for name, value in item.items() if value is not None}
        made |= {name: now_ms - round(made[name] * 1000) for name in ages if name in made}
        found[key] = made
    return found


def service_rows(answer: Json) -> dict[str, Row]:
    return {"#": _about(answer)} | {f"{each['namespace']}/{each['name']}": dict(each) for each in answer["items"]}


def workload_rows(answer: Json) -> dict[str, Row]:
    return {"#": _about(answer)} | {
        f"{each['namespace']}/{each['kind']}/{each['name']}": row(**each) for each in answer["items"]
    }


def one_service_rows(answer: Json) -> dict[str, Row]:
    """Endpoints have rows of their own."""
    about = {name: value for name, value in answer.items() if name not in ("at", "notFresh", "clusters")}
    found: dict[str, Row] = {"#": row(**about)}
    for cluster in answer["clusters"]:
        endpoints = cluster.get("endpoints")
        if not isinstance(endpoints, list):
            found[f"cluster/{cluster['cluster']}"] = row(**cluster)
            continue
        rest = {name: value for name, value in cluster.items() if name != "endpoints"}
        found[f"cluster/{cluster['cluster']}"] = row(**rest)
        for number, each in enumerate(endpoints):
            name = each.get("pod") or each.get("address") or number
            found[f"endpoint/{cluster['cluster']}/{name}"] = row(**each) | {"cluster": cluster["cluster"]}
    return found


def check_rows(answer: Json) -> dict[str, Row]:
    return {each["name"]: row(**{n: v for n, v in each.items() if v != ""}) for each in answer["items"]}


def mistake_rows(answer: Json) -> dict[str, Row]:
    names = ("cluster", "kind", "namespace", "name", "code", "path")
    return {"/".join(str(each[name]) for name in names): dict(each) for each in answer["items"]}


def shard_rows(answer: Json) -> dict[str, Row]:
    found: dict[str, Row] = {}
    for kind, listed in (("config", "configs"), ("instance", "instances"), ("slots", "slots")):
        for each in answer[listed]:
            key = f"{kind}/{each['cluster']}/{each['namespace']}/{each['name']}"
            found[key] = with_moments(each, ("phaseSince",))
    return found


def cluster_row(each: Json) -> Row:
    plain = ("name", "region", "environment", "freshness", "edge", "epoch")
    return row(
        **{name: each[name] for name in plain if each[name] != ""}, version=each["metadata"].get("version"),
        connectedAt=ms_of(each["connectedAt"]), heardAt=ms_of(each["heardAt"]),
        kinds=[{name: kind[name] for name in ("kind", "state", "error", "rows")} for kind in each["kinds"]],
    )  # fmt: skip


def _about(answer: Json) -> Row:
    stale = [_stale(each) for each in answer.get("notFresh") or ()]
    return row(total=answer.get("total"), notFresh=stale or None)


def _stale(each: Json) -> Row:
    """Without how long ago it was heard: that changes all the time."""
    return row(cluster=each["cluster"], freshness=each["freshness"], reason=each.get("reason") or None)
