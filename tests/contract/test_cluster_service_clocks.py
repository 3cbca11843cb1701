"""Control planes whose clocks are an hour off: what they compare is of the database's clock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import select, update

from shoal.base.clock import RealClock
from shoal.base.ids import Ids
from shoal.control.database.engine import Databases
from shoal.control.database.tables import Agent, Event
from shoal.control.database.tokens import ApiTokens
from shoal.testing.databases import shared_postgres
from shoal.testing.fleet import QUICK, AgentClient, ControlPlane, control_plane
from shoal.testing.waiting import eventually
from shoal.wire.fleet.v1 import cluster_pb as pb

HOUR_S = 3600.0
CONFIG = replace(QUICK, heartbeat_s=0.4, missed_heartbeats=3, heartbeat_flush_s=0.1)


class SkewedClock(RealClock):
    """The clock of a machine that is wrong."""

    def __init__(self, ahead_s: float) -> None:
        self._ahead_s = ahead_s

    def wall_s(self) -> float:
        return super().wall_s() + self._ahead_s


@asynccontextmanager
async def two_planes(tmp_path: Path, ahead_s: float) -> AsyncIterator[tuple[ControlPlane, ControlPlane]]:
    """One whose clock is right, and one whose clock is not, on one database."""
    url = shared_postgres().create_database()
    async with asyncio.timeout(60):
        async with (
            control_plane(tmp_path / "right", url=url, config=CONFIG) as right,
            control_plane(tmp_path / "wrong", url=url, config=CONFIG, clock=SkewedClock(ahead_s)) as wrong,
        ):
            for name in ("living", "dead"):
                await right.add_cluster(name, region="eu")
            yield right, wrong


async def beat_until(agent: AgentClient, ended: asyncio.Event) -> None:
    while not ended.is_set():
        await agent.client.heartbeat(pb.HeartbeatRequest(identity=agent.identity), headers=agent.headers)
        await asyncio.wait([asyncio.create_task(ended.wait(), name="ended")], timeout=0.2)


async def lost(control: ControlPlane) -> set[str]:
    async with control.database.reading() as session:
        return set(await session.scalars(select(Event.object_id).where(Event.reason == "AgentLost")))


async def heard_ms(control: ControlPlane, cluster: str) -> int:
    async with control.database.reading() as session:
        return (await session.get_one(Agent, (f"clu_{cluster}", "default"))).last_heartbeat_at


@pytest.mark.parametrize("ahead_s", [HOUR_S, -HOUR_S], ids=["ahead", "behind"])
@pytest.mark.parametrize("heard_by", ["right", "wrong"])
async def test_an_agent_is_lost_when_it_is_silent_whatever_clock_a_control_plane_has(
    tmp_path: Path, ahead_s: float, heard_by: str
) -> None:
    async with two_planes(tmp_path, ahead_s) as (right, wrong):
        hearing = right if heard_by == "right" else wrong
        async with hearing.agent("living", "eu") as living, hearing.agent("dead", "eu"):
            ended = asyncio.Event()
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(beat_until(living, ended), name="heartbeats")
                await eventually(lambda: lost(right), timeout_s=20)
                at_ms = await heard_ms(right, "living")  # goes on for longer than it takes to be lost
                await eventually(lambda: heard_ms(right, "living"), until=lambda now_ms: now_ms > at_ms + 2000)
                ended.set()
            assert await lost(right) == {"clu_dead"}


async def test_a_heartbeat_from_the_future_does_not_keep_a_dead_agent(tmp_path: Path) -> None:
    async with two_planes(tmp_path, 0.0) as (right, _):
        async with right.agent("dead", "eu"):
            async with right.database.transaction() as tx:
                future = Agent.last_heartbeat_at + round(HOUR_S * 1000)
                await tx.session.execute(
                    update(Agent).values(last_heartbeat_at=future).execution_options(synchronize_session=False)
                )
            assert await eventually(lambda: lost(right), timeout_s=20) == {"clu_dead"}


@pytest.mark.parametrize("ahead_s", [HOUR_S, -HOUR_S], ids=["ahead", "behind"])
async def test_a_join_and_a_revocation_are_seen_by_the_others(tmp_path: Path, ahead_s: float) -> None:
    async with two_planes(tmp_path, ahead_s) as planes:
        for here, there in (planes, planes[::-1]):
            token = await here.agent_token("living", "eu")
            async with here.agent("living", "eu", token=token) as agent:
                async with there.agent("living", "eu", token=token, join=False) as same:
                    same.identity = agent.identity
                    request = pb.HeartbeatRequest(identity=same.identity)
                    await same.client.heartbeat(request, headers=same.headers)
                    (row,) = [one for one in await here.tokens.list_(kind="agent") if one.digest and not one.revoked_at]
                    await here.tokens.revoke(row.id)

                    async def refused(request: pb.HeartbeatRequest = request, same: AgentClient = same) -> bool:
                        try:
                            await same.client.heartbeat(request, headers=same.headers)
                        except Exception as error:
                            return "token" in str(error)
                        return False

                    await eventually(refused, timeout_s=5)


@pytest.mark.parametrize("ahead_s", [HOUR_S, -HOUR_S], ids=["ahead", "behind"])
async def test_a_token_expires_by_the_clock_of_the_database(ahead_s: float) -> None:
    url = shared_postgres().create_database()
    opened = [
        await Databases.open({"main": url}, clock=clock, ids=Ids()) for clock in (RealClock(), SkewedClock(ahead_s))
    ]
    try:
        right, wrong = (ApiTokens(databases, databases.fleet.clock) for databases in opened)
        for maker, reader in ((right, wrong), (wrong, right)):
            text, _ = await maker.create(kind="user", name=f"u{id(maker)}", workspace_id="w", ttl_s=60)
            assert await reader.authenticate(text) is not None
            text, _ = await maker.create(kind="user", name=f"v{id(maker)}", workspace_id="w", ttl_s=0.001)
            await asyncio.sleep(0)
            assert await eventually(lambda text=text, reader=reader: _is_refused(reader, text))
    finally:
        for databases in opened:
            await databases.close()


async def _is_refused(tokens: ApiTokens, text: str) -> bool:
    return await tokens.authenticate(text) is None
