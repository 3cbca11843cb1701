"""A query to the navigator as a check: it must find nothing.

The navigator is the operator's, so it is called whatever the workspace may call. Each workspace has a token of its own,
whose scope is that workspace: a query of one cannot find, or count, an object of another.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import quote

import orjson

from shoal.base.destinations import OutboundRefused
from shoal.base.http1.errors import TransportError
from shoal.base.http1.messages import HttpReply
from shoal.base.outbound import OutboundCall, OutboundCaller
from shoal.control.checks.model import CheckContext
from shoal.control.checks.plan import CheckAnswer
from shoal.control.checks.webhook import quoted
from shoal.control.rollout.strategy import CheckSpec
from shoal.errors import ConfigError

_SHOWN = 3  # objects


@dataclass(frozen=True, slots=True)
class NavigatorAccess:
    """How to ask the navigator for one workspace."""

    url: str
    token: str
    ca: str = ""  # PEM


class NavigatorAccesses(Protocol):
    async def of(self, workspace_id: str) -> NavigatorAccess:
        """Raises ``ConfigError`` with the fix where the control plane has no navigator, or no token for this one."""


class NavigatorQueries:
    def __init__(self, accesses: NavigatorAccesses, caller: OutboundCaller) -> None:
        self._accesses = accesses
        self._caller = caller

    async def ask(self, check: CheckSpec, context: CheckContext) -> CheckAnswer:
        try:
            access = await self._accesses.of(context.workspace_id)
            text = quote(context.filled(check.settings["query"]), safe="")
            call = OutboundCall(
                method="GET", url=f"{access.url.rstrip('/')}/api/v1/query?q={text}&limit={_SHOWN}",
                headers=(("authorization", f"Bearer {access.token}"),), ca=access.ca,
            )  # fmt: skip
            reply = await self._caller.send(call, lambda host, port, address: "")
        except TimeoutError:
            return CheckAnswer(passed=None, reason="the navigator did not answer in time")
        except (ConfigError, OutboundRefused, TransportError) as error:
            return CheckAnswer(passed=None, reason=f"the navigator cannot be asked: {error}")
        return found_nothing(reply, context.clusters)


def found_nothing(reply: HttpReply, clusters: tuple[str, ...]) -> CheckAnswer:
    """Nothing found is a verdict only while the navigator knows the newest state of these clusters."""
    if reply.status != 200:
        return CheckAnswer(passed=None, reason=f"the navigator {quoted(reply)}")
    try:
        found = orjson.loads(reply.body)
        total, items = int(found["total"]), found["items"]
        stale = sorted({str(each["cluster"]) for each in found["notFresh"]} & set(clusters))
        forbidden = [each for each in found.get("forbidden") or () if each["cluster"] in clusters]
        unread = sorted({f"{each['kind']} of {each['cluster']}" for each in forbidden})
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):
        return CheckAnswer(passed=None, reason="the answer of the navigator is malformed")
    numbers = {"found": total}
    if total:
        shown = ", ".join(_name(each) for each in items[:_SHOWN])
        return CheckAnswer(passed=False, reason=f"the query found {total}: {shown}", numbers=numbers)
    if stale:
        why = f"the query found nothing, but the navigator has no fresh state of {', '.join(stale)}"
        return CheckAnswer(passed=None, reason=why, numbers=numbers)
    if unread:
        why = f"the query found nothing, but the navigator may not read {', '.join(unread)}"
        return CheckAnswer(passed=None, reason=why, numbers=numbers)
    return CheckAnswer(passed=True, reason="the query found nothing", numbers=numbers)


def _name(item: Any) -> str:
    if not isinstance(item, dict):
        return "?"
    return "/".join(str(item[part]) for part in ("cluster", "namespace", "name") if item.get(part)) or "a row"
