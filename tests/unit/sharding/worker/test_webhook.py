"""Calls of a ShardConfig's webhook: what counts as success, and which calls are refused or end early."""

from __future__ import annotations

import asyncio
import base64
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from shoal.app.pki import Pki
from shoal.app.ports import any_free
from shoal.base.asgi import Tls, serving
from shoal.base.clock import RealClock
from shoal.crds.shard import HandlerWebhook
from shoal.errors import ConfigError
from shoal.sharding.worker.webhook import WebhookCaller, WebhookFailed, read_networks

HOST = "127.0.0.1"
LOOPBACK = read_networks(["127.0.0.0/8"])


class Hook:
    """Answers with a status and a body; paths choose."""

    def __init__(self, port: int, scheme: str) -> None:
        self.port = port
        self.scheme = scheme
        self.bodies: list[bytes] = []
        self.paths: list[str] = []

    def at(self, path: str, **fields: Any) -> HandlerWebhook:
        return HandlerWebhook(url=f"{self.scheme}://{HOST}:{self.port}{path}", **fields)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        path = scope["path"]
        self.paths.append(path)
        self.bodies.append((await receive())["body"])
        if path == "/hang":
            await asyncio.Event().wait()
        status = int(path.strip("/")) if path.strip("/").isdigit() else 200
        headers = [(b"location", f"http://{HOST}:{self.port}/200".encode())] if status == 302 else []
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"x" * 5000 if path == "/large" else b"not today"})


@asynccontextmanager
async def a_hook(tls: Tls | None = None) -> AsyncIterator[Hook]:
    hook = Hook(any_free(HOST), "https" if tls else "http")
    async with serving(hook, host=HOST, port=hook.port, clock=RealClock(), tls=tls):
        yield hook


@asynccontextmanager
async def a_caller(**settings: Any) -> AsyncIterator[WebhookCaller]:
    caller = WebhookCaller(clock=RealClock(), **{"networks": LOOPBACK, **settings})
    try:
        yield caller
    finally:
        caller.close()


async def failure(caller: WebhookCaller, hook: HandlerWebhook, body: bytes = b"{}") -> str:
    with pytest.raises(WebhookFailed) as caught:
        await caller.post(hook, body)
    return str(caught.value)


async def test_only_2xx_is_success_and_redirects_are_not_followed() -> None:
    async with a_hook() as hook, a_caller() as caller:
        for path in ("/200", "/204?a=b"):
            await caller.post(hook.at(path), b'{"a":1}')
        assert hook.bodies == [b'{"a":1}'] * 2
        assert "answered 500: not today" in await failure(caller, hook.at("/500"))
        assert "redirects are not followed" in await failure(caller, hook.at("/302"))
        assert hook.paths == ["/200", "/204", "/500", "/302"]


async def test_time_and_size_are_limited() -> None:
    async with a_hook() as hook, a_caller() as caller:
        assert "did not answer within 100ms" in await failure(caller, hook.at("/hang", timeout="100ms"))
        assert "larger than maxBytes (1000)" in await failure(caller, hook.at("/large", max_bytes=1000))
        hook.paths.clear()
        assert "more than maxBytes (10)" in await failure(caller, hook.at("/200", max_bytes=10), b"x" * 11)
        assert hook.paths == []


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "127.9.9.9", "localhost", "169.254.169.254", "0.0.0.0", "[::1]", "[::ffff:127.0.0.1]", "[fe80::1]"],
)
async def test_local_addresses_are_refused_unless_their_network_is_allowed(host: str) -> None:
    async with a_caller(networks=()) as caller:
        text = await failure(caller, HandlerWebhook(url=f"http://{host}:1/x"))
        assert "is a loopback, link-local" in text
        assert "--webhook-network" in text
    async with a_caller(networks=read_networks(["127.0.0.0/8"])) as caller:
        text = await failure(caller, HandlerWebhook(url="http://169.254.169.254/latest"))
        assert "is a loopback, link-local" in text


async def test_a_name_with_one_local_address_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async def resolve(host: str, port: int, **_: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (text, port)) for text in ("192.0.2.1", "169.254.169.254")]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve, raising=False)
    async with a_caller(networks=()) as caller:
        text = await failure(caller, HandlerWebhook(url="http://rebound.example.com/x"))
        assert "rebound.example.com (169.254.169.254) is a loopback" in text


async def test_a_certificate_must_be_of_the_ca_that_the_shardconfig_names(tmp_path: Path) -> None:
    pki = Pki(tmp_path, now=datetime.now(UTC))
    pair = pki.ensure_server([HOST])
    async with a_hook(Tls(pair.cert, pair.key)) as hook, a_caller() as caller:
        await caller.post(hook.at("/200", ca_bundle=base64.b64encode(pki.ca_cert.read_bytes()).decode()), b"{}")
        assert "is not trusted" in await failure(caller, hook.at("/200"))
        assert "caBundle is invalid" in await failure(caller, hook.at("/200", ca_bundle="YQ=="))


def test_networks_are_cidr() -> None:
    with pytest.raises(ConfigError, match="use CIDR notation"):
        read_networks(["localhost"])
