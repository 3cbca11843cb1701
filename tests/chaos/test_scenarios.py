"""Ten things that go wrong, each with the promise of the documents as its assertion."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import sys
import threading
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from cluster_client import Client
from cryptography import x509
from several_servers import entries_lost, failed_over, postgres_killed, redis_away, stream_emptied, witness
from test_retry_storm import token_of, weather
from tests.chaos.writers import Writer, check_stored

from shoal.base.clock import RealClock
from shoal.base.metrics import Metrics
from shoal.client.reach import NoOutage
from shoal.errors import ServiceUnavailable
from shoal.krane.agent import Agent, AgentDeps
from shoal.krane.config import JoinFile, KraneConfig, Limits
from shoal.krane.metrics import KraneMetrics
from shoal.krane.model import Observer, Report, StreamHandlers
from shoal.krane.owner import Owner
from shoal.krane.upgrade import NoUpgrade
from shoal.sync.keys import StreamKind
from shoal.testing.broken_fleet import broken_fleet
from shoal.testing.databases import PostgresServer, RedisServer
from shoal.testing.disks import SmallDisk
from shoal.testing.faults import Faults
from shoal.testing.faulty_process import ProcessFaults
from shoal.testing.fleet_recorder import FleetRecorder, marker_of
from shoal.testing.fleets import LocalFleet, app
from shoal.testing.servers import ServerProcess, server_process, start_server_process
from shoal.testing.tally import TALLY
from shoal.testing.waiting import eventually, eventually_blocking

TESTS = Path(__file__).parents[1]
sys.path += [str(TESTS / "unit" / "krane"), str(TESTS / "cluster" / "krane")]

from krane_doubles import FakeCluster, FakePlane, Rig  # noqa: E402 - by the path above
from krane_world import deployment, sentinel, world  # noqa: E402

pytestmark = pytest.mark.timeout(400)

WAIT_S = 120.0
REGIONS = {"eu-1": "eu", "us-1": "us"}
CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
DAY_S = 86_400.0


def markers(witness: FleetRecorder, name: str, cluster: str) -> list[str]:
    """The revisions of an app that a cluster has."""
    return [marker_of(obj) for obj in witness.of_app(name, cluster)]


def uids(witness: FleetRecorder, clusters: Iterable[str]) -> dict[str, str]:
    """The Deployments of clusters, and which objects they are."""
    return {f"{at}/{name}": obj["metadata"]["uid"] for at in clusters for name, obj in witness.live[at].items()}


async def test_partition_of_a_region(tmp_path: Path, faults: Faults) -> None:
    """Agents serve what they have, back off, and reconcile in full when the connection is back; other regions go on."""
    async with broken_fleet(tmp_path, REGIONS) as fleet:
        api, recorder = fleet.fleet.api, fleet.witness
        await asyncio.to_thread(api.put, app("web", {"eu": 1, "us": 1}, marker="0"))
        await recorder.settled()
        before = uids(recorder, ["us-1"])
        status = partial(asyncio.to_thread, fleet.fleet.agent_status, "us-1-default")
        link = fleet.hop("agent-control")[list(REGIONS).index("us-1")]
        link.refuse()
        for marker in ("1", "2"):
            await asyncio.to_thread(api.put, app("web", {"eu": 1, "us": 1}, marker=marker))
            await recorder.until(
                lambda marker=marker: markers(recorder, "web", "eu-1") == [marker], timeout_s=WAIT_S, what="eu"
            )
        await eventually(
            status, until=lambda shown: shown["controlPlane"]["breaker"] != "closed", timeout_s=WAIT_S,
            explain=fleet.fleet.logs,
        )  # fmt: skip
        await asyncio.sleep(faults.between(0.0, 3.0))
        assert uids(recorder, ["us-1"]) == before, "the region serves what it had"
        link.heal()
        await recorder.until(lambda: markers(recorder, "web", "us-1") == ["2"], timeout_s=WAIT_S, what="us")
        rows = await recorder.settled(timeout_s=WAIT_S)
        recorder.assert_nothing_wanted_was_deleted(rows)
        await eventually(status, until=lambda shown: shown["controlPlane"]["breaker"] == "closed", timeout_s=WAIT_S)


async def test_control_plane_away_for_an_hour(tmp_path: Path) -> None:
    """The last known state is kept and put back; reports pause, of each object only the newest comes afterwards. The hour
    is one of a fake clock; control plane and cluster are doubles, the agent's controller is real."""
    plane, cluster = FakePlane(), FakeCluster()
    async with Rig(tmp_path, plane=plane, cluster=cluster) as rig:
        for name in ("a", "b", "c"):
            plane.want(f"deployment/{name}", replicas=2)
        await rig.settle()
        known, reports = rig.running(), len(plane.requests)
        plane.error = ServiceUnavailable("away")
        plane.cut()
        del cluster.objects["deployment/a"]  # a person deletes it meanwhile
        cluster.tell("deployment/a")
        for minute in range(60):
            TALLY.checked += 1
            cluster.available["deployment/b"] = minute % 3
            cluster.tell("deployment/b")
            await rig.clock.advance(60)
            assert rig.running() == known and cluster.deleted == [], f"after {minute} minutes"
        assert len(plane.requests) == reports and plane.hellos[-1].cursor == ""
        attempts = plane.attempts
        await rig.clock.advance(60)
        assert plane.attempts - attempts < 60, "attempts are spread out"
        plane.desired.want("deployment/new")
        plane.desired.unwant("deployment/c", by_user=True)
        cluster.available["deployment/b"] = 1
        cluster.tell("deployment/b")
        plane.error = None
        await rig.clock.advance(120)
        assert rig.running() == rig.wanted() and cluster.deleted == ["deployment/c"]
        shown = plane.reports["deployment/b"]
        assert shown.available_replicas == 1
        assert plane.desired.syncs == 1, "it resumes at its cursor"
        told = [each.available_replicas for sent in plane.requests[reports:] for each in sent.reports if each.key == "deployment/b"]  # fmt: skip
        assert told == [1], "only the newest state is told"


