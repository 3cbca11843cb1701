"""Agents and the control planes they speak to: after a database went back, after one was lost, and with odd bytes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from sqlalchemy import select, update

from shoal.base.clock import FakeClock
from shoal.base.ids import Ids
from shoal.base.metrics import Metrics
from shoal.base.tasks import cancel_all
from shoal.control.database.engine import Databases
from shoal.control.database.tables import FLEET, Agent, Cluster, Region
from shoal.control.database.tokens import ApiTokens, Principal
from shoal.control.service.agents.auth import Caller
from shoal.control.service.wiring import ClusterServer
from shoal.sync.digest import Digest
from shoal.sync.keys import Place, StreamKind
from shoal.testing.fleet import PlainSealer
from shoal.wire.fleet.v1 import cluster_pb as pb

PLACE = Place("clu_1", "default")
CALLER = Caller(Principal(kind="agent", workspace_id=FLEET, role="", cluster="c1", region="eu", shard="",
                          token_id="tok_1", name="t"), "", "")  # fmt: skip


class Control:
    """Two control planes on one database, without their network."""

    def __init__(self, databases: Databases) -> None:
        self.databases = databases
        self.clock = clock = FakeClock()
        self.one, self.other = (
            ClusterServer(databases, ApiTokens(databases, clock), PlainSealer(), clock=clock, random=lambda: 0.5,
                          metrics=Metrics())
            for _ in range(2)
        )  # fmt: skip

    async def add_cluster(self) -> None:
        common = {"workspace_id": FLEET, "labels": {}, "annotations": {}, "generation": 1, "version": 1,
                  "created_at": 1, "updated_at": 1, "can_schedule": True}  # fmt: skip
        async with self.databases.fleet.transaction() as tx:
            tx.session.add(Region(**common, id="reg_1", name="eu", spec={}, platform=""))
            await tx.session.flush()
            tx.session.add(Cluster(**common, id="clu_1", name="c1", spec={"region": "eu"}, region_id="reg_1"))


def identity(epoch: int = 0, agent: str = "a1") -> pb.Identity:
    return pb.Identity(cluster="c1", region="eu", shard="default", agent=agent, epoch=epoch)


@asynccontextmanager
async def a_control(path: Path) -> AsyncIterator[Control]:
    databases = await Databases.open({"main": f"sqlite:///{path}/fleet.db"}, clock=FakeClock(), ids=Ids())
    control = Control(databases)
    await control.add_cluster()
    running = [asyncio.create_task(server.agents.take_joins()) for server in (control.one, control.other)]
    try:
        yield control
    finally:
        await cancel_all(*running)
        await databases.close()


@asynccontextmanager
async def bounded_control(tmp_path: Path) -> AsyncIterator[Control]:
    async with asyncio.timeout(60):
        async with a_control(tmp_path) as control:
            yield control


async def test_who_joins_after_the_database_went_back_is_not_taken_for_an_older_agent(tmp_path: Path) -> None:
    async with bounded_control(tmp_path) as control:
        agents = control.one.agents
        for _ in range(5):
            newest = (await agents.join(CALLER, pb.JoinRequest(identity=identity()))).epoch
        async with control.databases.fleet.transaction() as tx:
            await tx.session.execute(update(Agent).values(epoch=1))  # a backup from before
        epoch = (await agents.join(CALLER, pb.JoinRequest(identity=identity()))).epoch
        assert epoch > newest
        assert (await agents.member(CALLER, identity(epoch))).epoch == epoch


async def test_an_agent_that_another_control_plane_had_lost_is_asked_for_its_reports_again(tmp_path: Path) -> None:
    async with bounded_control(tmp_path) as control:
        epoch = (await control.one.agents.join(CALLER, pb.JoinRequest(identity=identity()))).epoch
        digest = Digest()
        digest.put("deployment/d", "7")
        control.one.reported.put(PLACE, StreamKind.DEPLOYMENTS, "deployment/d", 7)  # as it came here
        async with control.databases.fleet.transaction() as tx:  # by the other one, with what was reported
            await tx.session.execute(update(Agent).values(lost=True))
        beat = pb.HeartbeatRequest(identity=identity(epoch), deployments=pb.ControllerState(reported=digest.buckets))
        await control.one.agents.heartbeat(CALLER, beat)
        await control.one.agents.flush()
        assert (await control.one.agents.heartbeat(CALLER, beat)).resend_deployments


async def test_what_no_database_can_store_is_left_out_of_what_an_agent_says_of_itself(tmp_path: Path) -> None:
    async with bounded_control(tmp_path) as control:
        agents = control.one.agents
        request = pb.JoinRequest(identity=identity(agent="a\0b"), software="x\0y")
        epoch = (await agents.join(CALLER, request)).epoch
        state = pb.ControllerState(cursor="c\0" * 9000, connection="w\0", brake=pb.Brake(reason="\0", keys=["k\0"]))
        beat = pb.HeartbeatRequest(identity=identity(epoch, agent="a\0b"), deployments=state, software="x\0z")
        await agents.heartbeat(CALLER, beat)
        await agents.flush()
        async with control.databases.fleet.reading() as session:
            row = (await session.scalars(select(Agent))).one()
        assert (row.agent, row.software) == ("ab", "xz") and "\0" not in str(row.state)
        assert len(row.state["deployments"]["cursor"]) <= 4096


async def test_a_control_plane_that_is_late_itself_calls_nobody_lost(tmp_path: Path) -> None:
    async with a_control(tmp_path) as control:
        agents, clock = control.one.agents, control.clock
        async with control.databases.fleet.transaction() as tx:
            tx.session.add(
                Agent(cluster_id="clu_1", shard="default", workspace_id=FLEET, agent="a1", epoch=1, public_key=b"",
                      software="", joined_at=0, last_heartbeat_at=0, lost=False, confirmed_deletes="")
            )  # fmt: skip

        async def lost_after(seconds: float) -> bool:
            await clock.advance(seconds)
            await agents.judge()
            async with control.databases.fleet.reading() as session:
                return bool((await session.execute(select(Agent.lost))).scalar_one())

        assert not await lost_after(60.0)  # what was said meanwhile may not have been read yet
        waited_s = 0.0
        while not await lost_after(2.0):
            waited_s += 2.0
        assert 30.0 <= waited_s <= 40.0, "it has listened for as long as an agent may be silent"
