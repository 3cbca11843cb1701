"""Samples of traffic on both databases: what gateways count is stored once, read by time, and kept as long as it says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from sqlalchemy import select

from shoal.base.clock import FakeClock
from shoal.base.ids import Ids
from shoal.control.database.engine import Database
from shoal.control.database.retention import Retention, sweep
from shoal.control.database.tables import Environment, Project, Sentinel, Traffic
from shoal.control.database.traffic import MINUTE_MS, SAMPLE_MS, TrafficKey, TrafficTotals, fold_samples
from shoal.control.domain.samples import newest_sample, read_samples
from shoal.control.rollout.samples import added
from shoal.sync.counters import Counts
from shoal.sync.keys import Place
from shoal.testing.databases import shared_postgres
from shoal.testing.fleet import AgentClient, ControlPlane, control_plane
from shoal.wire.fleet.v1 import cluster_pb as pb

HOUR_MS = 3_600_000


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'control.db'}" if request.param == "sqlite" else shared_postgres().create_database()


@asynccontextmanager
async def opened(url: str, clock: FakeClock) -> AsyncIterator[Database]:
    async with asyncio.timeout(60):
        database = await Database.open(url, clock=clock, ids=Ids())
        try:
            yield database
        finally:
            await database.close()


def counts(good: int, bad: int = 0, bucket: int = 4) -> Counts:
    return Counts((0, good, 0, 0, bad), {bucket: good + bad}, 3 * good)


async def write(
    database: Database, from_ms: int, deployment: str = "d", *, region: str = "eu", environment: str = "env",
    **origins: Counts,
) -> None:  # fmt: skip
    async with database.transaction() as tx:
        totals = TrafficTotals()
        totals.add(TrafficKey(environment, from_ms, SAMPLE_MS, region), "ws", deployment, origins)
        await totals.write(tx)


async def total(database: Database, after_ms: int = 0, until_ms: int = 2**50, **options: Any) -> tuple[int, ...]:
    async with database.reading() as session:
        found = await read_samples(session, "env", ["d"], after_ms, until_ms, **options)
    return added(found).codes


async def spans(database: Database) -> list[tuple[int, int]]:
    async with database.reading() as session:
        rows = await session.execute(select(Traffic.from_at, Traffic.span_ms).order_by(Traffic.from_at))
        return [(row.from_at, row.span_ms) for row in rows]


async def test_samples_of_one_time_are_one_row_and_read_by_environment_deployment_and_time(url: str) -> None:
    async with opened(url, FakeClock()) as database:
        await write(database, 5000, entry=counts(3))
        await write(database, 5000, entry=counts(1, 2, bucket=9), peer=counts(7))
        await write(database, 5000, "other", entry=counts(50), mirror=counts(60))
        await write(database, 10_000, region="us", entry=counts(4))
        await write(database, 5000, environment="of others", entry=counts(1000))
        assert len(await spans(database)) == 3
        async with database.reading() as session:
            first, second = await read_samples(session, "env", ["d"], 0, 15_000)
        assert (first.region, first.from_ms, first.until_ms, first.codes) == ("eu", 5000, 10_000, (0, 4, 0, 0, 2))
        assert (first.latency[4], first.latency[9], sum(first.latency), first.latency_ms) == (3, 3, 6, 12.0)
        assert (second.region, second.from_ms, second.codes) == ("us", 10_000, (0, 4, 0, 0, 0))
        assert await total(database, origin="peer") == (0, 7, 0, 0, 0)
        assert await total(database, origin="mirror") == (0, 0, 0, 0, 0)
        for after, until, expected in ((5000, 10_000, 4), (5001, 15_000, 4), (0, 9999, 0), (5000, 14_999, 4)):
            assert (await total(database, after, until))[1] == expected, (after, until)


async def swept(database: Database, kept: Retention) -> tuple[int, int]:
    """How many samples were added up, and how many minutes removed."""
    found = await sweep(database, kept)
    return found.samples, found.traffic


async def test_old_samples_become_minutes_and_old_minutes_go(url: str) -> None:
    clock = FakeClock()
    async with opened(url, clock) as database:
        await clock.advance(7)  # not at the beginning of a minute
        now = database.time.now_ms()
        start = now - now % MINUTE_MS - 2 * MINUTE_MS
        for n in range(30):
            await write(database, start + n * SAMPLE_MS, entry=counts(1, 1), mirror=counts(2))
        kept = Retention(batch=2)
        assert (await swept(database, kept)) == (0, 0), "they are young"
        await clock.advance(HOUR_MS / 1000)
        assert (await swept(database, kept)) == (24, 0), "whole minutes only"
        assert [span for _, span in await spans(database)] == [MINUTE_MS] * 2 + [SAMPLE_MS] * 6
        assert await total(database) == (0, 30, 0, 0, 30) and (await total(database, origin="mirror"))[1] == 60
        await write(database, start + SAMPLE_MS, entry=counts(5))
        assert (await total(database))[1] == 35, "late, and seen at once"
        assert (await swept(database, kept)) == (1, 0)
        assert await total(database, start, start + MINUTE_MS) == (0, 17, 0, 0, 12)
        await clock.advance(23 * HOUR_MS / 1000)
        assert (await swept(database, kept)) == (6, 2)
        assert await spans(database) == [(start + 2 * MINUTE_MS, MINUTE_MS)]
        await clock.advance(60)
        assert (await swept(database, kept))[1] == 1


async def test_two_control_planes_that_add_up_minutes_at_once_count_nothing_twice(url: str) -> None:
    clock = FakeClock()
    async with opened(url, clock) as one, opened(url, clock) as other:
        for n in range(24):
            await write(one, n * SAMPLE_MS, entry=counts(1))
        found = await asyncio.gather(
            fold_samples(one, 2 * MINUTE_MS),
            fold_samples(other, 2 * MINUTE_MS),
            write(other, 2 * SAMPLE_MS, entry=counts(100)),
        )
        assert sum(n for n in found if n is not None) in (24, 25)
        await fold_samples(one, 2 * MINUTE_MS)
        assert (await total(one))[1] == 124 and len(await spans(one)) == 2


async def add_gateway(control: ControlPlane) -> None:
    await control.add_cluster("c1", region="eu")
    made = {
        "workspace_id": "ws_1", "labels": {}, "annotations": {}, "spec": {}, "generation": 1, "version": 1,
        "created_at": 1, "updated_at": 1,
    }  # fmt: skip
    async with control.database.transaction() as tx:
        for row in (
            Project(id="prj_1", name="shop", **made),
            Environment(id="env_1", name="live", project_id="prj_1", namespace="shop-live", **made),
            Sentinel(
                id="sen_c1", name="eu", project_id="prj_1", environment_id="env_1", region_id="reg_eu",
                cluster_id="clu_c1", shard="default", k8s_name="sentinel-c1", image="envoy:1",
                desired_state="running", desired_replicas=2, **made,
            ),
        ):  # fmt: skip
            tx.session.add(row)
            await tx.session.flush()
        await tx.want(Place("clu_c1", "default"), "sentinel/sen_c1", workspace_id="ws_1")


def entry(at_ms: int, deployments: Mapping[str, Any]) -> dict[str, Any]:
    return {"v": 2, "at": at_ms / 1000, "since": 1_700_000_000, "deployments": deployments}


async def report(agent: AgentClient, sequence: int, gateways: Mapping[str, Any]) -> None:
    told = pb.SentinelReport(key="sentinel/sen_c1", stats=orjson.dumps({"gateways": gateways}))
    await agent.client.report_sentinel_status(
        pb.ReportSentinelStatusRequest(identity=agent.identity, sequence=sequence, reports=[told]),
        headers=agent.headers,
    )


async def test_reports_of_gateways_become_samples_of_their_environment_and_region(url: str, tmp_path: Path) -> None:
    async with asyncio.timeout(60), control_plane(tmp_path, url=url) as control:
        await add_gateway(control)
        async with control.agent("c1", "eu") as agent:
            now = round(control.clock.wall_s() * 1000)

            def counted(good: int, bad: int) -> dict[str, Any]:
                return {"codes": [0, good, 0, 0, bad], "times": [4, good + bad], "latencyMs": good}

            async def samples() -> list[tuple[str, tuple[int, ...]]]:
                async with control.database.reading() as session:
                    found = await read_samples(session, "env_1", ["dep_1"], now - HOUR_MS, now + HOUR_MS)
                    return [(one.region, one.codes) for one in found]

            async def newest() -> dict[str, int]:
                async with control.database.reading() as session:
                    return await newest_sample(session, "env_1")

            assert await newest() == {}
            await report(agent, 1, {"a": entry(now, {"dep_1": counted(0, 0)})})
            assert await samples() == []
            first = await newest()
            assert set(first) == {"reg_eu"} and first["reg_eu"] % SAMPLE_MS == 0 and abs(first["reg_eu"] - now) < 30_000
            await report(agent, 2, {"a": entry(now + 1, {"dep_1": counted(6, 2)})})
            await report(agent, 3, {"a": entry(now + 2, {"dep_1": counted(9, 2)}), "b": entry(now, {})})
            assert added_codes(await samples()) == (0, 9, 0, 0, 2)
            await report(agent, 4, {"b": entry(now + 3, {})})
            await report(agent, 5, {"a": entry(now + 4, {"dep_1": counted(9, 2)})})
            assert added_codes(await samples()) == (0, 9, 0, 0, 2), "what was reported is not counted again"
            assert {region for region, _ in await samples()} == {"reg_eu"}


def added_codes(found: list[tuple[str, tuple[int, ...]]]) -> tuple[int, ...]:
    return tuple(map(sum, zip(*(codes for _, codes in found), strict=True)))