async def test_cluster_lost_and_back(tmp_path: Path) -> None:
    """Other regions go on, the control plane marks what it does not hear of, and all comes back by itself."""
    with LocalFleet(tmp_path) as fleet:
        await asyncio.to_thread(fleet.start, REGIONS)
        await asyncio.to_thread(fleet.start_agents, [(name, "default") for name in REGIONS])
        async with FleetRecorder(fleet) as recorder:
            await asyncio.to_thread(fleet.api.put, app("web", {"eu": 1, "us": 1}, marker="0"))
            await recorder.settled()
            lost = (fleet.clusters["us-1"].process, fleet.agents["us-1", "default"])
            before = uids(recorder, ["us-1"])
            await asyncio.gather(*(asyncio.to_thread(process.kill) for process in lost))

            def region(name: str) -> dict[str, Any]:
                status = fleet.api.app_status("web")
                return next(dict(each) for each in status["regions"] if each["region"] == name)

            await eventually(
                lambda: asyncio.to_thread(region, "us"), until=lambda shown: shown["reason"] == "AgentLost",
                timeout_s=WAIT_S, explain=fleet.logs,
            )  # fmt: skip
            assert (await asyncio.to_thread(region, "eu"))["reason"] != "AgentLost"
            await asyncio.to_thread(fleet.api.put, app("other", {"eu": 1}, marker="1"))
            await recorder.until(lambda: markers(recorder, "other", "eu-1") == ["1"], timeout_s=WAIT_S, what="eu")
            await asyncio.gather(*(asyncio.to_thread(process.start) for process in lost))
            await eventually(
                lambda: asyncio.to_thread(region, "us"), until=lambda shown: shown["state"] == "Ready",
                timeout_s=WAIT_S, explain=fleet.logs,
            )  # fmt: skip
            rows = await recorder.settled(timeout_s=WAIT_S)
            recorder.assert_nothing_wanted_was_deleted(rows)
            assert uids(recorder, ["us-1"]) == before, "nothing was made again"


