"""Issuers are asked where their keys are, and believed only about themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from random import Random

import orjson
import pytest

from shoal.base.clock import RealClock
from shoal.base.tasks import cancel_all
from shoal.crds.sentinel import Jwt, PolicySpec
from shoal.sentinel.issuers import IssuerFinder, Unusable, keys_uri_of
from shoal.sentinel.model import GatewayPolicy
from shoal.testing.waiting import eventually


def policy(issuer: str) -> GatewayPolicy:
    return GatewayPolicy(name="p", environment="e", spec=PolicySpec(environment="e", jwt=Jwt(oidc_issuer=issuer)))


@pytest.mark.parametrize(
    "answer",
    [
        b"no JSON",
        b"[]",
        orjson.dumps({"issuer": "https://other.example", "jwks_uri": "https://i.example/keys"}),
        orjson.dumps({"issuer": "https://i.example", "jwks_uri": "file:///etc/passwd"}),
        orjson.dumps({"issuer": "https://i.example"}),
    ],
)
def test_an_answer_that_cannot_be_used_is_refused(answer: bytes) -> None:
    with pytest.raises(Unusable):
        keys_uri_of("https://i.example/", answer)


async def test_the_key_url_of_an_issuer_is_read_and_reported() -> None:
    base = ""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = (await reader.readuntil(b"\r\n\r\n")).split(b" ")[1]
        good = asked == b"/realm/.well-known/openid-configuration"
        body = orjson.dumps({"issuer": base, "jwks_uri": f"{base}/keys"}) if good else b"{}"
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    base = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/realm"
    found: list[Mapping[str, str]] = []
    finder = IssuerFinder(found.append, clock=RealClock(), random=Random(1).random)
    running = asyncio.create_task(finder.run(), name="issuers")
    try:
        finder.look_for([policy("http://127.0.0.1:1"), policy(base)])  # the first has no server
        await eventually(lambda: found == [{base: f"{base}/keys"}])
    finally:
        await cancel_all(running)
        server.close()
        await server.wait_closed()
