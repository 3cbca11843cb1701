"""An API server that hangs is noticed within 20 s, and one that answers is hardly asked."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from shoal.base.clock import FakeClock
from shoal.base.tasks import cancel_all
from shoal.client import Client, Reach
from shoal.client.transport import Reply, Transport
from shoal.navigator.edge.probe import PROBE_S, HangProbe


class Server:
    def __init__(self, reach: Reach) -> None:
        self.reach = reach
        self.asked = 0
        self.hangs = False

    async def request(self, method: str, target: str, **_: Any) -> Reply:
        self.asked += 1
        if self.hangs:
            await asyncio.Event().wait()
        self.reach.answered(200)
        return Reply(200, {}, b"{}")


async def test_a_server_that_hangs_is_noticed_and_so_is_its_return(clock: FakeClock) -> None:
    reach, said = Reach("https://a", clock=clock), list[str]()
    server = Server(reach)
    client = Client(cast(Transport, server), clock=clock)
    probe = HangProbe(client, reach, clock=clock, hangs=said.append, answers=lambda: said.append("answers"))
    task = asyncio.create_task(probe.run(), name="probe")
    try:
        for _ in range(60):
            await clock.advance(1)
        assert 5 <= server.asked <= 6 and said == []
        server.hangs = True
        for _ in range(20):
            await clock.advance(1)
        assert said == [f"the API server has not answered for {PROBE_S:g} s"]
        server.hangs = False
        for _ in range(20):
            await clock.advance(1)
        assert said[-1] == "answers"
        server.hangs = True
        reach.failed(OSError("connection refused"))
        asked = server.asked
        for _ in range(30):
            await clock.advance(1)
        assert server.asked == asked, "the watches see an outage themselves"
    finally:
        await cancel_all(task)
