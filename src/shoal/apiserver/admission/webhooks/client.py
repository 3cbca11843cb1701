"""Calls webhooks: one POST of JSON over TLS, on pooled connections.

Every failure becomes ``CallFailed`` with the text that the Kubernetes API server uses. A
call is a task of its own, since request handlers are not run in one; cancelling the wait cancels it. Redirects
are not followed, answers have a limit.
"""

from __future__ import annotations

import math
import ssl
from dataclasses import dataclass
from typing import Any

import orjson

from shoal.apiserver.admission.webhooks.target import HookTarget, Resolver, Unresolved
from shoal.apiserver.network_errors import answer_failure, dial_failure
from shoal.base.clock import Clock
from shoal.base.deadline import run_within
from shoal.base.http1.connection import ClientConnection
from shoal.base.http1.dial import HttpAddress, dial
from shoal.base.http1.errors import AnswerTooLarge, Disconnected, Unreachable
from shoal.base.http1.limits import AnswerLimits
from shoal.errors import ConfigError, ShoalError
from shoal.store import Store

_MAX_CONTEXTS = 256
_EXPIRED = "context deadline exceeded"
_TEXTS = {
    401: "the server has asked for the client to provide credentials",
    404: "the server could not find the requested resource",
    405: "the server does not allow this method on the requested resource",
    409: "the server reported a conflict",
    410: "the server has gone away",
    413: "Request entity too large",
    422: "the server rejected our request due to an error in our request",
    429: "the server has received too many requests and has asked us to try again later",
    503: "the server is currently unable to handle the request",
    504: "the server was unable to return a response in the time allotted, but may still be processing the request",
}


class CallFailed(ShoalError):
    """The call gave no usable response; the text says why."""


class TimedOut(CallFailed):
    """The call exceeded its timeout."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookLimits:
    """Bounds of calls to hooks."""

    answer_bytes: int = 16 * 1024 * 1024
    kept: int = 16  # idle connections per address
    idle_s: float = 30.0  # a kept connection older than this is not trusted
    request_s: float = 60.0  # for all the hooks of one write together
    conversion_s: float = 30.0

    def __post_init__(self) -> None:
        if min(self.answer_bytes, self.idle_s, self.request_s, self.conversion_s) <= 0 or self.kept < 0:
            raise ConfigError("limits of webhook calls must be more than 0")


class HookClient:
    """Calls hooks. Make it and use it in one event loop; ``close`` it in the end."""

    def __init__(self, store: Store, clock: Clock, limits: HookLimits | None = None) -> None:
        self.clock = clock
        self.limits = limits or HookLimits()
        self._answer_limits = AnswerLimits(body_bytes=self.limits.answer_bytes)
        self._resolver = Resolver(store)
        self._idle: dict[tuple[tuple[str, int], str, bytes], list[ClientConnection]] = {}
        self._contexts: dict[bytes, ssl.SSLContext] = {}
        self._closed = False

    async def post(self, target: HookTarget, body: Any, timeout_s: float, *, tell: bool = True) -> Any:
        """Send ``body`` and return the answer, both decoded. ``tell``: send the timeout to the hook."""
        query = f"?timeout={math.ceil(timeout_s)}s" if tell else ""
        head = (
            f"POST {target.path}{query} HTTP/1.1\r\nHost: {target.host}\r\nUser-Agent: kube-apiserver-admission\r\n"
            "Accept: application/json, */*\r\nContent-Type: application/json\r\nContent-Length: "
        )
        data = orjson.dumps(body)
        message = f"{head}{len(data)}\r\n\r\n".encode("latin-1", "replace") + data
        try:
            status, answer = await run_within(self.clock, timeout_s, self._call(target, message), name="webhook/call")
        except TimeoutError:
            raise TimedOut(f'Post "{target.url}{query}": {_EXPIRED}') from None
        except CallFailed as failed:
            raise CallFailed(f'Post "{target.url}{query}": {failed}') from failed
        return _decoded(status, answer)

    async def _call(self, target: HookTarget, message: bytes) -> tuple[int, bytes]:
        try:
            address = self._resolver.address(target)
        except Unresolved as missing:
            raise CallFailed(str(missing)) from None
        place = (address, target.server_name, target.ca_digest)
        while True:
            connection = self._take(place)
            kept = connection is not None
            if connection is None:
                connection = await self._connect(address, target)
            try:
                reply = await connection.request(message)
            except AnswerTooLarge:
                raise CallFailed(f"the answer is larger than {self.limits.answer_bytes} bytes") from None
            except Disconnected as error:
                if not kept or not connection.stale:
                    raise CallFailed(answer_failure(error)) from error
            except Unreachable as error:
                if not kept:
                    raise CallFailed("EOF") from error
            else:
                return reply.status, reply.body
            finally:
                self._give_back(place, connection)

    def _take(self, place: tuple[tuple[str, int], str, bytes]) -> ClientConnection | None:
        kept = self._idle.get(place)
        now = self.clock.monotonic()
        while kept:
            connection = kept.pop()
            if now - connection.idle_since_s < self.limits.idle_s:
                return connection
            connection.abort()
        self._idle.pop(place, None)
        return None

    def _give_back(self, place: tuple[tuple[str, int], str, bytes], connection: ClientConnection) -> None:
        kept = self._idle.setdefault(place, []) if connection.reusable and not self._closed else None
        if kept is None or len(kept) >= self.limits.kept:
            connection.abort()
            return
        connection.idle_since_s = self.clock.monotonic()
        kept.append(connection)

    async def _connect(self, address: tuple[str, int], target: HookTarget) -> ClientConnection:
        host, port = address
        place = HttpAddress(host, port, self._context(target), target.server_name)
        try:
            return await dial(place, clock=self.clock, limits=self._answer_limits)
        except Unreachable as error:
            raise CallFailed(dial_failure(error, host, port, target.server_name)) from error

    def _context(self, target: HookTarget) -> ssl.SSLContext:
        """Made once for each set of roots: loading them takes longer than a call."""
        context = self._contexts.get(target.ca_digest)
        if context is None:
            if len(self._contexts) > _MAX_CONTEXTS:
                self._contexts.clear()
            try:
                context = ssl.create_default_context(cadata=target.ca or None)
            except ssl.SSLError:
                raise CallFailed("unable to load root certificates: unable to parse bytes as PEM block") from None
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            # every certificate in the bundle is trusted, also an intermediate authority or the hook's own certificate
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
            context.verify_flags &= ~ssl.VERIFY_X509_STRICT
            context.set_alpn_protocols(["http/1.1"])
            self._contexts[target.ca_digest] = context
        return context

    def close(self) -> None:
        self._closed = True
        for kept in self._idle.values():
            for connection in kept:
                connection.abort()
        self._idle.clear()


def _decoded(status: int, body: bytes) -> Any:
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError:
        found = None
    if 200 <= status <= 206:
        if found is None:
            raise CallFailed("couldn't get version/kind; json parse error: the answer is not JSON")
        return found
    if isinstance(found, dict) and found.get("kind") == "Status" and found.get("message"):
        raise CallFailed(str(found["message"]))
    shown = body[:2048].decode("utf-8", "replace").strip()
    text = _TEXTS.get(status)
    if text is None and status in (403, 406, 415) and shown:
        text = shown
    if text is None and status >= 500:
        quoted = orjson.dumps(shown or "unknown").decode()
        text = f"an error on the server ({quoted}) has prevented the request from succeeding"
    raise CallFailed(text or f"the server responded with the status code {status} but did not return more details")
