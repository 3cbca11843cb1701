"""A webhook as a check: one POST with what is rolled out, whose answer is the verdict.

2xx                                      passed
409, or a body {"passed": false}         failed; "reason" says why
everything else                          inconclusive
"""

from __future__ import annotations

from typing import Any

import orjson

from shoal.base.http1.messages import HttpReply
from shoal.base.outbound import OutboundCall
from shoal.control.checks.calls import CallScope, WorkspaceCallFailed, WorkspaceCalls
from shoal.control.checks.model import CheckContext
from shoal.control.checks.plan import CheckAnswer
from shoal.control.rollout.strategy import CheckSpec

SHOWN = 200  # characters of an answer that a reason quotes


async def ask_webhook(check: CheckSpec, context: CheckContext, calls: WorkspaceCalls) -> CheckAnswer:
    settings = check.settings
    body = {"check": check.name, **context.as_json()}
    call = OutboundCall(
        url=settings["url"], headers=(("content-type", "application/json"),), body=orjson.dumps(body),
        ca=settings.get("ca", ""),
    )  # fmt: skip
    scope = CallScope(context.workspace_id, context.environment_id, settings.get("secret", ""))
    try:
        return verdict_of(await calls.send(scope, call))
    except WorkspaceCallFailed as error:
        return CheckAnswer(passed=None, reason=str(error))


def verdict_of(reply: HttpReply) -> CheckAnswer:
    said = _object(reply.body)
    passed, reason = said.get("passed"), said.get("reason")
    shown = _printable(reason)[:SHOWN] if isinstance(reason, str) and reason else quoted(reply)
    numbers = {"status": reply.status}
    if reply.status == 409 or (200 <= reply.status < 300 and passed is False):
        return CheckAnswer(passed=False, reason=shown, numbers=numbers)
    if 200 <= reply.status < 300:
        return CheckAnswer(passed=True, reason=shown, numbers=numbers)
    if 300 <= reply.status < 400:
        shown = f"answered {reply.status}: redirects are not followed; name the final url"
    return CheckAnswer(passed=None, reason=shown, numbers=numbers)


def quoted(reply: HttpReply) -> str:
    text = _printable(reply.body[: 4 * SHOWN].decode("utf-8", "replace")).strip()[:SHOWN]
    return f"answered {reply.status}" + (f": {text}" if text else "")


def _printable(text: str) -> str:
    """Text of others that can be stored and shown in one line."""
    return "".join(each if each.isprintable() else " " for each in text)


def _object(body: bytes) -> dict[str, Any]:
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}
