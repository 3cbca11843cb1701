"""Authenticates calls with one interceptor for all methods, which refuses unknown methods, and validates identities.

The token is checked before the request is read. The identity in a message must match what its token is bound to.
Handlers get the caller only from here, so a method that was not admitted has none.

A relay forwards calls of the agents of its region. Its own token admits it; the agent's token, which it must send as
well, says for which agent. The relay can do nothing that the agent could not do, and nothing for agents of other
regions.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from connectrpc.code import Code
from connectrpc.errors import ConnectError
from connectrpc.request import RequestContext

from shoal.base.clock import Clock
from shoal.base.ids import token_digest
from shoal.base.logs import get_logger
from shoal.control.database.tokens import ApiTokens, Principal
from shoal.control.service.agents.token_cache import TokenCache
from shoal.control.service.metrics import ServiceMetrics
from shoal.errors import ServiceUnavailable
from shoal.wire.fleet.v1 import cluster_pb as pb
from shoal.wire.fleet.v1.cluster_connect import ClusterService
from shoal.wire.fleet.v1.relay_connect import RelayService

# Which kind of token a method is for. A method that is missing here is refused.
ALLOWED = {
    "Join": "agent",
    "WatchDeployments": "agent",
    "WatchSentinels": "agent",
    "SyncDeployments": "agent",
    "SyncSentinels": "agent",
    "GetDesiredDeployment": "agent",
    "GetDesiredSentinel": "agent",
    "ReportDeploymentStatus": "agent",
    "ReportSentinelStatus": "agent",
    "Heartbeat": "agent",
}
FOR_RELAYS = {"Follow": "relay"}  # methods of the relay's own service
PASSED_ON = frozenset(name for name in ALLOWED if not name.startswith(("Watch", "Sync")))
AGENT_HEADER = "x-shoal-agent-authorization"  # of a call that a relay passes on: the agent's own header
_NAME_LENGTH = 63
_AGENT_LENGTH = 128
_HEADER_LENGTH = 64
_SERVICE = ClusterService.desc().type_name
_RELAYS = RelayService.desc().type_name

_log = get_logger("control.service.auth")


@dataclass(frozen=True, slots=True)
class Caller:
    principal: Principal
    trace: str  # W3C traceparent of the call, empty if there was none
    correlation: str
    digest: str = ""  # of the token's text: a token that was replaced has had others


_caller: ContextVar[Caller | None] = ContextVar("shoal_control_caller", default=None)


def caller() -> Caller:
    """Return the caller's principal; refuse a call without one."""
    found = _caller.get()
    if found is None:
        raise ConnectError(Code.UNAUTHENTICATED, "no kind of token may call this method")
    return found


class Gate:
    """A metadata interceptor, for every kind of method."""

    def __init__(self, tokens: ApiTokens, token_cache: TokenCache, metrics: ServiceMetrics, *, clock: Clock) -> None:
        self._tokens = tokens
        self._token_cache = token_cache
        self._clock = clock
        self._metrics = metrics

    async def on_start(self, ctx: RequestContext[Any, Any]) -> None:
        _caller.set(None)
        try:
            await self._let_in(ctx)
        except ConnectError as error:
            self._count(ctx, error.code.value)  # the library tells of no end where there was no beginning
            raise

    async def _let_in(self, ctx: RequestContext[Any, Any]) -> None:
        method = ctx.method
        text = bearer(ctx.request_headers.get("authorization") or "")
        principal = await self.known(text)
        if principal.kind == "relay" and method.service_name == _SERVICE and method.name in PASSED_ON:
            text = bearer(ctx.request_headers.get(AGENT_HEADER) or "")
            principal = await self.agent_of(principal, text)
        kinds = ALLOWED if method.service_name == _SERVICE else FOR_RELAYS if method.service_name == _RELAYS else {}
        if kinds.get(method.name) != principal.kind:
            needed = "a relay's" if method.service_name == _RELAYS else "an agent's"
            raise ConnectError(
                Code.PERMISSION_DENIED, f"a token of kind {principal.kind} may not call {method.name}: use {needed}"
            )
        trace = (ctx.request_headers.get("traceparent") or "")[:_HEADER_LENGTH]
        correlation = (ctx.request_headers.get("x-correlation-id") or "")[:_HEADER_LENGTH]
        _caller.set(Caller(principal, trace, correlation, token_digest(text)))

    async def agent_of(self, relay: Principal, text: str) -> Principal:
        """The agent that a relay speaks for, by the agent's own token: one of the relay's region."""
        agent = await self.known(text)
        if agent.kind != "agent" or agent.region != relay.region:
            raise ConnectError(
                Code.PERMISSION_DENIED, f"the relay is bound to region {relay.region!r} and serves its agents only"
            )
        return agent

    async def on_end(self, token: None, ctx: RequestContext[Any, Any], error: Exception | None, /) -> None:
        method = _counted(ctx)
        self._count(ctx, error.code.value if isinstance(error, ConnectError) else "ok" if error is None else "internal")
        if error is not None and not isinstance(error, ConnectError):
            found = _caller.get()
            _log.error(
                "a call failed", error=error, method=method,
                trace=found.trace if found else "", correlation=found.correlation if found else "",
            )  # fmt: skip

    def _count(self, ctx: RequestContext[Any, Any], code: str) -> None:
        self._metrics.requests.labels(_counted(ctx), code).inc()

    async def known(self, text: str) -> Principal:
        """Return the token's principal; refuse an invalid token."""
        now = self._clock.monotonic()
        known = self._token_cache.get(text, now)
        if known is not None:
            return known
        try:
            principal = await self._tokens.authenticate(text)
        except ServiceUnavailable as error:
            raise ConnectError(Code.UNAVAILABLE, str(error)) from None
        if principal is None:
            raise ConnectError(Code.UNAUTHENTICATED, "the token is unknown, revoked or expired")
        self._token_cache.put(token_digest(text), principal, now)
        return principal


def bearer(header: str) -> str:
    """The token in an Authorization header."""
    scheme, _, text = header.partition(" ")
    if scheme.lower() != "bearer" or not text.strip():
        raise ConnectError(Code.UNAUTHENTICATED, "missing bearer token: send the header Authorization: Bearer TOKEN")
    return text.strip()


def _counted(ctx: RequestContext[Any, Any]) -> str:
    name = ctx.method.name
    return name if name in ALLOWED or name in FOR_RELAYS else "other"


def check_identity(principal: Principal, identity: pb.Identity | None) -> pb.Identity:
    """The identity of a message, which must be complete and be what the token is bound to."""
    if identity is None:
        raise ConnectError(Code.INVALID_ARGUMENT, "identity: Required value")
    for name, limit in (
        ("cluster", _NAME_LENGTH), ("region", _NAME_LENGTH), ("shard", _NAME_LENGTH), ("agent", _AGENT_LENGTH),
    ):  # fmt: skip
        value = getattr(identity, name)
        if not value:
            raise ConnectError(Code.INVALID_ARGUMENT, f"identity.{name}: Required value")
        if len(value) > limit:
            raise ConnectError(Code.INVALID_ARGUMENT, f"identity.{name}: Too long: may not be more than {limit} bytes")
    for name in ("cluster", "region", "shard"):
        bound, said = getattr(principal, name), getattr(identity, name)
        if bound and bound != said:
            raise ConnectError(Code.PERMISSION_DENIED, f"the token is bound to {name} {bound!r}, not {said!r}")
    return identity