async def test_redis_lost(tmp_path: Path, own_postgres: PostgresServer, own_redis: RedisServer) -> None:
    """No acknowledged write and no event of a watch is lost, whatever becomes of the stream of events."""
    broken = (redis_away, entries_lost, stream_emptied, redis_away)
    recorder = await witness(tmp_path, 3, own_postgres, own_redis, broken, with_redis=True)
    assert recorder.writes > 200 and recorder.events > 0


async def test_database_failover(tmp_path: Path, own_postgres: PostgresServer, own_redis: RedisServer) -> None:
    """Optimistic locking holds across it: no lost update, no write that was acknowledged and is gone."""
    recorder = await witness(
        tmp_path, 3, own_postgres, own_redis, (failed_over, postgres_killed, failed_over), with_redis=True
    )
    assert recorder.writes > 150


class CrashingObserver:
    """An observer whose loop ends with an error while ``broken``."""

    def __init__(self, inner: Observer) -> None:
        self._inner = inner

    crashes = 0
    broken = True

    async def run(self, changed: Callable[[str], None]) -> None:
        if type(self).broken:
            type(self).crashes += 1
            TALLY.faults += 1
            raise RuntimeError("the loop crashes")
        await self._inner.run(changed)

    def report(self, key: str) -> Report | None:
        return self._inner.report(key)

    def delivered(self, report: Report) -> None:
        self._inner.delivered(report)

    def keys(self) -> Iterable[str]:
        return self._inner.keys()

    @property
    def refusal(self) -> str:
        return ""

    @property
    def synced(self) -> bool:
        return self._inner.synced


async def test_one_controller_loop_crashing_while_the_other_goes_on(tmp_path: Path) -> None:
    """Gateways are reconciled while the loops for deployments crash over and over; these catch up once they can. The
    agent and the API server are real."""
    CrashingObserver.crashes, CrashingObserver.broken = 0, True
    plane = FakePlane()
    async with world(observe=False) as cluster:

        def handlers(owner: Owner, private_key: bytes) -> dict[StreamKind, StreamHandlers]:
            made = cluster.handlers(owner)
            side = made[StreamKind.DEPLOYMENTS]
            made[StreamKind.DEPLOYMENTS] = StreamHandlers(side.applier, CrashingObserver(side.observer))
            return made

        agent = Agent(
            AgentDeps(
                config=KraneConfig(join=tmp_path / "join.json", dir=tmp_path / "agent", limits=Limits()),
                join=JoinFile(url="https://127.0.0.1:1", token="t", cluster="c1", region="eu", shard="default", ca="p"),
                plane=plane, handlers=handlers, elector=None, name="a", software="test",
                outage=NoOutage(), upgrade=NoUpgrade(),
                metrics=KraneMetrics(Metrics()), clock=RealClock(), random=lambda: 0.5,
            )
        )  # fmt: skip
        running = asyncio.create_task(agent.run(), name="agent")
        try:
            plane.want_item(sentinel(1))
            plane.want_item(deployment(2))
            gateways = partial(eventually, timeout_s=60)
            await gateways(lambda: "sentinel/snt_1" in plane.reports and CrashingObserver.crashes >= 2)
            plane.want_item(sentinel(3, replicas=3))
            await gateways(lambda: plane.reports["sentinel/snt_1"].available_replicas == 3)
            assert "deployment/dep_1" not in plane.reports and CrashingObserver.crashes >= 2
            assert agent.controllers[StreamKind.SENTINELS].state().breaker == "closed"
            CrashingObserver.broken = False
            await eventually(
                lambda: plane.reports["deployment/dep_1"].available_replicas == 2, retry_on=(KeyError,), timeout_s=90
            )
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


@pytest.mark.alone
async def test_retry_storm(tmp_path: Path) -> None:
    """The API server protects itself: clients that ignore 429 hold up neither controllers nor watches nor probes."""
    users = ("mallory", "alice", "system:kube-controller-manager")
    tokens = {user: token_of(tmp_path, user) for user in users}
    TALLY.faults += 1
    with server_process(tmp_path, "--port", "0") as server:
        await weather(server, tokens, 64)


