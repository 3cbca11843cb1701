"""The client: sends requests over a transport and returns decoded answers or raises ``shoal.errors``.

Requests answered with 429 or 503 and ``Retry-After`` are retried a bounded number of times. With
a fence every write is dropped once the lease is not certainly held any more, however long the retries before it took.
The verbs of a resource are in ``shoal.client.verbs``; ``resource`` and ``by_kind`` lead there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import orjson

from shoal.base import tracing
from shoal.base.clock import Clock
from shoal.base.deadline import while_left
from shoal.client.discovery import Discovery
from shoal.client.errors import LostLease
from shoal.client.fence import HEADER, Fence
from shoal.client.resource import ResourceType
from shoal.client.transport import Reply, StreamReply, Transport
from shoal.client.verbs import ResourceClient
from shoal.client.watch import Decode, decode_event
from shoal.errors import ApiError, InternalError, from_status

Params = Mapping[str, str | int | bool]

JSON = "application/json"
_READING = frozenset({"GET", "HEAD"})
_ERROR_LIMIT_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryAfter:
    """Limits for retries after ``Retry-After``."""

    attempts: int = 5  # requests in all
    longest_s: float = 30.0  # longer waits are left to the caller


class Client:
    """Talks to one cluster as one user."""

    def __init__(
        self,
        transport: Transport,
        *,
        clock: Clock,
        field_manager: str = "shoal",
        retry_after: RetryAfter | None = None,
        fence: Fence | None = None,
        decode: Decode = decode_event,
    ) -> None:
        self.clock = clock
        self.decode = decode  # of the events of watches
        self.field_manager = field_manager
        self._transport = transport
        self._retry_after = retry_after or RetryAfter()
        self._fence = fence
        self._discovery = Discovery(self._discover)

    def fenced(self, fence: Fence) -> Client:
        """The same client, whose writes need ``fence``."""
        other = Client(
            self._transport,
            clock=self.clock,
            field_manager=self.field_manager,
            retry_after=self._retry_after,
            fence=fence,
            decode=self.decode,
        )
        other._discovery = self._discovery
        return other

    def of(self, resource_type: ResourceType) -> ResourceClient:
        """The verbs of a resource."""
        return ResourceClient(self, resource_type)

    def resource(self, group: str, version: str, plural: str, *, namespaced: bool = True) -> ResourceClient:
        """The verbs of a resource that the caller knows, without asking the server."""
        return self.of(ResourceType(group, version, plural, namespaced))

    async def by_kind(self, kind: str, api_version: str = "") -> ResourceClient:
        """The verbs of the resource whose objects are of this kind; ``NotFound`` when the server has none. Without an
        ``api_version`` the server's preferred group and version count."""
        return self.of(await self._discovery.find(kind, api_version))

    async def resource_types(self, *, refresh: bool = False) -> tuple[ResourceType, ...]:
        """All resources of the server."""
        return await self._discovery.all(refresh=refresh)

    async def close(self) -> None:
        await self._transport.close()

    async def _discover(self, path: str, accept: str) -> Any:
        return await self.request("GET", path, headers={"accept": accept})

    # requests

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Params | None = None,
        body: Any = None,
        content_type: str = JSON,
        headers: Mapping[str, str] | None = None,
        retry: bool = True,
    ) -> Any:
        """The decoded answer; an error of the server is raised. ``body`` is encoded as JSON unless it is bytes."""
        reply = await self.send(
            method, path, params=params, body=body, content_type=content_type, headers=headers, retry=retry
        )
        if reply.status >= 300:
            raise error_of(reply.status, reply.headers, reply.body)
        try:
            return orjson.loads(reply.body)
        except ValueError as error:
            raise InternalError(f"the response to {method} {path} is not JSON: {reply.body[:80]!r}") from error

    async def send(
        self,
        method: str,
        path: str,
        *,
        params: Params | None = None,
        body: Any = None,
        content_type: str = JSON,
        headers: Mapping[str, str] | None = None,
        retry: bool = True,
    ) -> Reply:
        """The raw answer. Retries when the server sends ``Retry-After``."""
        target = f"{path}?{_query(params)}" if params else path
        data = b"" if body is None else body if isinstance(body, bytes) else orjson.dumps(body)
        sent = {"accept": JSON, **(headers or {})}
        if data:
            sent["content-type"] = content_type
        if trace := tracing.current():
            sent["traceparent"] = trace
        attempt = 1
        while True:
            reply = await self._once(method, target, sent, data)
            wait_s = retry_after_s(reply) if retry and reply.status in (429, 503) else None
            if wait_s is None or attempt >= self._retry_after.attempts or wait_s > self._retry_after.longest_s:
                return reply
            attempt += 1
            await self.clock.sleep(wait_s)

    async def _once(self, method: str, target: str, headers: Mapping[str, str], data: bytes) -> Reply:
        fence = self._fence
        if fence is None or method in _READING:
            return await self._transport.request(method, target, headers=headers, body=data)
        sent = {**headers, HEADER: fence.header()}
        try:
            async with while_left(self.clock, lambda: fence.remaining_s):
                return await self._transport.request(method, target, headers=sent, body=data)
        except TimeoutError:
            raise LostLease(f"the lease expired during {method} {target}; its outcome is unknown") from None

    async def stream(
        self, method: str, path: str, *, params: Params | None = None, headers: Mapping[str, str] | None = None
    ) -> StreamReply:
        """The answer in pieces; an error of the server is raised. The caller closes it."""
        target = f"{path}?{_query(params)}" if params else path
        reply = await self._transport.stream(method, target, headers={"accept": JSON, **(headers or {})})
        if reply.status < 300:
            return reply
        try:
            body = b""
            async for chunk in reply.chunks():
                body += chunk
                if len(body) > _ERROR_LIMIT_BYTES:
                    break
        finally:
            await reply.close()
        raise error_of(reply.status, reply.headers, body)


def _query(params: Params) -> str:
    return urlencode({key: _text(value) for key, value in params.items()})


def _text(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def retry_after_s(reply: Reply) -> float | None:
    """The seconds of ``Retry-After``; None without one. Dates are not supported."""
    text = reply.headers.get("retry-after", "").strip()
    return float(text) if text.isascii() and text.isdigit() else None


def error_of(status: int, headers: Mapping[str, str], body: bytes) -> ApiError:
    """The error that an answer describes, also when its body is not a Status."""
    try:
        found = orjson.loads(body)
    except ValueError:
        found = None
    if not isinstance(found, dict) or found.get("kind") != "Status":
        text = body[:200].decode(errors="replace").strip()
        found = {"code": status, "message": text or f"the server answered {status}"}
    error = from_status(found, status)
    if error.retry_after_s is None and (text := headers.get("retry-after", "").strip()).isdigit():
        error.retry_after_s = int(text)
    return error
