"""Paths over the known state, now or at a past moment: clusters, queries, services, workloads, pods, search."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from msgspec import Meta, Struct

from shoal.errors import ApiError, BadRequest, Conflict, Expired, Forbidden, NotFound, ServiceUnavailable
from shoal.navigator.answers.api import bodies
from shoal.navigator.answers.api.parameters import (
    At,
    Limit,
    ListParameters,
    OfCluster,
    OfKinds,
    Paged,
    kinds_of,
    known_cluster,
    no_cluster,
    parts_of_position,
    position_of,
)
from shoal.navigator.answers.api.sources import ROOT, Caller, SourcesOf, about, cluster_json
from shoal.navigator.answers.asking import in_turns
from shoal.navigator.answers.query.fields import QUERY_KINDS
from shoal.navigator.answers.query.parser import parse
from shoal.navigator.answers.query.run import QueryPage, QueryResult, Runner
from shoal.navigator.answers.search import search
from shoal.navigator.answers.services import service, services
from shoal.navigator.answers.shards import read_shards
from shoal.navigator.answers.workloads import pod_detail, pod_row, workload, workloads
from shoal.navigator.model import KINDS
from shoal.navigator.view import View
from shoal.rest.operations import Operation, RestCall

NO_NAMESPACE = "-"
PAST: tuple[type[ApiError], ...] = (NotFound, Expired)
Json = dict[str, Any]


class Forgotten(Struct, frozen=True):
    revoke: Annotated[bool, Meta(description="Also revoke the tokens of its edges, which ends their streams")] = False


class QueryParameters(Paged, frozen=True, kw_only=True):
    q: Annotated[str, Meta(max_length=4096, description="`pods where image ~ 'v2' and not ready`")]


class ListedPods(ListParameters, frozen=True, kw_only=True):
    exposed: Annotated[
        bool | None, Meta(description="true: only pods that are endpoints of a service; false: only others")
    ] = None


class SearchedText(At, frozen=True, kw_only=True):
    text: Annotated[str, Meta(description="Words, all of which must be found")]
    kind: OfKinds = ""
    cluster: OfCluster = ""
    limit: Limit = 50


class State:
    def __init__(self, sources: SourcesOf) -> None:
        self._sources = sources

    def operations(self) -> list[Operation]:
        def get(path: str, id_: str, tag: str, summary: str, handler: Any, answer: Any,
                errors: tuple[type[ApiError], ...] = PAST) -> Operation:  # fmt: skip
            return Operation(
                method="GET", path=f"{ROOT}/{path}", id=id_, tag=tag, summary=summary, handler=handler,
                answers={200: answer}, errors=errors,
            )  # fmt: skip

        return [
            get("clusters", "listClusters", "clusters", "All clusters, and how fresh their state is",
                self.clusters, bodies.Clusters, (Expired,)),
            get("clusters/{cluster}", "getCluster", "clusters", "One cluster", self.cluster, bodies.Cluster),
            Operation(
                method="DELETE", path=f"{ROOT}/clusters/{{cluster}}", id="forgetCluster", tag="clusters",
                summary="Forget a cluster; the history keeps its objects", handler=self.forget, needs="write",
                answers={200: bodies.Cluster}, errors=(NotFound, Conflict, Forbidden, ServiceUnavailable),
            ),
            get("kinds", "listKinds", "query", "The kinds that can be queried, their fields and types", self.kinds,
                bodies.QueryKinds, ()),
            get("query", "query", "query", "Query the objects of all clusters", self.query, bodies.QueryResult,
                (BadRequest, Expired)),
            get("services", "listServices", "services", "Services; those of one name in several clusters are one",
                self.services, bodies.Services),
            get("services/{namespace}/{name}", "getService", "services",
                "One service with its endpoints in all clusters, ready or not", self.service, bodies.Service),
            get("workloads", "listWorkloads", "workloads", "Deployments and other owners of pods, over all clusters",
                self.workloads, bodies.Workloads),
            get("workloads/{namespace}/{kind}/{name}", "getWorkload", "workloads", "One workload with its pods",
                self.workload, bodies.Workload),
            get("pods", "listPods", "pods", "Pods; with exposed=false those without a service", self.pods,
                bodies.QueryResult, (BadRequest, *PAST)),
            get("pods/{cluster}/{namespace}/{name}", "getPod", "pods", "One pod", self.pod, Json),
            get("objects/{cluster}/{kind}/{namespace}/{name}", "getObject", "objects",
                "One object as its cluster reports it; - for no namespace", self.object, Json),
            get("shards", "getShards", "shards", "Sharded controllers: their shards, and the owner of each slot",
                self.shards, bodies.Shards),
            get("search", "search", "search", "Search all kinds, best matches first", self.search, bodies.Hits),
        ]  # fmt: skip

    async def clusters(self, call: RestCall[Caller], query: At) -> Json:
        view = await self._sources(call).seen(query.at)
        return {"items": [cluster_json(view, each) for each in view.clusters()], "at": about(view)["at"]}

    async def cluster(self, call: RestCall[Caller], query: At) -> Json:
        view = await self._sources(call).seen(query.at)
        name = call.path["cluster"]
        found = view.cluster(name)
        if found is None:
            raise no_cluster(view, name)
        return cluster_json(view, found)

    async def forget(self, call: RestCall[Caller], query: Forgotten) -> Json:
        view, name = self._sources(call).view(), call.path["cluster"]
        found = view.cluster(name)
        if found is None:
            raise no_cluster(view, name)
        shown = cluster_json(view, found)
        await self._sources(call).admin.forget(name, revoke=query.revoke)
        return shown

    async def kinds(self, call: RestCall[Caller]) -> Json:
        return {
            "items": [
                {
                    "name": kind.name,
                    "words": list(kind.words),
                    "columns": list(kind.columns),
                    "fields": [
                        {"name": field.name, "type": str(field.type), "help": field.help}
                        for field in kind.fields.values()
                    ],
                }
                for kind in QUERY_KINDS.values()
            ]
        }

    async def query(self, call: RestCall[Caller], query: QueryParameters) -> Json:
        view = await self._sources(call).seen(query.at)
        return await self._asked(call, query, view, query.q)

    async def pods(self, call: RestCall[Caller], query: ListedPods) -> Json:
        view = await self._sources(call).seen(query.at)
        parts = [f"{name} = '{_quoted(value)}'" for name, value in (
            ("cluster", known_cluster(view, query.cluster)), ("namespace", query.namespace)) if value]  # fmt: skip
        if query.exposed is not None:
            parts.append("exposed" if query.exposed else "not exposed")
        return await self._asked(call, query, view, f"pods where {' and '.join(parts)}" if parts else "pods")

    async def services(self, call: RestCall[Caller], query: ListParameters) -> Json:
        view = await self._sources(call).seen(query.at)
        after = parts_of_position(query.position, 2)
        page = services(
            view, cluster=known_cluster(view, query.cluster), namespace=query.namespace, limit=query.limit,
            after=(after[0], after[1]) if after is not None else None,
        )  # fmt: skip
        last = page.items[-1] if page.more else None
        position = position_of([last["namespace"], last["name"]]) if last is not None else ""
        return {"items": page.items, "total": page.total, "continue": position, **about(view)}

    async def service(self, call: RestCall[Caller], query: At) -> Json:
        view = await self._sources(call).seen(query.at)
        return {**service(view, call.path["namespace"], call.path["name"]), **about(view)}

    async def workloads(self, call: RestCall[Caller], query: ListParameters) -> Json:
        sources = self._sources(call)
        view = await sources.seen(query.at)
        after = parts_of_position(query.position, 3)
        page = await in_turns(workloads(
            view, sources.deployments, cluster=known_cluster(view, query.cluster), namespace=query.namespace,
            limit=query.limit, after=(after[0], after[1], after[2]) if after is not None else None,
        ))  # fmt: skip
        last = page.items[-1] if page.more else None
        position = position_of([last["namespace"], last["kind"], last["name"]]) if last is not None else ""
        return {"items": page.items, "total": page.total, "continue": position, **about(view)}

    async def workload(self, call: RestCall[Caller], query: At) -> Json:
        view = await self._sources(call).seen(query.at)
        found = await in_turns(
            workload(
                view, self._sources(call).deployments, call.path["namespace"], call.path["kind"], call.path["name"]
            )
        )  # fmt: skip
        return {**found, **about(view)}

    async def pod(self, call: RestCall[Caller], query: At) -> Json:
        view = await self._sources(call).seen(query.at)
        row = pod_row(view, call.path["cluster"], call.path["namespace"], call.path["name"])
        (obj,) = await view.objects([row])
        return pod_detail(view, self._sources(call).deployments(), row, obj)

    async def object(self, call: RestCall[Caller], query: At) -> Json:
        view = await self._sources(call).seen(query.at)
        cluster, kind, namespace, name = (call.path[part] for part in ("cluster", "kind", "namespace", "name"))
        if view.cluster(cluster) is None:
            raise no_cluster(view, cluster)
        if kind not in KINDS:
            raise NotFound(f"kind {kind[:64]!r} not found (existing kinds: {', '.join(KINDS)})")
        key = name if namespace == NO_NAMESPACE else f"{namespace}/{name}"
        row = view.row(cluster, kind, key)
        found = (await view.objects([row]))[0] if row is not None else None
        if found is None:
            raise NotFound(f"cluster {cluster!r} has no {KINDS[kind].kind} {key}")
        return found

    async def shards(self, call: RestCall[Caller], query: At) -> Json:
        view = await self._sources(call).seen(query.at)
        return {**await read_shards(view), **about(view)}

    async def search(self, call: RestCall[Caller], query: SearchedText) -> Json:
        view = await self._sources(call).seen(query.at)
        cluster = known_cluster(view, query.cluster)
        hits, total = await in_turns(
            search(view, query.text, kinds=kinds_of(query.kind), cluster=cluster, limit=query.limit)
        )
        return {"items": [hit.as_json() for hit in hits], "total": total, **about(view)}

    async def _asked(self, call: RestCall[Caller], asked: Paged, view: View, text: str) -> Json:
        query = parse(text, now_s=view.at_s)
        runner = Runner(view, self._sources(call).deployments)
        result = await in_turns(runner.steps(query, QueryPage(asked.limit, asked.position)))
        return {**_result_json(result), **about(view)}


def _result_json(result: QueryResult) -> dict[str, object]:
    return {
        "kind": result.kind,
        "columns": [{"name": each.name, "type": each.type} for each in result.columns],
        "items": result.items,
        "total": result.total,
        "continue": result.position,
        "plan": result.plan,
        "forbidden": [asdict(each) for each in result.forbidden],
    }


def _quoted(text: str) -> str:
    return text.replace("'", "''")
