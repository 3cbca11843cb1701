"""Guarded calls: the address that was checked is the one that is dialled, and time and size are limited."""

from __future__ import annotations

import asyncio
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
from shoal.base.destinations import Address, OutboundRefused
from shoal.base.http1.errors import AnswerTooLarge, TransportError
from shoal.base.outbound import InvalidAuthority, OutboundCall, OutboundCaller

HOST = "127.0.0.1"


def allow_all(host: str, port: int, address: Address) -> str:
    return ""


def no_private(host: str, port: int, address: Address) -> str:
    return f"{host} ({address}) is private" if address.is_private else ""


class Server:
    def __init__(self, port: int) -> None:
        self.port = port
        self.requests: list[tuple[str, dict[str, str]]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        path = scope["path"]
        self.requests.append((path, {name.decode(): value.decode() for name, value in scope["headers"]}))
        if path == "/hang":
            await asyncio.Event().wait()
        status = 302 if path == "/away" else 200
        headers = [(b"location", f"http://{HOST}:{self.port}/elsewhere".encode())] if status == 302 else []
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"x" * 70_000 if path == "/large" else b"ok"})


@asynccontextmanager
async def a_server(tls: Tls | None = None) -> AsyncIterator[Server]:
    server = Server(any_free(HOST))
    async with serving(server, host=HOST, port=server.port, clock=RealClock(), tls=tls):
        yield server


class Names:
    """A name server that gives another answer each time, the last one for ever."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers = list(answers)
        self.asked = 0

    async def resolve(self, host: str, port: int) -> list[str]:
        self.asked += 1
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def caller(names: Names | None = None) -> OutboundCaller:
    return OutboundCaller(clock=RealClock(), agent="test", **({"resolve": names.resolve} if names else {}))


async def test_a_name_that_changes_between_check_and_dial_is_dialled_where_it_was_checked() -> None:
    seen: list[str] = []

    def guard(host: str, port: int, address: Address) -> str:
        seen.append(str(address))
        return ""

    names = Names(["127.0.0.1"], ["127.0.0.2"])
    async with a_server() as server:
        reply = await caller(names).send(OutboundCall(url=f"http://hook.example:{server.port}/x"), guard)
    assert (reply.status, seen, names.asked) == (200, ["127.0.0.1"], 1)
    assert server.requests[0][1]["host"] == f"hook.example:{server.port}"


async def test_one_address_that_is_refused_refuses_the_call_and_nothing_is_dialled() -> None:
    async with a_server() as server:
        names = Names(["8.8.8.8", "::ffff:127.0.0.1"])
        with pytest.raises(OutboundRefused, match=r"hook\.example \(127\.0\.0\.1\) is private"):
            await caller(names).send(OutboundCall(url=f"http://hook.example:{server.port}/x"), no_private)
        assert server.requests == []


@pytest.mark.parametrize("host", ["2130706433", "0x7f.1", "127.1", "0177.0.0.1"])
async def test_addresses_in_unusual_forms_are_seen_by_the_guard_as_what_they_are(host: str) -> None:
    async with a_server() as server:
        with pytest.raises(OutboundRefused):
            await caller().send(OutboundCall(url=f"http://{host}:{server.port}/x"), no_private)
        assert server.requests == []


async def test_redirects_are_not_followed_and_no_proxy_of_the_environment_is_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://192.0.2.1:1")
    async with a_server() as server:
        reply = await caller().send(OutboundCall(url=f"http://{HOST}:{server.port}/away", body=b""), allow_all)
        assert reply.status == 302
        assert [path for path, _ in server.requests] == ["/away"]


async def test_time_and_size_are_limited() -> None:
    async with a_server() as server:
        with pytest.raises(TimeoutError):
            await caller().send(OutboundCall(url=f"http://{HOST}:{server.port}/hang", timeout_s=0.1), allow_all)
        with pytest.raises(AnswerTooLarge):
            await caller().send(OutboundCall(url=f"http://{HOST}:{server.port}/large"), allow_all)


async def test_resolving_counts_as_time() -> None:
    class Never(Names):
        async def resolve(self, host: str, port: int) -> list[str]:
            await asyncio.Event().wait()
            return []

    with pytest.raises(TimeoutError):
        await caller(Never([])).send(OutboundCall(url="http://hook.example/", timeout_s=0.05), allow_all)


async def test_a_certificate_must_be_of_the_given_authority_and_of_the_name(tmp_path: Path) -> None:
    pki = Pki(tmp_path, now=datetime.now(UTC))
    pair = pki.ensure_server(["hook.example"])
    names, ca = Names(["127.0.0.1"]), pki.ca_cert.read_text()
    async with a_server(Tls(pair.cert, pair.key)) as server:
        url = f"https://hook.example:{server.port}/x"
        assert (await caller(names).send(OutboundCall(url=url, ca=ca), allow_all)).status == 200
        with pytest.raises(TransportError, match="not trusted"):
            await caller(names).send(OutboundCall(url=url), allow_all)
        with pytest.raises(TransportError, match="not trusted"):
            other = f"https://other.example:{server.port}/x"
            await caller(names).send(OutboundCall(url=other, ca=ca), allow_all)
        with pytest.raises(InvalidAuthority, match="use PEM"):
            await caller(names).send(OutboundCall(url=url, ca="x"), allow_all)


@pytest.mark.parametrize("value", ["a\r\nx-other: 1", "a\nb", "ä\u20ac"])
async def test_a_header_cannot_bring_a_line_into_the_request(value: str) -> None:
    with pytest.raises(OutboundRefused, match="cannot be sent"):
        await caller().send(OutboundCall(url=f"http://{HOST}:1/", headers=(("x-a", value),)), allow_all)


async def test_connections_are_kept_only_where_that_is_asked_for() -> None:
    async with a_server() as server:
        kept = OutboundCaller(clock=RealClock(), agent="test", kept=1)
        try:
            for _ in range(3):
                assert (await kept.send(OutboundCall(url=f"http://{HOST}:{server.port}/x"), allow_all)).body == b"ok"
        finally:
            kept.close()
