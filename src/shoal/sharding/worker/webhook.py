"""Calls the webhook of a ShardConfig: one POST of JSON per object, on kept connections.

The worker calls from inside the cluster, on behalf of users who may create a ShardConfig. So it connects to no
loopback, link-local, multicast or unspecified address unless its operator allows the network, it checks the address
that it dials (a name is resolved once per call), it follows no redirects, and it limits time and size.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import socket
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from urllib.parse import urlsplit

from shoal.base.clock import Clock
from shoal.base.deadline import within
from shoal.base.http1.connection import ClientConnection
from shoal.base.http1.dial import HttpAddress, dial
from shoal.base.http1.errors import AnswerTooLarge, Disconnected, TransportError, Unreachable
from shoal.base.http1.limits import AnswerLimits
from shoal.base.http1.messages import HttpReply, request_bytes
from shoal.crds.shard import HandlerWebhook, seconds
from shoal.errors import ConfigError, ShoalError

Network = IPv4Network | IPv6Network

_KEPT = 64  # idle connections
_IDLE_S = 30.0
_SHOWN = 200  # characters of an answer that a message quotes
_PORTS = {"http": 80, "https": 443}


class WebhookFailed(ShoalError):
    """The webhook did not take the object; the text says why."""


@dataclass(frozen=True, slots=True)
class _Place:
    """Connections to one of these can be shared."""

    host: str  # an address
    port: int
    name: str  # that the certificate must have; empty: no TLS
    ca_bundle: str


def read_networks(texts: Sequence[str]) -> tuple[Network, ...]:
    """Networks of settings, in CIDR notation."""
    try:
        return tuple(ip_network(text) for text in texts)
    except ValueError as error:
        raise ConfigError(f"webhook_networks: {error}: use CIDR notation, for example 127.0.0.0/8") from error


class WebhookCaller:
    """``networks`` are those of loopback, link-local and similar addresses that webhooks may have nevertheless."""

    def __init__(self, *, clock: Clock, networks: Sequence[Network] = ()) -> None:
        self._clock = clock
        self._networks = tuple(networks)
        self._idle: dict[_Place, list[ClientConnection]] = {}
        self._contexts: dict[str, ssl.SSLContext] = {}

    async def post(self, hook: HandlerWebhook, body: bytes) -> None:
        """Return when the webhook has answered 2xx; else raise ``WebhookFailed``."""
        if len(body) > hook.max_bytes:
            raise WebhookFailed(f"the object has {len(body)} bytes as JSON, more than maxBytes ({hook.max_bytes})")
        timeout_s = seconds(hook.timeout)
        try:
            async with within(self._clock, timeout_s):
                reply = await self._call(hook, body)
        except TimeoutError:
            raise WebhookFailed(f"{hook.url} did not answer within {hook.timeout}") from None
        except AnswerTooLarge:
            raise WebhookFailed(f"the answer of {hook.url} is larger than maxBytes ({hook.max_bytes})") from None
        except TransportError as error:
            raise WebhookFailed(f"{hook.url}: {error}") from error
        if 200 <= reply.status < 300:
            return
        if 300 <= reply.status < 400:
            raise WebhookFailed(f"{hook.url} answered {reply.status}: redirects are not followed; name the final url")
        text = reply.body[: 4 * _SHOWN].decode("utf-8", "replace").strip()[:_SHOWN]
        raise WebhookFailed(f"{hook.url} answered {reply.status}" + (f": {text}" if text else ""))

    def close(self) -> None:
        for kept in self._idle.values():
            for connection in kept:
                connection.abort()
        self._idle.clear()

    async def _call(self, hook: HandlerWebhook, body: bytes) -> HttpReply:
        parts = urlsplit(hook.url)
        try:
            host, port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
        except (KeyError, ValueError) as error:
            raise WebhookFailed(f"url {hook.url!r} is invalid: use http(s)://HOST[:PORT]/PATH") from error
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        headers = [
            ("host", parts.netloc), ("content-type", "application/json"), ("accept", "*/*"),
            ("user-agent", "shard-worker"),
        ]  # fmt: skip
        message = request_bytes("POST", target, headers, body)
        name = host if parts.scheme == "https" else ""
        places = [_Place(address, port, name, hook.ca_bundle) for address in await self._addresses(host, port)]
        for last, place in enumerate(places, start=1 - len(places)):
            try:
                return await self._exchange(place, hook, message)
            except Unreachable:
                if not last:
                    raise
        raise WebhookFailed(f"host {host!r} has no address")

    async def _addresses(self, host: str, port: int) -> list[str]:
        """The addresses of a host. One that is not allowed refuses the call, also if others are allowed."""
        try:
            found = [str(ip_address(host))]
        except ValueError:
            loop = asyncio.get_running_loop()
            try:
                listed = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            except OSError as error:
                raise WebhookFailed(f"host {host!r} not found: {error.strerror or error}") from error
            found = list(dict.fromkeys(str(address[0]) for *_, address in listed))
        for text in found:
            self._check(host, text)
        return found

    def _check(self, host: str, text: str) -> None:
        address = ip_address(text.partition("%")[0])
        plain: IPv4Address | IPv6Address = getattr(address, "ipv4_mapped", None) or address
        local = plain.is_loopback or plain.is_link_local or plain.is_unspecified or plain.is_multicast
        if local and not any(plain in network for network in self._networks):
            shown = text if host == text else f"{host} ({text})"
            raise WebhookFailed(
                f"{shown} is a loopback, link-local, multicast or unspecified address: webhooks may have one only in "
                "the worker's --webhook-network"
            )

    async def _exchange(self, place: _Place, hook: HandlerWebhook, message: bytes) -> HttpReply:
        while True:
            connection = self._take(place)
            kept = connection is not None
            if connection is None:
                tls = self._context(place.ca_bundle) if place.name else None
                limits = AnswerLimits(body_bytes=hook.max_bytes)
                address = HttpAddress(place.host, place.port, tls, place.name)
                connection = await dial(address, clock=self._clock, limits=limits)
            try:
                reply = await connection.request(message)
            except (Disconnected, Unreachable):
                if not kept or not connection.stale:
                    raise
            else:
                return reply
            finally:
                self._give_back(place, connection)

    def _take(self, place: _Place) -> ClientConnection | None:
        kept, now_s = self._idle.get(place), self._clock.monotonic()
        while kept:
            connection = kept.pop()
            if now_s - connection.idle_since_s < _IDLE_S:
                return connection
            connection.abort()
        self._idle.pop(place, None)
        return None

    def _give_back(self, place: _Place, connection: ClientConnection) -> None:
        if not connection.reusable or sum(map(len, self._idle.values())) >= _KEPT:
            connection.abort()
            return
        connection.idle_since_s = self._clock.monotonic()
        self._idle.setdefault(place, []).append(connection)

    def _context(self, ca_bundle: str) -> ssl.SSLContext:
        context = self._contexts.get(ca_bundle)
        if context is None:
            try:
                roots = base64.b64decode(ca_bundle, validate=True).decode() if ca_bundle else None
                context = ssl.create_default_context(cadata=roots)
            except (binascii.Error, UnicodeDecodeError, ssl.SSLError) as error:
                raise WebhookFailed(f"caBundle is invalid: {error}: use PEM certificates in base64") from error
            self._contexts = {ca_bundle: context}  # a worker has one webhook
        return context
