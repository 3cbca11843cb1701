"""Paths over the mesh, the past and saved checks."""

from __future__ import annotations

from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from shoal.errors import BadRequest, Forbidden, NotFound, TooLarge, invalid, not_supported
from shoal.navigator.answers.api import describe
from shoal.navigator.answers.api.answers import json_answer
from shoal.navigator.answers.api.calls import Call, Operation, Parameter, bad_query, no_cluster
from shoal.navigator.answers.api.sources import ROOT, Sources, about, moment_text
from shoal.navigator.answers.asking import in_turns
from shoal.navigator.answers.changes import shown_moments
from shoal.navigator.answers.checks import Check, check_json, read_check, run_check
from shoal.navigator.answers.diff import Scope, diff_clusters, diff_moments
from shoal.navigator.answers.mesh import acting, found_mistakes

_MAX_BODY = 64 << 10
_DAY_S = 86400.0
_SEVERITY = Parameter("severity", {"type": "string", "enum": ["error", "warning"]}, "Only these")
_MOMENT = {"type": "string", "maxLength": 64}


class Analysis:
    def __init__(self, sources: Sources) -> None:
        self._sources = sources

    def operations(self) -> list[Operation]:
        past = (404, 410)
        return [
            Operation(
                method="GET", path=f"{ROOT}/pods/{{cluster}}/{{namespace}}/{{name}}/istio", id="getPodIstio",
                tag="mesh", summary="The Istio resources that act on a pod, and why", handler=self.acting,
                answer="Acting", parameters=(describe.AT,), errors=past,
            ),
            Operation(
                method="GET", path=f"{ROOT}/mesh/mistakes", id="listMistakes", tag="mesh", handler=self.mistakes,
                summary="What is wrong in the mesh's configuration, and how to mend it", answer="Mistakes",
                parameters=(describe.CLUSTER, describe.NAMESPACE, _SEVERITY, describe.AT), errors=past,
            ),
            Operation(
                method="GET", path=f"{ROOT}/diff", id="diff", tag="past", handler=self.diff, answer="Diff",
                summary="What differs between two moments (from, to) or two clusters (left, right)",
                parameters=(
                    Parameter("from", _MOMENT, "The earlier moment"),
                    Parameter("to", _MOMENT, "The later one; default now"),
                    Parameter("left", {"type": "string"}, "One cluster"),
                    Parameter("right", {"type": "string"}, "The other"),
                    describe.CLUSTER, describe.NAMESPACE, describe.KIND, describe.LIMIT, describe.AT,
                ),
                errors=past,
            ),
            Operation(
                method="GET", path=f"{ROOT}/history", id="history", tag="past", handler=self.history, answer="Items",
                summary="What changed when, with the fields that changed",
                parameters=(
                    describe.CLUSTER, describe.KIND, Parameter("key", {"type": "string"}, "NAMESPACE/NAME, or NAME"),
                    Parameter("from", _MOMENT, "Default a day ago"), Parameter("to", _MOMENT, "Default now"),
                    describe.LIMIT,
                ),
                errors=past,
            ),
            Operation(
                method="GET", path=f"{ROOT}/checks", id="listChecks", tag="checks", handler=self.checks,
                summary="The saved checks", answer="Checks",
            ),
            Operation(
                method="GET", path=f"{ROOT}/checks/results", id="runChecks", tag="checks", handler=self.results,
                summary="How all checks stand, with examples", answer="CheckResults", parameters=(describe.AT,),
                errors=(410,),
            ),
            Operation(
                method="GET", path=f"{ROOT}/checks/{{check}}", id="runCheck", tag="checks", handler=self.result,
                summary="How one check stands", answer="CheckResult", parameters=(describe.AT,), errors=past,
            ),
            Operation(
                method="PUT", path=f"{ROOT}/checks/{{check}}", id="saveCheck", tag="checks", handler=self.save,
                summary="Save a query that must find nothing, or something", answer="Check", body="CheckWritten",
                errors=(400, 403, 413),
            ),
            Operation(
                method="DELETE", path=f"{ROOT}/checks/{{check}}", id="removeCheck", tag="checks", handler=self.remove,
                summary="Remove a check", answer="Check", errors=(403, 404),
            ),
        ]  # fmt: skip

    async def acting(self, call: Call) -> Response:
        view = await self._sources.seen(call)
        found = await acting(view, call.name("cluster"), call.name("namespace"), call.name("name"))
        return json_answer({**found, **about(view)})

    async def mistakes(self, call: Call) -> Response:
        view = await self._sources.seen(call)
        chosen, severity = call.cluster(view), call.text("severity")
        if severity not in ("", "error", "warning"):
            raise bad_query(not_supported("severity", severity, ("error", "warning")))
        clusters = [chosen] if chosen else [each.name for each in view.clusters()]
        found = await found_mistakes(view, clusters, call.text("namespace"))
        shown = [each for each in found if severity in ("", each["severity"])]
        return json_answer({"items": shown, "total": len(shown), **about(view)})

    async def diff(self, call: Call) -> Response:
        scope = Scope(kinds=call.kinds(), namespace=call.text("namespace"), cluster=call.text("cluster"))
        limit = call.limit(200)
        left, right = call.text("left"), call.text("right")
        if left or right:
            if call.text("from") or call.text("to"):
                raise bad_query(invalid("from", call.text("from"), "two moments or two clusters, not both"))
            return await self._diff_clusters(call, left, right, scope, limit)
        from_s, to_s = call.moment("from"), call.moment("to")
        if from_s is None:
            raise bad_query(invalid("from", "", "must be given, or left and right for two clusters"))
        if to_s is not None and to_s <= from_s:
            raise bad_query(invalid("to", call.text("to"), "must be after from"))
        before = await self._sources.history.at(from_s, cluster=scope.cluster)
        after = self._sources.view() if to_s is None else await self._sources.history.at(to_s, cluster=scope.cluster)
        found = await diff_moments(before, after, scope, limit=limit)
        return json_answer({"from": moment_text(from_s), "to": moment_text(after.at_s), **found})

    async def _diff_clusters(self, call: Call, left: str, right: str, scope: Scope, limit: int) -> Response:
        view = await self._sources.seen(call)
        for parameter, name in (("left", left), ("right", right)):
            if not name:
                raise bad_query(invalid(parameter, "", "must be given: two clusters are compared"))
            if view.cluster(name) is None:
                raise no_cluster(view, name)
        found = await diff_clusters(view, left, right, scope, limit=limit)
        return json_answer({"left": left, "right": right, **found, **about(view)})

    async def history(self, call: Call) -> Response:
        to_s = call.moment("to") or call.now_s
        from_s = call.moment("from")
        from_s = to_s - _DAY_S if from_s is None else from_s
        kinds = call.kinds()
        if len(kinds) > 1:
            raise bad_query(invalid("kind", call.text("kind"), "must be one kind"))
        moments = await self._sources.history.between(
            from_s, to_s, cluster=call.text("cluster"), kind=kinds[0] if kinds else "", key=call.text("key"),
            limit=call.limit(200),
        )  # fmt: skip
        items = [{**each, "at": moment_text(each["at"])} for each in shown_moments(moments)]
        return json_answer({"items": items, "from": moment_text(from_s), "to": moment_text(to_s)})

    async def checks(self, call: Call) -> Response:
        return json_answer({"items": [check_json(each) for each in self._sources.checks.all().values()]})

    async def results(self, call: Call) -> Response:
        view = await self._sources.seen(call)
        found = [
            await in_turns(run_check(each, view, self._sources.deployments))
            for each in self._sources.checks.all().values()
        ]
        return json_answer({"items": found, "ok": all(each["ok"] for each in found), **about(view)})

    async def result(self, call: Call) -> Response:
        view = await self._sources.seen(call)
        return json_answer(await in_turns(run_check(self._check(call), view, self._sources.deployments)))

    async def save(self, call: Call) -> Response:
        _may_write(call)
        made = read_check(call.name("check"), await _json_body(call.request), now_s=call.now_s)
        self._sources.checks.put(made)
        return json_answer(check_json(made))

    async def remove(self, call: Call) -> Response:
        _may_write(call)
        check = self._check(call)
        self._sources.checks.remove(check.name)
        return json_answer(check_json(check))

    def _check(self, call: Call) -> Check:
        known = self._sources.checks.all()
        name = call.name("check")
        if name not in known:
            raise NotFound(f"there is no check {name[:64]!r}; there are: {', '.join(list(known)[:20]) or 'none'}")
        return known[name]


def _may_write(call: Call) -> None:
    if not call.caller.may_write:
        raise Forbidden(f"{call.caller.name!r} may look, but not change anything")


async def _json_body(request: Request) -> Any:
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _MAX_BODY:
            raise TooLarge(f"a body may have {_MAX_BODY} bytes")
    try:
        return orjson.loads(body)
    except ValueError as error:
        raise BadRequest(f"the body is not JSON: {error}") from None
