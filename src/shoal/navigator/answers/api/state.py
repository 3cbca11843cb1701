"""Paths over what is known: clusters, queries, services, workloads, pods, search; now, or at a moment."""

from __future__ import annotations

from starlette.responses import Response

from shoal.errors import NotFound
from shoal.navigator.answers.api import describe
from shoal.navigator.answers.api.answers import json_answer, position_of
from shoal.navigator.answers.api.calls import Call, Operation, Parameter, no_cluster
from shoal.navigator.answers.api.sources import ROOT, Sources, about, cluster_json
from shoal.navigator.answers.asking import in_turns
from shoal.navigator.answers.query.fields import QUERY_KINDS
from shoal.navigator.answers.query.parser import parse
from shoal.navigator.answers.query.run import Page, Result, Runner
from shoal.navigator.answers.search import search
from shoal.navigator.answers.services import service, services
from shoal.navigator.answers.workloads import pod_detail, pod_row, workload, workloads
from shoal.navigator.model import KINDS
from shoal.navigator.view import View

NO_NAMESPACE = "-"
_LISTED = (describe.CLUSTER, describe.NAMESPACE, describe.LIMIT, describe.CONTINUE, describe.AT)
_QUERY = Parameter("q", {"type": "string", "maxLength": 4096}, "`pods where image ~ 'v2' and not ready`", required=True)
_TEXT = Parameter("text", {"type": "string"}, "Words, all of which must be found", required=True)
_EXPOSED = Parameter("exposed", {"type": "boolean"}, "Only pods that are endpoints of a service, or are of none")