def test_disk_full(full_disk: SmallDisk) -> None:
    """Writes are refused, reads go on, writes are accepted again with space, and nothing acknowledged is lost."""
    server = start_server_process(full_disk.path / "state", "--port", "0")
    acknowledged: dict[str, tuple[int, int]] = {}
    writers = [Writer(server, f"w{n}", acknowledged, spread=1000) for n in range(4)]
    for writer in writers:
        writer.start()

    def refused() -> int:
        return sum(writer.refused for writer in writers)

    eventually_blocking(refused, until=(100).__le__, timeout_s=300, what="writes that are refused")
    check_stored(server, dict(acknowledged))
    full_disk.resize(64)
    known = len(acknowledged)
    eventually_blocking(partial(len, acknowledged), until=known.__lt__, what="writes that are accepted again")
    assert server.process.poll() is None
    server.kill()
    for writer in writers:
        writer.join()
    server = start_server_process(full_disk.path / "state", "--port", "0")
    check_stored(server, acknowledged)
    server.kill()


def shown_by(server: ServerProcess) -> x509.Certificate:
    """The certificate that the server shows to a client that trusts its authority."""
    parts = urlsplit(server.url)
    context = ssl.create_default_context(cafile=server.ca_file)
    with (
        socket.create_connection((parts.hostname or "", parts.port or 443), timeout=10) as plain,
        context.wrap_socket(plain, server_hostname=parts.hostname) as connection,
    ):
        found = connection.getpeercert(binary_form=True)
    assert found is not None
    return x509.load_der_x509_certificate(found)


def test_certificates_expiring(tmp_path: Path, faulty_process: ProcessFaults) -> None:
    """A certificate is renewed and used before it expires, while no request fails. The server began 364 days ago by its
    clock, with certificates for a year; then its clock comes to today."""
    faulty_process.skew_s = -364 * DAY_S
    server = start_server_process(tmp_path / "state", "--port", "0", program=faulty_process.program)
    over, failed = threading.Event(), list[str]()

    def read() -> None:
        client = Client(server)
        while not over.wait(0.005):
            TALLY.checked += 1
            status, _ = client.call("GET", CONFIGMAPS)
            if status != 200:
                failed.append(str(status))
        client.close()

    readers = [threading.Thread(target=read) for _ in range(3)]
    try:
        old = shown_by(server)
        for reader in readers:
            reader.start()
        faulty_process.skew_s = 0.0
        os.utime(server.directory / "pki" / "manifest.json")  # in the place of the daily check

        def renewed() -> bool:
            return shown_by(server).not_valid_after_utc > old.not_valid_after_utc

        eventually_blocking(renewed, timeout_s=60, every_s=0.1, what="a new certificate")
        left_s = shown_by(server).not_valid_after_utc.timestamp() - RealClock().wall_s()
        assert left_s > 300 * DAY_S
        assert shown_by(server).issuer == old.issuer
        over.set()
        for reader in readers:
            reader.join()
        assert failed == []
    finally:
        over.set()
        server.kill()


async def test_everything_restarted_at_once(tmp_path: Path) -> None:
    """Database, control plane, agents and clusters are killed together and started together: every object is the one it
    was, nothing is deleted, and the next change arrives."""
    names = ("a", "b")
    async with broken_fleet(tmp_path, {"eu-1": "eu", "eu-2": "eu"}) as fleet:
        local, recorder = fleet.fleet, fleet.witness
        for name in names:
            await fleet.change(name, "eu")
        await recorder.settled()
        before = uids(recorder, local.clusters)
        processes = [local.control, *local.agents.values(), *(each.process for each in local.clusters.values())]
        TALLY.faults += 1
        await asyncio.gather(
            *(asyncio.to_thread(stop) for stop in (fleet.postgres.kill, *(each.kill for each in processes)))
        )
        await asyncio.to_thread(fleet.postgres.start)
        await asyncio.gather(*(asyncio.to_thread(process.start) for process in processes))
        await recorder.settled(timeout_s=WAIT_S)
        assert uids(recorder, local.clusters) == before
        assert recorder.deleted == []
        for name in names:
            await fleet.change(name, "eu")
        await fleet.check(names, timeout_s=WAIT_S)
