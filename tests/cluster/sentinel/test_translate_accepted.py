"""Whatever the cluster says, Envoy takes the translation of it: one bad object never holds up the others."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

import pytest
from certificates_under_test import Authority
from envoy_under_test import Gateway, gateway, with_settings
from hypothesis import HealthCheck, given, settings
from translated_inputs import inputs

from shoal.app.ports import any_free
from shoal.sentinel.model import Inputs


@pytest.mark.parametrize("with_peers", [False, True])
async def test_envoy_takes_every_translation(with_peers: bool) -> None:
    secret = Authority().secret("gateways", "sentinel.shoal")
    entry = any_free("127.0.0.1")
    drawn: list[Inputs] = []

    @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
    @given(inputs)
    def draw(found: Inputs) -> None:
        drawn.append(found)

    draw()

    async def tell(gw: Gateway, found: Inputs) -> None:
        if with_peers:
            found = replace(found, tls={"gateways": secret})
            found = with_settings(found, entry_port=entry, entry_secret="gateways", region="here")
        await gw.tell(with_settings(found, port=gw.port))

    async with asyncio.timeout(110):
        async with gateway() as gw:
            for found in random.Random(7).sample(drawn, min(40, len(drawn))):
                await asyncio.wait_for(tell(gw, found), 30)
            served = (await gw.admin.get("/server_info")).json()
            assert served["state"] == "LIVE"