class State:
    def __init__(self, sources: Sources) -> None:
        self._sources = sources

    def operations(self) -> list[Operation]:
        def get(path: str, id_: str, tag: str, summary: str, handler: object, answer: str, *more: Parameter,
                errors: tuple[int, ...] = ()) -> Operation:  # fmt: skip
            return Operation(
                method="GET", path=f"{ROOT}/{path}", id=id_, tag=tag, summary=summary, handler=handler,  # type: ignore[arg-type]
                answer=answer, parameters=more, errors=errors,
            )  # fmt: skip

        past = (404, 410)
        return [
            get("clusters", "listClusters", "clusters", "All clusters, and how fresh what is known of each is",
                self.clusters, "Clusters", describe.AT, errors=(410,)),
            get("clusters/{cluster}", "getCluster", "clusters", "One cluster", self.cluster, "Cluster", describe.AT,
                errors=past),
            get("kinds", "listKinds", "query", "What can be asked for: kinds, their fields and types", self.kinds,
                "Kinds"),
            get("query", "query", "query", "Ask for objects of all clusters", self.query, "QueryResult", _QUERY,
                describe.LIMIT, describe.CONTINUE, describe.AT, errors=(400, 410)),
            get("services", "listServices", "services", "Services, those of one name in several clusters as one",
                self.services, "Services", *_LISTED, errors=past),
            get("services/{namespace}/{name}", "getService", "services",
                "One service with its endpoints in all clusters, ready or not", self.service, "Service", describe.AT,
                errors=past),
            get("workloads", "listWorkloads", "workloads", "Deployments and other owners of pods, over all clusters",
                self.workloads, "Workloads", *_LISTED, errors=past),
            get("workloads/{namespace}/{kind}/{name}", "getWorkload", "workloads", "One workload with its pods",
                self.workload, "Workload", describe.AT, errors=past),
            get("pods", "listPods", "pods", "Pods; with exposed=false those without a service", self.pods,
                "QueryResult", _EXPOSED, *_LISTED, errors=(400, *past)),
            get("pods/{cluster}/{namespace}/{name}", "getPod", "pods", "One pod", self.pod, "Pod", describe.AT,
                errors=past),
            get("objects/{cluster}/{kind}/{namespace}/{name}", "getObject", "objects",
                "One object as its cluster reports it; - for no namespace", self.object, "Anything", describe.AT,
                errors=past),
            get("search", "search", "search", "One text over all kinds, the best first", self.search, "Hits", _TEXT,
                describe.KIND, describe.CLUSTER, describe.LIMIT, describe.AT, errors=past),
        ]  # fmt: skip

    async def clusters(self, call: Call) -> Response:
        view = await self._sources.seen(call)
        return json_answer({"items": [cluster_json(view, each) for each in view.clusters()], "at": about(view)["at"]})

    async def cluster(self, call: Call) -> Response:
        view = await self._sources.seen(call)
        name = call.name("cluster")
        found = view.cluster(name)
        if found is None:
            raise no_cluster(view, name)
        return json_answer(cluster_json(view, found))

    async def kinds(self, call: Call) -> Response:
        return json_answer(
            {
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
        )

    async def query(self, call: Call) -> Response:
        view = await self._sources.seen(call)
        return await self._asked(call, view, call.needed("q"))

    async def pods(self, call: Call) -> Response:
        view = await self._sources.seen(call)
        parts = [f"{name} = '{_quoted(value)}'" for name, value in (
            ("cluster", call.cluster(view)), ("namespace", call.text("namespace"))) if value]  # fmt: skip
        exposed = call.flag("exposed")
        if exposed is not None:
            parts.append("exposed" if exposed else "not exposed")
        return await self._asked(call, view, f"pods where {' and '.join(parts)}" if parts else "pods")

    async def services(self, call: Call) -> Response:
        view = await self._sources.seen(call)
        place = call.place(2)
        page = services(
            view, cluster=call.cluster(view), namespace=call.text("namespace"), limit=call.limit(),
            after=(place[0], place[1]) if place is not None else None,
        )  # fmt: skip
        last = page.items[-1] if page.more else None
        position = position_of([last["namespace"], last["name"]]) if last is not None else ""
        return json_answer({"items": page.items, "total": page.total, "continue": position, **about(view)})

    async def service(self, call: Call) -> Response:
        view = await self._sources.seen(call)
        return json_answer({**service(view, call.name("namespace"), call.name("name")), **about(view)})

    async def workloads(self, call: Call) -> Response:
        view = await self._sources.seen(call)
        place = call.place(3)
        page = await in_turns(workloads(
            view, self._sources.deployments, cluster=call.cluster(view), namespace=call.text("namespace"),
            limit=call.limit(), after=(place[0], place[1], place[2]) if place is not None else None,
        ))  # fmt: skip
        last = page.items[-1] if page.more else None
        position = position_of([last["namespace"], last["kind"], last["name"]]) if last is not None else ""
        return json_answer({"items": page.items, "total": page.total, "continue": position, **about(view)})

    async def workload(self, call: Call) -> Response:
        view = await self._sources.seen(call)
        found = await in_turns(
            workload(view, self._sources.deployments, call.name("namespace"), call.name("kind"), call.name("name"))
        )
        return json_answer({**found, **about(view)})

    async def pod(self, call: Call) -> Response:
        view = await self._sources.seen(call)
        row = pod_row(view, call.name("cluster"), call.name("namespace"), call.name("name"))
        (obj,) = await view.objects([row])
        return json_answer(pod_detail(view, self._sources.deployments(), row, obj))

    async def object(self, call: Call) -> Response:
        view = await self._sources.seen(call)
        cluster, kind, namespace, name = (call.name(part) for part in ("cluster", "kind", "namespace", "name"))
        if view.cluster(cluster) is None:
            raise no_cluster(view, cluster)
        if kind not in KINDS:
            raise NotFound(f"there is no kind {kind[:64]!r}; there are: {', '.join(KINDS)}")
        key = name if namespace == NO_NAMESPACE else f"{namespace}/{name}"
        row = view.row(cluster, kind, key)
        found = (await view.objects([row]))[0] if row is not None else None
        if found is None:
            raise NotFound(f"cluster {cluster!r} has no {KINDS[kind].kind} {key}")
        return json_answer(found)

    async def search(self, call: Call) -> Response:
        view = await self._sources.seen(call)
        text, limit = call.needed("text"), call.limit(50)
        hits, total = await in_turns(
            search(view, text, kinds=call.kinds(), cluster=call.cluster(view), limit=limit)
        )  # fmt: skip
        return json_answer({"items": [hit.as_json() for hit in hits], "total": total, **about(view)})

    async def _asked(self, call: Call, view: View, text: str) -> Response:
        query = parse(text, now_s=view.at_s)
        runner = Runner(view, self._sources.deployments)
        result = await in_turns(runner.steps(query, Page(call.limit(), call.text("continue"))))
        return json_answer({**_result_json(result), **about(view)})


def _result_json(result: Result) -> dict[str, object]:
    return {
        "kind": result.kind,
        "columns": [{"name": each.name, "type": each.type} for each in result.columns],
        "items": result.items,
        "total": result.total,
        "continue": result.position,
        "plan": result.plan,
    }


def _quoted(text: str) -> str:
    return text.replace("'", "''")
