"""The relay's connection to the control plane: one HTTP/2 connection for its streams and for forwarded calls.

The relay's token is read for each call, so that it can be rotated. A cancelled task gets ``CancelledError``, which the
library would replace by an error of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, TypeVar
from urllib.parse import urlsplit

from connectrpc.code import Code
from connectrpc.errors import ConnectError
from pyqwest import Client as HttpClient
from pyqwest import HTTPTransport, HTTPVersion, Proxy

from shoal.control.service.agents.auth import AGENT_HEADER
from shoal.wire.fleet.v1 import relay_pb as rpb
from shoal.wire.fleet.v1.cluster_connect import ClusterServiceClient
from shoal.wire.fleet.v1.relay_connect import RelayServiceClient

T = TypeVar("T")

_CONNECT_TIMEOUT_S = 5.0
_KEEPALIVE_S = 5.0
_MAX_MESSAGE_BYTES = 32 << 20
_LOOPBACK = ("127.", "localhost", "::1")

# The control plane did not hear it, or may not have: it may work later.
AWAY = frozenset({Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED, Code.RESOURCE_EXHAUSTED, Code.ABORTED})


@dataclass(frozen=True, slots=True)
class CallerHeaders:
    """What came with an agent's call: its token, and the headers that say what it belongs to."""

    token: str
    trace: str = ""
    correlation: str = ""


class Link:
    def __init__(self, url: str, ca: str, token: Callable[[], str], *, call_s: float, correlation: str) -> None:
        self._url = url.rstrip("/")
        self._ca = ca
        self._token = token
        self._timeout_ms = round(call_s * 1000)
        self._correlation = correlation
        self._transport: HTTPTransport | None = None
        self._old: list[HTTPTransport] = []

    async def call(self, method: str, request: Any, caller: CallerHeaders) -> Any:
        """Forward an agent's call. Raises the control plane's error."""
        client = ClusterServiceClient(self._url, http_client=self._http(), read_max_bytes=_MAX_MESSAGE_BYTES)
        headers = {AGENT_HEADER: f"Bearer {caller.token}"} | self._headers(caller.trace, caller.correlation)
        return await _cancellable(getattr(client, method)(request, headers=headers, timeout_ms=self._timeout_ms))

    async def follow(self, requests: AsyncIterator[rpb.FollowRequest]) -> AsyncGenerator[rpb.FollowEvent, None]:
        client = RelayServiceClient(self._url, http_client=self._http(), read_max_bytes=_MAX_MESSAGE_BYTES)
        events = client.follow(requests, headers=self._headers("", ""))
        try:
            while (event := await _cancellable(anext(events, None))) is not None:
                yield event
        finally:
            close = getattr(events, "aclose", None)
            if close is not None:
                with suppress(ConnectError):
                    await close()

    def reset(self) -> None:
        """Give the connection up: the next call makes another one."""
        if self._transport is not None:
            self._old.append(self._transport)
            self._transport = None

    async def close(self) -> None:
        self.reset()
        old, self._old = self._old, []
        for transport in old:
            await transport.aclose()

    def _headers(self, trace: str, correlation: str) -> dict[str, str]:
        found = {"authorization": f"Bearer {self._token()}", "x-correlation-id": correlation or self._correlation}
        return found | {"traceparent": trace} if trace else found

    def _http(self) -> HttpClient:
        if self._transport is None:
            self._transport = _transport(self._url, self._ca)
        return HttpClient(self._transport)


def _transport(url: str, ca: str) -> HTTPTransport:
    address = urlsplit(url)
    # Proxies of the environment are for the way out, not for this machine. They are left out when any is named, so one
    # is named for the scheme that is not used.
    unused: Literal["http", "https"] = "http" if address.scheme == "https" else "https"
    local = (address.hostname or "").startswith(_LOOPBACK)
    return HTTPTransport(
        tls_ca_cert=ca.encode() if ca else None,
        http_version=HTTPVersion.HTTP2,
        proxy=Proxy("http://127.0.0.1:9", scheme=unused) if local else None,
        connect_timeout=_CONNECT_TIMEOUT_S,
        tcp_keepalive_interval=_KEEPALIVE_S,
        follow_redirects=False,
        enable_otel=False,
    )


async def _cancellable(call: Awaitable[T]) -> T:
    try:
        return await call
    except ConnectError as error:
        task = asyncio.current_task()
        if error.code is Code.CANCELED and task is not None and task.cancelling():
            raise asyncio.CancelledError from None
        raise
