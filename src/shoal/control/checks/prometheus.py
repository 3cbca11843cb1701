"""A query to Prometheus as a check: every value of its answer must meet the condition. Without values it says
neither."""

from __future__ import annotations

import math
from typing import Any
from urllib.parse import urlencode, urlsplit, urlunsplit

import orjson

from shoal.base.http1.messages import HttpReply
from shoal.base.outbound import OutboundCall
from shoal.control.checks.calls import CallScope, WorkspaceCallFailed, WorkspaceCalls
from shoal.control.checks.model import CheckContext
from shoal.control.checks.plan import CheckAnswer
from shoal.control.checks.webhook import quoted
from shoal.control.domain.kinds.check_queries import COMPARISONS, parse_condition
from shoal.control.rollout.strategy import CheckSpec

_PATH = "/api/v1/query"


async def ask_prometheus(check: CheckSpec, context: CheckContext, calls: WorkspaceCalls) -> CheckAnswer:
    settings = check.settings
    parts = urlsplit(settings["url"])
    call = OutboundCall(
        url=urlunsplit(parts._replace(path=parts.path.rstrip("/") + _PATH)),
        headers=(("content-type", "application/x-www-form-urlencoded"), ("accept-encoding", "identity")),
        body=urlencode({"query": context.filled(settings["query"])}).encode(),
        ca=settings.get("ca", ""),
    )
    scope = CallScope(context.workspace_id, context.environment_id, settings.get("secret", ""))
    try:
        return judged(await calls.send(scope, call), settings["condition"])
    except WorkspaceCallFailed as error:
        return CheckAnswer(passed=None, reason=str(error))


def judged(reply: HttpReply, condition: str) -> CheckAnswer:
    values = _values(reply) if reply.status == 200 else quoted(reply)
    if isinstance(values, str):
        return CheckAnswer(passed=None, reason=values)
    if not values:
        return CheckAnswer(passed=None, reason="the query has no result")
    if any(math.isnan(value) for value in values):
        return CheckAnswer(passed=None, reason="the result of the query is not a number")
    sign, limit = parse_condition(condition)
    bad = [value for value in values if not COMPARISONS[sign](value, limit)]
    shown = bad[0] if bad else values[0]
    numbers: dict[str, Any] = {"value": shown if math.isfinite(shown) else str(shown), "values": len(values)}
    of_all = f" ({len(bad)} of {len(values)} values)" if bad and len(values) > 1 else ""
    reason = f"{shown:g} is {'not ' if bad else ''}{sign} {limit:g}{of_all}"
    return CheckAnswer(passed=not bad, reason=reason, numbers=numbers)


def _values(reply: HttpReply) -> list[float] | str:
    """The numbers of an instant vector or a scalar, or why there are none."""
    try:
        data = orjson.loads(reply.body)["data"]
        kind, result = data["resultType"], data["result"]
        if kind == "scalar":
            return [float(result[1])]
        if kind == "vector":
            return [float(each["value"][1]) for each in result]
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, IndexError):
        return "the answer is not one of Prometheus: use the url in front of /api/v1/query"
    return f"the result is a {str(kind)[:40]}: use a query whose result is an instant vector or a scalar"
