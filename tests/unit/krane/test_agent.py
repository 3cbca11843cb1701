"""The agent: joins, heartbeats, takes over and lets go; one controller that fails never stops the other."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from krane_doubles import FakeCluster, FakePlane, ended, inline

from shoal.base.clock import FakeClock
from shoal.base.metrics import Metrics
from shoal.base.settings import load
from shoal.client import Reach, Unreachable
from shoal.client.reach import NoOutage, Outage
from shoal.errors import AlreadyExists, ConfigError, Conflict, Forbidden, ServiceUnavailable, Unauthorized
from shoal.krane.agent import Agent, AgentDeps
from shoal.krane.config import JoinFile, KraneConfig, Limits, read_join_file
from shoal.krane.identity import Home
from shoal.krane.metrics import KraneMetrics
from shoal.krane.model import Fenced, StreamHandlers
from shoal.krane.owner import Owner
from shoal.krane.rights import FIX
from shoal.krane.upgrade import NoUpgrade
from shoal.reconcile.leader import ElectionConfig, Elector, LockRecord
from shoal.sync.digest import bucket_of
from shoal.sync.keys import StreamKind
from shoal.wire.fleet.v1 import cluster_pb as pb

JOIN = JoinFile(url="https://127.0.0.1:1", token="t", cluster="c1", region="eu", shard="default", ca="pem")

LIMITS = Limits(report_gather_s=0)


class MemoryLock:
    """A record shared by candidates."""

    namespace, name = "shoal-system", "krane-c1-default"

    def __init__(self) -> None:
        self.record: LockRecord | None = None
        self.away_for: set[str] = set()

    async def get(self) -> LockRecord | None:
        await asyncio.sleep(0)
        return self.record

    async def create(self, record: LockRecord) -> LockRecord:
        self._check(record.holder)
        if self.record is not None:
            raise AlreadyExists("exists")
        self.record = replace(record, version="1")
        return self.record

    async def update(self, record: LockRecord) -> LockRecord:
        self._check(record.holder)
        if self.record is None or self.record.version != record.version:
            raise Conflict("changed")
        self.record = replace(record, version=str(int(record.version) + 1))
        return self.record

    def _check(self, holder: str) -> None:
        if holder in self.away_for:
            raise ServiceUnavailable("away")


class World:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = FakeClock()
        self.plane = FakePlane()
        self.clusters = {stream: FakeCluster() for stream in StreamKind}
        self.of_others = FakeCluster()  # what carries the labels of another fleet
        self.lock = MemoryLock()
        self.owners: list[Owner] = []

    def agent(
        self,
        name: str,
        *,
        elect: bool = False,
        plane: FakePlane | None = None,
        metrics: Metrics | None = None,
        limits: Limits = LIMITS,
        outage: Outage | None = None,
    ) -> Agent:
        elector = None
        if elect:
            times = ElectionConfig(lease_s=15, renew_deadline_s=10.0, retry_s=2.0)
            elector = Elector(self.lock, name, clock=self.clock, random=lambda: 0.5, config=times)
        return Agent(
            AgentDeps(
                config=KraneConfig(join=Path("join.json"), dir=self.path / name, limits=limits),
                join=JOIN,
                plane=plane or self.plane,
                handlers=self.handlers,
                elector=elector,
                outage=outage or NoOutage(),
                upgrade=NoUpgrade(),
                name=name,
                software="shoal/test",
                metrics=KraneMetrics(metrics or Metrics()),
                clock=self.clock,
                random=lambda: 0.5,
                offload=inline,
            )
        )

    def handlers(self, owner: Owner, private_key: bytes) -> dict[StreamKind, StreamHandlers]:
        self.owners.append(owner)
        assert len(private_key) == 32
        if owner.fleet != "flt_1":
            return {stream: StreamHandlers(self.of_others, self.of_others) for stream in StreamKind}
        return {stream: StreamHandlers(cluster, cluster) for stream, cluster in self.clusters.items()}

    @asynccontextmanager
    async def running(self, agent: Agent) -> AsyncIterator[Agent]:
        task = asyncio.create_task(agent.run())
        try:
            await self.clock.advance(1)
            yield agent
            if task.done():
                task.result()
        finally:
            await ended(task)


async def test_an_agent_joins_with_its_key_and_both_controllers_work(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.plane.desired.want("deployment/a")
    world.plane.desired.want("sentinel/s")
    async with world.running(world.agent("a1")) as agent:
        await world.clock.advance(1)
        assert list(world.clusters[StreamKind.DEPLOYMENTS].objects) == ["deployment/a"]
        assert list(world.clusters[StreamKind.SENTINELS].objects) == ["sentinel/s"]
        (join,) = world.plane.joins
        assert join.identity is not None and join.identity.epoch == 0 and len(join.public_key) == 32
        assert all(hello.identity.epoch == 1 for hello in world.plane.hellos if hello.identity)
        assert world.owners[0] == Owner(fleet="flt_1", cluster="c1", region="eu", shard="default")
        assert agent.readyz()[0] and agent.status()["epoch"] == 1
    mode = stat.S_IMODE(os.stat(tmp_path / "a1" / "agent.key").st_mode)
    assert mode == 0o600
    first = join.public_key
    async with world.running(world.agent("a1")):
        assert world.plane.joins[-1].public_key == first  # made once


async def test_a_heartbeat_comes_every_ten_seconds_with_the_state_of_both(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.plane.desired.want("deployment/a")
    async with world.running(world.agent("a1")):
        await world.clock.advance(5)
        world.plane.beats.clear()
        await world.clock.advance(60)
        assert len(world.plane.beats) == 6
        beat = world.plane.beats[-1]
        assert beat.deployments is not None and beat.sentinels is not None
        assert beat.deployments.connection == beat.sentinels.connection == "watching"
        assert beat.deployments.objects == 1 and beat.deployments.cursor == world.plane.desired.cursor
        assert len(beat.deployments.reported) == 256


async def test_the_first_heartbeat_comes_at_once_and_says_what_is_true(tmp_path: Path) -> None:
    world = World(tmp_path)
    async with world.running(world.agent("a1")):
        await world.clock.advance(0.1)
        (beat,) = world.plane.beats
        assert beat.deployments is not None and beat.sentinels is not None
        assert beat.deployments.connection == beat.sentinels.connection == "watching"


async def test_the_answer_to_a_heartbeat_resends_reports_and_confirms_deletions(tmp_path: Path) -> None:
    world = World(tmp_path)
    plane, cluster = world.plane, world.clusters[StreamKind.DEPLOYMENTS]
    for n in range(20):
        plane.desired.want(f"deployment/d{n}")
    async with world.running(world.agent("a1")):
        await world.clock.advance(2)
        for n in range(8):
            plane.unwant(f"deployment/d{n}")
        await world.clock.advance(11)
        assert len(cluster.deleted) == 5
        held = plane.beats[-1].deployments.brake  # type: ignore[union-attr]
        assert held is not None and held.held and held.count == 3
        plane.requests.clear()
        plane.answer.confirmed_deletes = plane.desired.cursor
        plane.answer.resend_deployments = [bucket_of("deployment/d9")]
        await world.clock.advance(11)
        assert len(cluster.deleted) == 8
        assert "deployment/d9" in {report.key for request in plane.requests for report in request.reports}


async def test_after_a_reconnect_a_heartbeat_comes_at_once(tmp_path: Path) -> None:
    world = World(tmp_path)
    async with world.running(world.agent("a1")):
        await world.clock.advance(12)
        world.plane.beats.clear()
        await world.clock.advance(2)
        world.plane.cut()
        await world.clock.advance(1)
        assert len(world.plane.beats) == 1


async def test_a_standby_takes_over_when_the_lease_runs_out_and_the_old_one_stops(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.plane.desired.want("deployment/a")
    first, second = world.agent("a1", elect=True), world.agent("a2", elect=True)
    async with world.running(first), world.running(second):
        assert (first.status()["leading"], second.status()["leading"]) == (True, False)
        assert second.readyz() == (True, {"election": "standing by", "cluster": "ok"})
        world.lock.away_for.add("a1")  # it can no longer renew
        await world.clock.advance(30)
        assert (first.status()["leading"], second.status()["leading"]) == (False, True)
        assert world.plane.epoch == 2 and world.plane.streams == 2  # only the second one's
        world.plane.want("deployment/b")
        await world.clock.advance(1)
        assert set(world.clusters[StreamKind.DEPLOYMENTS].objects) == {"deployment/a", "deployment/b"}


async def passed(world: World, seconds: int) -> None:
    """In steps, so that every task gets its turn."""
    for _ in range(seconds):
        await world.clock.advance(1)


async def test_an_agent_that_loses_its_cluster_acts_no_more_but_goes_on_saying_so(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.plane.desired.want("deployment/a")
    reach = Reach("https://c1", clock=world.clock)
    agent = world.agent("a1", elect=True, outage=reach)
    async with world.running(agent):
        await world.clock.advance(11)
        reported = world.plane.beats[-1].deployments
        assert world.plane.beats[-1].outage is None and reported is not None and any(reported.reported)
        reach.failed(Unreachable("connection refused"))
        world.lock.away_for.add("a1")
        await passed(world, 30)
        assert not agent.status()["leading"] and world.plane.streams == 0
        assert agent.readyz() == (
            False, {"election": "standing by: away", "cluster": "connection refused, for 30 s"}
        )  # fmt: skip
        last = world.plane.beats[-1]
        assert last.outage is not None and last.deployments is not None
        assert (last.outage.reason, last.identity and last.identity.epoch) == ("connection refused", 1)
        assert 20 <= last.outage.seconds <= 30
        assert last.deployments.connection == "stopped", "what it did before is not forgotten"
        assert list(last.deployments.reported) == list(reported.reported)
        reach.answered(200)
        world.lock.away_for.clear()
        await passed(world, 8)
        assert agent.status()["leading"] and agent.readyz()[0]
        assert world.plane.beats[-1].outage is None and world.plane.epoch == 2


async def test_an_agent_that_is_replaced_during_an_outage_says_no_more(tmp_path: Path) -> None:
    world = World(tmp_path)
    reach = Reach("https://c1", clock=world.clock)
    async with world.running(world.agent("a1", elect=True, outage=reach)):
        await world.clock.advance(1)
        reach.failed(Unreachable("connection refused"))
        world.lock.away_for.add("a1")
        await passed(world, 30)
        world.plane.error = Fenced("another agent has this shard")
        await passed(world, 10)
        said = world.plane.attempts
        await passed(world, 60)
        assert world.plane.attempts == said


async def test_a_missing_right_is_named_with_the_command_that_grants_it(tmp_path: Path) -> None:
    world = World(tmp_path)
    refusal = 'pods is forbidden: User "krane" cannot list resource "pods" in API group "" at the cluster scope'
    cluster = world.clusters[StreamKind.DEPLOYMENTS]
    cluster.refusal = refusal
    cluster.failing["deployment/a"] = Forbidden(refusal)
    cluster.failing["deployment/b"] = Forbidden('pods "b" is forbidden: exceeded quota: pods=10')
    world.plane.desired.want("deployment/a")
    world.plane.desired.want("deployment/b")
    async with world.running(world.agent("a1")) as agent:
        await world.clock.advance(1)
        ready, checks = agent.readyz()
        assert not ready and checks["deployments"] == f"{refusal}; {FIX}"
        told = {key: report.error for key, report in world.plane.reports.items()}
        assert (one := told["deployment/a"]) is not None and one.message.endswith(FIX)
        assert (other := told["deployment/b"]) is not None and FIX not in other.message
        cluster.refusal = ""
        assert agent.readyz()[0]


async def test_an_agent_whose_cluster_is_away_at_the_start_waits_and_says_why(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.lock.away_for.add("a1")
    reach = Reach("https://c1", clock=world.clock)
    reach.failed(Unreachable("connection refused"))
    agent = world.agent("a1", elect=True, outage=reach)
    async with world.running(agent):
        await passed(world, 20)
        ready, checks = agent.readyz()
        assert not ready and checks["cluster"].startswith("connection refused") and world.plane.attempts == 0
        reach.answered(200)
        world.lock.away_for.clear()
        await passed(world, 8)
        assert agent.readyz()[0] and world.plane.epoch == 1


async def test_a_fenced_agent_stops_acting_gives_the_lease_back_and_waits(tmp_path: Path) -> None:
    world = World(tmp_path)
    agent = world.agent("a1", elect=True)
    async with world.running(agent):
        assert agent.status()["leading"]
        world.plane.cut(Fenced("fenced: epoch 1 was replaced by 2"))
        await world.clock.settle()
        await world.clock.settle()
        assert not agent.status()["leading"] and agent.controllers == {}
        assert world.lock.record is not None and world.lock.record.holder == ""
        await world.clock.advance(30)
        assert agent.status()["leading"] and world.plane.epoch == 2  # nobody else was there after all


async def test_two_agents_set_up_alike_do_not_take_the_shard_from_each_other_all_the_time(tmp_path: Path) -> None:
    world = World(tmp_path)
    real = world.plane.heartbeat

    async def newest_only(request):  # type: ignore[no-untyped-def]
        if request.identity.epoch < world.plane.epoch:
            raise Fenced("fenced")
        return await real(request)

    world.plane.heartbeat = newest_only  # type: ignore[method-assign]
    async with world.running(world.agent("a1")), world.running(world.agent("a2")):
        await world.clock.advance(3600)
        assert 5 < world.plane.epoch < 80  # they do, but rarely


async def test_joining_pauses_while_the_breaker_is_open(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.plane.error = ServiceUnavailable("away")
    async with world.running(world.agent("a1")) as agent:
        await world.clock.advance(3)  # five tries: at 0, 0.25, 0.75, 1.75 and 3.75 s
        assert world.plane.attempts == 5 and agent.status()["controlPlane"]["breaker"] == "open"
        await world.clock.advance(9)
        assert world.plane.attempts == 5
        await world.clock.advance(1)
        assert world.plane.attempts == 6  # one tests whether it is back
        world.plane.error = None
        await world.clock.advance(11)
        assert agent.status()["epoch"] == 1 and agent.status()["controlPlane"]["breaker"] == "closed"


async def test_heartbeats_pause_while_the_breaker_is_open_and_come_at_once_after_a_reconnect(tmp_path: Path) -> None:
    world = World(tmp_path)
    beats: list[float] = []
    failing = False

    async def counted(request: pb.HeartbeatRequest) -> pb.HeartbeatResponse:
        beats.append(world.clock.monotonic())
        if failing:
            raise ServiceUnavailable("away")
        return pb.HeartbeatResponse()

    world.plane.heartbeat = counted  # type: ignore[method-assign]
    agent = world.agent("a1", limits=Limits(report_gather_s=0, breaker_open_s=600))
    async with world.running(agent):
        await world.clock.advance(5)
        beats.clear()
        failing = True
        await world.clock.advance(100)
        assert len(beats) == 5 and agent.status()["controlPlane"]["breaker"] == "open"
        failing = False
        world.plane.cut()
        await world.clock.advance(2)
        assert len(beats) > 5 and agent.status()["controlPlane"]["breaker"] == "closed"


async def test_without_the_control_plane_a_restarted_agent_keeps_the_cached_state(tmp_path: Path) -> None:
    world = World(tmp_path)
    cluster = world.clusters[StreamKind.DEPLOYMENTS]
    world.plane.desired.want("deployment/a")
    async with world.running(world.agent("a1")):
        await world.clock.advance(1)
    cluster.objects.clear()
    world.plane.error = ServiceUnavailable("away")
    async with world.running(world.agent("a1")) as agent:
        await world.clock.advance(20)
        assert list(cluster.objects) == ["deployment/a"]
        assert agent.readyz()[0] and agent.status()["controlPlane"]["reason"] == "away"
        world.plane.error = None
        world.plane.desired.want("deployment/b")
        await world.clock.advance(31)
        assert set(cluster.objects) == {"deployment/a", "deployment/b"} and world.plane.desired.syncs == 2


async def test_an_agent_that_never_joined_is_not_ready_and_says_why(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.plane.error = Unauthorized("the token is unknown")
    async with world.running(world.agent("a1")) as agent:
        ready, checks = agent.readyz()
        assert not ready and "unknown" in checks["join"] and agent.livez()[0]


async def test_another_fleet_behind_the_same_address_gets_none_of_the_old_ones_state(tmp_path: Path) -> None:
    world = World(tmp_path)
    cluster = world.clusters[StreamKind.DEPLOYMENTS]
    world.plane.desired.want("deployment/a")
    async with world.running(world.agent("a1")):
        await world.clock.advance(1)
    other = FakePlane()
    other.fleet = "flt_2"
    other.desired.want("deployment/b")
    async with world.running(world.agent("a1", plane=other)):
        await world.clock.advance(5)
        assert world.owners[-1].fleet == "flt_2" and list(world.of_others.objects) == ["deployment/b"]
        assert all(hello.cursor == "" for hello in other.hellos)
        assert cluster.deleted == [] and list(cluster.objects) == ["deployment/a"]


async def test_a_controller_that_fails_is_started_again_and_the_other_never_notices(tmp_path: Path) -> None:
    world = World(tmp_path)

    class Broken(FakeCluster):
        times = 3

        async def run(self, changed: Callable[[str], None]) -> None:
            if not self.times:
                await super().run(changed)
            self.times -= 1
            for key in self.objects:
                changed(key)
            await world.clock.sleep(5)
            raise RuntimeError("a bug in the observer")

    world.clusters[StreamKind.SENTINELS] = Broken()
    world.plane.desired.want("deployment/a")
    world.plane.desired.want("sentinel/s")
    async with world.running(world.agent("a1")):
        await world.clock.advance(1)
        assert list(world.clusters[StreamKind.DEPLOYMENTS].objects) == ["deployment/a"]
        await world.clock.advance(60)
        assert list(world.clusters[StreamKind.SENTINELS].objects) == ["sentinel/s"]
        assert world.clusters[StreamKind.DEPLOYMENTS].applied == [("deployment/a", 1)]
        requests = [one for one in world.plane.requests if isinstance(one, pb.ReportSentinelStatusRequest)]
        sequences = [request.sequence for request in requests]
        assert len(sequences) >= 2 and sequences == sorted(set(sequences))  # also across restarts, in one epoch


def test_the_key_is_made_once_and_replaced_when_it_cannot_be_read(tmp_path: Path) -> None:
    home = Home(tmp_path / "agent")
    home.prepare()
    pair = home.key_pair()
    derived = X25519PrivateKey.from_private_bytes(pair.private).public_key().public_bytes_raw()
    assert home.key_pair() == pair and derived == pair.public
    for bad in ("not a key", "[]", '{"private": "00", "public": "00"}'):
        (tmp_path / "agent" / "agent.key").write_text(bad)
        assert home.key_pair() != pair
    assert stat.S_IMODE(os.stat(tmp_path / "agent").st_mode) == 0o700


def test_a_join_file_is_read_and_what_is_wrong_with_it_is_said(tmp_path: Path) -> None:
    path = tmp_path / "join.json"
    path.write_text(
        '{"url": "https://c:1", "ca": "PEM", "token": "t", "cluster": "c1", "region": "eu", "shard": "default"}'
    )
    assert read_join_file(path).cluster == "c1"
    path.write_text('{"url": "c:1", "ca": "PEM", "token": "t", "cluster": "c1", "region": "eu"}')
    with pytest.raises(ConfigError, match="url is 'c:1'"):
        read_join_file(path)
    path.write_text('{"url": "https://c:1", "token": "t", "cluster": "c1", "region": "eu"}')
    with pytest.raises(ConfigError, match="ca is not set"):
        read_join_file(path)


def test_a_join_file_has_one_url_or_several(tmp_path: Path) -> None:
    path = tmp_path / "join.json"
    rest = '"ca": "PEM", "token": "t", "cluster": "c1", "region": "eu"'
    for urls, expected in (
        ('"url": "https://a"', ("https://a",)),
        ('"urls": ["https://a", "https://b"]', ("https://a", "https://b")),
        ('"url": "https://a", "urls": ["https://a", "https://b"]', ("https://a", "https://b")),
        ('"url": "https://b", "urls": ["https://a", "https://b"]', ("https://b", "https://a")),
    ):
        path.write_text("{" + urls + ", " + rest + "}")
        assert read_join_file(path).addresses == expected
    path.write_text('{"url": "https://a", "urls": ["b:1"], ' + rest + "}")
    with pytest.raises(ConfigError, match="urls is 'b:1'"):
        read_join_file(path)
    path.write_text("{" + rest + "}")
    with pytest.raises(ConfigError, match="url is not set"):
        read_join_file(path)


def test_settings_come_from_file_environment_and_flags(tmp_path: Path) -> None:
    file = tmp_path / "krane.yaml"
    file.write_text("join: /etc/join.json\ndir: /var/lib/krane\nlimits: {buffer: 50}\n")
    config = load(
        KraneConfig,
        file=file,
        environ={"SHOAL_KRANE_LIMITS__APPLY_PARALLEL": "3"},
        prefix="SHOAL_KRANE_",
        flags={"heartbeat_s": "5"},
    )
    assert (config.limits.buffer, config.limits.apply_parallel, config.heartbeat_s) == (50, 3, 5.0)
    with pytest.raises(ConfigError, match="buffer is 0"):
        load(KraneConfig, file=file, flags={"limits.buffer": 0})


async def test_every_message_says_who_it_is_from(tmp_path: Path) -> None:
    world = World(tmp_path)
    asked: list[pb.GetDesiredRequest] = []
    real = world.plane.get_desired

    async def noted(stream: StreamKind, request: pb.GetDesiredRequest) -> pb.Item:
        asked.append(request)
        return await real(stream, request)

    world.plane.get_desired = noted  # type: ignore[method-assign]
    world.plane.desired.want("deployment/a")
    world.plane.desired.want("sentinel/s")
    async with world.running(world.agent("a1")):
        await world.clock.advance(900)
    said = [*world.plane.hellos, *world.plane.beats, *world.plane.requests, *asked]
    expected = pb.Identity(cluster="c1", region="eu", shard="default", agent="a1", epoch=1)
    assert len(asked) >= 2 and all(message.identity == expected for message in said)


async def test_metrics_have_closed_labels_and_can_be_rendered(tmp_path: Path) -> None:
    world = World(tmp_path)
    registry = Metrics()
    agent = world.agent("a1", metrics=registry)
    world.plane.desired.want("deployment/secret-name")
    async with world.running(agent):
        await world.clock.advance(20)
        text = registry.render().decode()
        assert 'shoal_krane_objects{controller="deployments"} 1.0' in text
        assert 'shoal_krane_hop_seconds_count{controller="deployments",hop="ready"} 1.0' in text
        assert "shoal_krane_epoch 1.0" in text and "secret-name" not in text
