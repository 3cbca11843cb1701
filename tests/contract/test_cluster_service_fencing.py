"""Reports of a replaced agent, on a fleet with two databases: what one database knows counts for both."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from connectrpc.errors import ConnectError
from sqlalchemy import select, update

from shoal.control.database.tables import Agent, Desired
from shoal.control.database.transaction import Tx
from shoal.testing.databases import shared_postgres
from shoal.testing.fleet import AgentClient, ControlPlane, control_plane, want_deployment
from shoal.wire.fleet.v1 import cluster_pb as pb


@asynccontextmanager
async def two_databases(tmp_path: Path, url: str) -> AsyncIterator[tuple[ControlPlane, AgentClient, str, str]]:
    """A control plane, an agent that has joined, and the key of an object of it in either database."""
    async with asyncio.timeout(60):
        async with control_plane(tmp_path, url=url, others=("more",)) as control:
            await control.add_cluster("c1", region="eu")
            first = await control.deploy("c1", "web")
            async with control.databases.all[1].transaction() as tx:
                second = await want_deployment(
                    tx, "c1", "api", image="nginx:1", template={}, replicas=1, region_id="reg_eu"
                )
            async with control.agent("c1", "eu") as agent:
                yield control, agent, first, second


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'control.db'}" if request.param == "sqlite" else shared_postgres().create_database()


async def report(agent: AgentClient, sequence: int, *keys: str) -> None:
    reports = [pb.DeploymentReport(key=key, desired_replicas=1) for key in keys]
    await agent.client.report_deployment_status(
        pb.ReportDeploymentStatusRequest(identity=agent.identity, sequence=sequence, reports=reports),
        headers=agent.headers,
    )


async def reported(control: ControlPlane) -> dict[str, tuple[int, int]]:
    """(epoch, sequence) of the last report of every object, by key."""
    found: dict[str, tuple[int, int]] = {}
    for database in control.databases.all:
        async with database.reading() as session:
            for row in await session.scalars(select(Desired)):
                found[row.key] = row.report_epoch, row.report_sequence
    return found


async def replace_unseen(control: ControlPlane, epoch: int) -> None:
    """Another agent joins at another control plane, and this one has not read it yet: it looks at new joins only."""
    async with control.database.transaction() as tx:
        await tx.session.execute(update(Agent).values(epoch=epoch, joined_at=0))


async def test_a_replaced_agent_is_refused_by_the_database_that_does_not_know_agents(tmp_path: Path, url: str) -> None:
    async with two_databases(tmp_path, url) as (control, agent, first, second):
        await report(agent, 1, first, second)
        epoch = agent.identity.epoch
        await replace_unseen(control, epoch + 1)
        for sequence, keys in enumerate(((second,), (first, second), (second, first)), 2):
            with pytest.raises(ConnectError, match=f"fenced: epoch {epoch} .* was replaced by {epoch + 1}"):
                await report(agent, sequence, *keys)
        assert await reported(control) == {first: (epoch, 1), second: (epoch, 1)}, "nothing of it was stored"


async def test_an_epoch_that_one_database_has_seen_pass_is_refused_by_all_and_the_next_join_is_above_it(
    tmp_path: Path, url: str
) -> None:
    """The fleet's database was restored from a backup and issues epochs that the other one has seen already."""
    async with two_databases(tmp_path, url) as (control, agent, first, second):
        async with control.databases.all[1].transaction() as tx:
            await tx.session.execute(update(Desired).values(report_epoch=40, report_sequence=7))
        epoch = agent.identity.epoch
        with pytest.raises(ConnectError, match=f"fenced: epoch {epoch} .* was replaced by 40"):
            await report(agent, 1, first, second)
        assert await reported(control) == {first: (0, 0), second: (40, 7)}
        await agent.join()
        assert agent.identity.epoch > 40
        await report(agent, 1, first, second)
        assert await reported(control) == {first: (agent.identity.epoch, 1), second: (agent.identity.epoch, 1)}


async def test_a_report_that_waits_for_a_database_is_refused_when_its_agent_is_replaced_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two_databases(tmp_path, "") as (control, agent, _first, second):
        other, arrived = control.databases.all[1], asyncio.Event()
        transaction = other.transaction

        def arriving(**options: Any) -> AbstractAsyncContextManager[Tx]:
            arrived.set()
            return transaction(**options)

        async with other.transaction():  # the report waits for it
            monkeypatch.setattr(other, "transaction", arriving)
            waiting = asyncio.create_task(report(agent, 1, second), name="report")
            await arrived.wait()
            await replace_unseen(control, agent.identity.epoch + 1)
        with pytest.raises(ConnectError, match="fenced"):
            await waiting
        assert (await reported(control))[second] == (0, 0)
