"""Connections through a real gateway that is cut off from its API server."""

from __future__ import annotations

from gateway_world import instances, world

from shoal.base.clock import RealClock
from shoal.sentinel.cut_off import CutOff
from shoal.testing.waiting import eventually


async def test_each_connection_ends_with_its_next_answer_and_later_ones_stay_open() -> None:
    silent, replicas = [0.0], [2]
    async with world() as up, instances("one") as (one,):
        await up.route("shop", "shop.example", "dep_1")
        await up.endpoints("dep_1", one)
        await up.answers("shop.example", "one")
        cut_off = CutOff(
            up.gateway.supervisor.admin, clock=RealClock(), silent_s=lambda: silent[0], replicas=lambda: replicas[0]
        )

        async def is_closed() -> bool:
            answer = await up.get("shop.example")
            assert (answer.status_code, answer.text) == (200, "one")
            return answer.headers.get("connection") == "close"

        assert not await is_closed()
        silent[0] = 40.0
        await cut_off.look()
        await eventually(is_closed)
        assert all(up.gateway.ready.values()), "it stays ready: a gateway that is alone must go on"
        silent[0] = 80.0
        await cut_off.look()

        async def is_open() -> bool:
            return not await is_closed()

        await eventually(is_open)
