"""Paths over the mesh, the past and saved checks."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct, field

from shoal.errors import BadRequest, Expired, Forbidden, NotFound, invalid
from shoal.navigator.answers.api import bodies
from shoal.navigator.answers.api.parameters import (
    At,
    Limit,
    Moment,
    OfCluster,
    OfKinds,
    OfNamespace,
    kinds_of,
    known_cluster,
    no_cluster,
)
from shoal.navigator.answers.api.sources import ROOT, Caller, SourcesOf, about, moment_text
from shoal.navigator.answers.api.state import PAST
from shoal.navigator.answers.asking import in_turns
from shoal.navigator.answers.changes import shown_moments
from shoal.navigator.answers.checks import SavedCheck, check_json, new_check, run_check
from shoal.navigator.answers.diff import DiffScope, diff_clusters, diff_moments
from shoal.navigator.answers.mesh import acting, found_mistakes
from shoal.rest.answers import bad_query
from shoal.rest.operations import Operation, RestCall

_DAY_S = 86400.0
Json = dict[str, Any]


class ListedMistakes(At, frozen=True, kw_only=True):
    cluster: OfCluster = ""
    namespace: OfNamespace = ""
    severity: Annotated[bodies.Severity | None, Meta(description="Only these")] = None


class DiffParameters(At, frozen=True, kw_only=True):
    from_: Annotated[Moment, Meta(description="The earlier moment")] = field(name="from", default="")
    to: Annotated[Moment, Meta(description="The later moment; default now")] = ""
    left: Annotated[str, Meta(description="One cluster")] = ""
    right: Annotated[str, Meta(description="The other")] = ""
    cluster: OfCluster = ""
    namespace: OfNamespace = ""
    kind: OfKinds = ""
    limit: Limit = 200


class HistoryParameters(Struct, frozen=True, kw_only=True):
    cluster: OfCluster = ""
    kind: OfKinds = ""
    key: Annotated[str, Meta(description="NAMESPACE/NAME, or NAME")] = ""
    from_: Annotated[Moment, Meta(description="Default a day ago")] = field(name="from", default="")
    to: Annotated[Moment, Meta(description="Default now")] = ""
    limit: Limit = 200


class Analysis:
    def __init__(self, sources: SourcesOf) -> None:
        self._sources = sources

    def operations(self) -> list[Operation]:
        check = f"{ROOT}/checks/{{check}}"
        return [
            Operation(
                method="GET", path=f"{ROOT}/pods/{{cluster}}/{{namespace}}/{{name}}/istio", id="getPodIstio",
                tag="mesh", summary="The Istio resources that act on a pod, and why", handler=self.acting,
                answers={200: bodies.Acting}, errors=PAST,
            ),
            Operation(
                method="GET", path=f"{ROOT}/mesh/mistakes", id="listMistakes", tag="mesh", handler=self.mistakes,
                summary="Mistakes in the mesh's configuration, and how to fix them",
                answers={200: bodies.Mistakes}, errors=PAST,
            ),
            Operation(
                method="GET", path=f"{ROOT}/diff", id="diff", tag="past", handler=self.diff,
                summary="What differs between two moments (from, to) or two clusters (left, right)",
                answers={200: bodies.Diff}, errors=PAST,
            ),
            Operation(
                method="GET", path=f"{ROOT}/history", id="history", tag="past", handler=self.history,
                summary="History of changes, with the changed fields", answers={200: bodies.Items}, errors=PAST,
            ),
            Operation(
                method="GET", path=f"{ROOT}/checks", id="listChecks", tag="checks", handler=self.checks,
                summary="The saved checks", answers={200: bodies.SavedChecks},
            ),
            Operation(
                method="GET", path=f"{ROOT}/checks/results", id="runChecks", tag="checks", handler=self.results,
                summary="Results of all checks, with examples", answers={200: bodies.CheckResults}, errors=(Expired,),
            ),
            Operation(
                method="GET", path=check, id="runCheck", tag="checks", handler=self.result,
                summary="Result of one check", answers={200: bodies.CheckResult}, errors=PAST,
            ),
            Operation(
                method="PUT", path=check, id="saveCheck", tag="checks", handler=self.save, needs="write",
                summary="Save a query that must find nothing, or something", answers={200: bodies.SavedCheck},
                errors=(BadRequest, Forbidden),
            ),
            Operation(
                method="DELETE", path=check, id="removeCheck", tag="checks", handler=self.remove, needs="write",
                summary="Remove a check", answers={200: bodies.SavedCheck}, errors=(Forbidden, NotFound),
            ),
        ]  # fmt: skip

    async def acting(self, call: RestCall[Caller], query: At) -> Json:
        view = await self._sources(call).seen(query.at)
        found = await acting(view, call.path["cluster"], call.path["namespace"], call.path["name"])
        return {**found, **about(view)}

    async def mistakes(self, call: RestCall[Caller], query: ListedMistakes) -> Json:
        view = await self._sources(call).seen(query.at)
        chosen = known_cluster(view, query.cluster)
        clusters = [chosen] if chosen else [each.name for each in view.clusters()]
        found = await found_mistakes(view, clusters, query.namespace)
        shown = [each for each in found if query.severity in (None, each["severity"])]
        return {"items": shown, "total": len(shown), **about(view)}

    async def diff(self, call: RestCall[Caller], query: DiffParameters) -> Json:
        scope = DiffScope(kinds=kinds_of(query.kind), namespace=query.namespace, cluster=query.cluster)
        if query.left or query.right:
            if query.from_ or query.to:
                raise bad_query(invalid("from", query.from_, "give two moments or two clusters, not both"))
            return await self._diff_clusters(call, query, scope)
        from_s, to_s = self._sources(call).moment("from", query.from_), self._sources(call).moment("to", query.to)
        if from_s is None:
            raise bad_query(invalid("from", "", "must be given, or left and right for two clusters"))
        if to_s is not None and to_s <= from_s:
            raise bad_query(invalid("to", query.to, "must be after from"))
        before = await self._sources(call).history.at(from_s, cluster=scope.cluster)
        after = (
            self._sources(call).view()
            if to_s is None
            else await self._sources(call).history.at(to_s, cluster=scope.cluster)
        )
        found = await diff_moments(before, after, scope, limit=query.limit)
        first_s = await self._sources(call).history.first_s()
        begins = moment_text(first_s) if first_s is not None and from_s < first_s else None
        return {"from": moment_text(from_s), "to": moment_text(after.at_s), "historyBegins": begins, **found}

    async def _diff_clusters(self, call: RestCall[Caller], query: DiffParameters, scope: DiffScope) -> Json:
        view = await self._sources(call).seen(query.at)
        for parameter, name in (("left", query.left), ("right", query.right)):
            if not name:
                raise bad_query(invalid(parameter, "", "must be given to compare two clusters"))
            if view.cluster(name) is None:
                raise no_cluster(view, name)
        found = await diff_clusters(view, query.left, query.right, scope, limit=query.limit)
        return {"left": query.left, "right": query.right, **found, **about(view)}

    async def history(self, call: RestCall[Caller], query: HistoryParameters) -> Json:
        to_s = self._sources(call).moment("to", query.to) or self._sources(call).clock.wall_s()
        from_s = self._sources(call).moment("from", query.from_)
        from_s = to_s - _DAY_S if from_s is None else from_s
        kinds = kinds_of(query.kind)
        if len(kinds) > 1:
            raise bad_query(invalid("kind", query.kind, "must be one kind"))
        moments = await self._sources(call).history.between(
            from_s, to_s, cluster=query.cluster, kind=kinds[0] if kinds else "", key=query.key, limit=query.limit
        )
        items = [{**each, "at": moment_text(each["at"])} for each in shown_moments(moments)]
        return {"items": items, "from": moment_text(from_s), "to": moment_text(to_s)}

    async def checks(self, call: RestCall[Caller]) -> Json:
        return {"items": [check_json(each) for each in self._sources(call).checks.all().values()]}

    async def results(self, call: RestCall[Caller], query: At) -> Json:
        view = await self._sources(call).seen(query.at)
        found = [
            await in_turns(run_check(each, view, self._sources(call).deployments))
            for each in self._sources(call).checks.all().values()
        ]
        return {"items": found, "ok": all(each["ok"] for each in found), **about(view)}

    async def result(self, call: RestCall[Caller], query: At) -> Json:
        view = await self._sources(call).seen(query.at)
        return await in_turns(run_check(self._check(call), view, self._sources(call).deployments))

    async def save(self, call: RestCall[Caller], body: bodies.CheckWritten) -> Json:
        made = new_check(
            call.path["check"], body.query, expect=body.expect, description=body.description,
            now_s=self._sources(call).clock.wall_s(),
        )  # fmt: skip
        self._sources(call).checks.put(made)
        return check_json(made)

    async def remove(self, call: RestCall[Caller]) -> Json:
        check = self._check(call)
        self._sources(call).checks.remove(check.name)
        return check_json(check)

    def _check(self, call: RestCall[Caller]) -> SavedCheck:
        known = self._sources(call).checks.all()
        name = call.path["check"]
        if name not in known:
            raise NotFound(f"check {name[:64]!r} not found (existing checks: {', '.join(list(known)[:20]) or 'none'})")
        return known[name]
