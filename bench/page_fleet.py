"""A fleet of many clusters for the bench of the page: agents and edges that say what real ones say, without clusters.

Agents join, hold their two streams, report what they were told to run as ready, with the digest of their reports in
each heartbeat, and what their gateways counted every five seconds. Edges send the navigator pods, services and nodes.
All of them are in this process; control plane and navigator are processes of their own.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import orjson
import pyqwest
from connectrpc.errors import ConnectError
from navigator_bench import connect as connect_edges
from navigator_bench import sync, tokens
from protobuf import Oneof

from shoal.app.ports import any_free
from shoal.base.tasks import OwnedTasks
from shoal.sync.counters import Counts, as_json
from shoal.sync.digest import Digest
from shoal.sync.fingerprint import fingerprint
from shoal.testing.fleets import HOST, Api, LocalFleet, Process
from shoal.testing.managers import ManagerProcess
from shoal.testing.waiting import eventually
from shoal.wire.fleet.v1 import cluster_pb as pb
from shoal.wire.fleet.v1.cluster_connect import ClusterServiceClient

REGIONS, ENVIRONMENTS = 10, 10
COUNTED_S = 5.0  # between two reports of what a gateway counted, as real ones have it
_REPORT_S = 0.02  # changes that come so close together are one report
_JOINING = 10


@dataclass(frozen=True)
class Size:
    clusters: int
    apps: int
    pods: int  # of the navigator, in all clusters together

    def cluster(self, number: int) -> tuple[str, str]:
        """Its name and region. The navigator's edges have the same names."""
        return f"c{number}", f"r{number % REGIONS}"

    def app(self, number: int) -> tuple[str, str, str]:
        """Project, environment and name."""
        return f"p{number % ENVIRONMENTS}", "production", f"app-{number:03}"

    def regions_of(self, number: int) -> tuple[str, str]:
        return f"r{number % REGIONS}", f"r{(number + 3) % REGIONS}"


def document(kind: str, name: str, spec: Any, **within: str) -> dict[str, Any]:
    return {"apiVersion": "shoal.dev/v1", "kind": kind, "metadata": {"name": name, **within}, "spec": spec}


def documents(size: Size) -> list[dict[str, Any]]:
    """Everything that a user applies: places, apps, and a route to one app in four."""
    found = [document("Region", f"r{n}", {}) for n in range(REGIONS)]
    for n in range(size.clusters):
        name, region = size.cluster(n)
        found.append(document("Cluster", name, {"region": region, "shards": ["default"]}))
    for n in range(ENVIRONMENTS):
        found += [document("Project", f"p{n}", {}), document("Environment", "production", {}, project=f"p{n}")]
    for n in range(size.apps):
        project, environment, name = size.app(n)
        topology = [{"region": region, "replicas": 2} for region in size.regions_of(n)]
        spec = {"image": "shoal/echo:1", "port": 8080, "topology": topology}
        found.append(document("App", name, spec, project=project, environment=environment))
        if n // ENVIRONMENTS % 4 == 0:
            route = {"host": f"{name}.example.com", "app": name}
            found.append(document("Route", name, route, project=project, environment=environment))
    return found


class SimulatedAgent:
    """Everything that it is told to run is ready at once. ``counting``: users ask its gateways for something.
    ``instances``: by region and environment, the deployments that all agents run, as gateways know them."""

    def __init__(
        self, url: str, ca: bytes, token: str, cluster: str, region: str,
        instances: dict[tuple[str, str], set[str]],
    ) -> None:  # fmt: skip
        transport = pyqwest.HTTPTransport(tls_ca_cert=ca, http_version=pyqwest.HTTPVersion.HTTP2)
        self._client = ClusterServiceClient(url, http_client=pyqwest.Client(transport))
        self._headers = {"authorization": f"Bearer {token}"}
        self._identity = pb.Identity(cluster=cluster, region=region, shard="default", agent="sim")
        self._items: dict[str, dict[str, pb.Item]] = {"deployments": {}, "sentinels": {}}
        self._digests = {name: Digest() for name in self._items}
        self._changed = {name: asyncio.Event() for name in self._items}
        self._dirty: dict[str, set[str]] = {name: set() for name in self._items}
        self._sequence = dict.fromkeys(self._items, 0)
        self._began = time.time()
        self._instances = instances
        self._counted: dict[str, dict[str, Counts]] = {}
        self.beat_s = 10.0
        self.synced = 0
        self.over = False  # the library says that a cancelled stream was cut
        self.counting = False
        self.burst = 0
        """Further requests that every deployment gets with the next report."""
        self.counted_at: list[float] = []
        """When reports with a burst were sent."""

    @property
    def has_gateway(self) -> bool:
        found = self._items["sentinels"].values()
        return any(item.action is not None and item.action.field == "sentinel" for item in found)

    async def join(self) -> None:
        joined = await self._client.join(pb.JoinRequest(identity=self._identity, software="sim"), headers=self._headers)
        old = self._identity
        self._identity = pb.Identity(
            cluster=old.cluster, region=old.region, shard=old.shard, agent=old.agent, epoch=joined.epoch
        )
        self.beat_s = joined.heartbeat_seconds

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch("deployments", self._client.watch_deployments), name="deployments")
            group.create_task(self._watch("sentinels", self._client.watch_sentinels), name="sentinels")
            group.create_task(self._report("deployments", self._deployments), name="reports of deployments")
            group.create_task(self._report("sentinels", self._sentinels), name="reports of gateways")
            group.create_task(self._count(), name="counters")

    async def _watch(self, name: str, call: Any) -> None:
        try:
            async for event in call(self._say(name), headers=self._headers):
                said = event.event
                if said.field == "item":
                    self._take(name, said.value)
                elif said.field == "sync_end":
                    self.synced += 1
        except ConnectError:
            if not self.over:
                raise

    def _take(self, name: str, item: pb.Item) -> None:
        assert item.action is not None
        if item.action.field in ("delete", "release"):
            self._items[name].pop(item.key, None)
        else:
            self._items[name][item.key] = item
        if item.action.field == "deployment":
            state = item.action.value
            self._instances.setdefault((state.region, state.environment), set()).add(state.deployment)
        self._touch(name, item.key)

    async def _say(self, name: str) -> AsyncIterator[pb.WatchRequest]:
        hello = pb.Hello(identity=self._identity)
        yield pb.WatchRequest(request=cast(Any, Oneof("hello", hello)))
        if name == "sentinels":
            await asyncio.Event().wait()
        await asyncio.sleep(self.beat_s * random.random())
        while True:
            states = {
                kind: pb.ControllerState(
                    connection="watching", breaker="closed", objects=len(items), reported=self._digests[kind].buckets
                )
                for kind, items in self._items.items()
            }
            beat = pb.HeartbeatRequest(software="sim", **cast(Any, states))
            yield pb.WatchRequest(request=cast(Any, Oneof("heartbeat", beat)))
            await asyncio.sleep(self.beat_s)

    def _touch(self, name: str, key: str) -> None:
        self._dirty[name].add(key)
        self._changed[name].set()

    async def _report(self, name: str, send: Any) -> None:
        while True:
            await self._changed[name].wait()
            await asyncio.sleep(_REPORT_S)
            self._changed[name].clear()
            keys, self._dirty[name] = self._dirty[name], set()
            reports = [self._made(name, key) for key in keys]
            for report in reports:
                self._digests[name].put(report.key, str(fingerprint(report)))
            self._sequence[name] += 1
            with suppress(ConnectError):  # refused: the digest tells, as with a real agent
                await send(reports, self._sequence[name])

    async def _deployments(self, reports: list[Any], sequence: int) -> None:
        asked = pb.ReportDeploymentStatusRequest(identity=self._identity, sequence=sequence, reports=reports)
        await self._client.report_deployment_status(asked, headers=self._headers)

    async def _sentinels(self, reports: list[Any], sequence: int) -> None:
        asked = pb.ReportSentinelStatusRequest(identity=self._identity, sequence=sequence, reports=reports)
        await self._client.report_sentinel_status(asked, headers=self._headers)

    def _made(self, name: str, key: str) -> Any:
        item = self._items[name].get(key)
        made = pb.DeploymentReport if name == "deployments" else pb.SentinelReport
        if item is None:
            return made(key=key, gone=True)
        assert item.action is not None
        state, now_ms = item.action.value, round(time.time() * 1000)
        if item.action.field == "deployment":
            count = state.replicas if state.running else 0
            instances = [
                pb.Instance(
                    name=f"{state.name}-{n}", address=f"10.0.0.{n}:8080", node="n1", zone="a", ready=True,
                    status=pb.InstanceStatus.RUNNING, started_ms=round(self._began * 1000), uid=f"{key}-{n}",
                )
                for n in range(count)
            ]  # fmt: skip
            return pb.DeploymentReport(
                key=key, applied=item.version, desired_replicas=count, available_replicas=count, instances=instances,
                observed_ms=now_ms, live_name=state.name,
            )  # fmt: skip
        if item.action.field == "sentinel":
            entry = {"v": 2, "at": time.time(), "since": self._began, "deployments": self._told(key)}
            return pb.SentinelReport(
                key=key, applied=item.version, desired_replicas=state.replicas, available_replicas=state.replicas,
                health=pb.SentinelHealth.HEALTHY, running_image=state.image, address="10.0.0.1:8000",
                observed_ms=now_ms, stats=orjson.dumps({"gateways": {f"{key}-pod": entry}}),
            )  # fmt: skip
        return pb.SentinelReport(key=key, applied=item.version, observed_ms=now_ms)

    async def _count(self) -> None:
        """What each gateway of the cluster answered, for every deployment of its region and environment."""
        await asyncio.sleep(random.random() * COUNTED_S)
        while True:
            if self.counting:
                burst, self.burst = self.burst, 0
                for item in list(self._items["sentinels"].values()):
                    if item.action is not None and item.action.field == "sentinel":
                        self._add(item.key, item.action.value, burst)
                        self._touch("sentinels", item.key)
                        if burst:
                            self.counted_at.append(time.time())
            await asyncio.sleep(COUNTED_S)

    def _add(self, key: str, gateway: pb.SentinelState, burst: int) -> None:
        counters = self._counted.setdefault(key, {})
        for deployment in self._instances.get((gateway.region, gateway.environment), ()):
            old = counters.get(deployment, Counts((0,) * 5, {}, 0))
            more = random.randrange(80, 120) + burst
            codes = (0, old.codes[1] + more, 0, 0, old.codes[4])
            counters[deployment] = Counts(codes, {8: old.times.get(8, 0) + more}, old.latency_ms + 9 * more)

    def _told(self, key: str) -> dict[str, Any]:
        return {id_: as_json(counts) for id_, counts in self._counted.get(key, {}).items()}


@dataclass
class PageFleet:
    """A running fleet."""

    size: Size
    api: Api
    control: Process
    navigator: ManagerProcess
    page_url: str
    agents: dict[str, SimulatedAgent] = field(default_factory=dict)
    instances: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    edges: list[Any] = field(default_factory=list)

    def scale(self, number: int, region: str, replicas: int) -> None:
        project, environment, name = self.size.app(number)
        path = f"/projects/{project}/environments/{environment}/apps/{name}/scale"
        self.api.request("POST", path, {"region": region, "replicas": replicas})

    def code(self) -> str:
        """Logs one browser in."""
        return str(self.api.request("POST", "/login-codes").body["code"])

    def count(self, on: bool) -> None:
        for agent in self.agents.values():
            agent.counting = on

    def leave(self) -> None:
        for agent in self.agents.values():
            agent.over = True

    async def all_ready(self) -> None:
        """Every app is ready in every region."""

        async def missing() -> int:
            found = await asyncio.to_thread(self.api.get, "/status")
            return sum(each["state"] != "Ready" for each in found["apps"]) + len(found["apps"]) - self.size.apps

        await eventually(missing, until=(0).__eq__, timeout_s=120, every_s=1.0)


@asynccontextmanager
async def page_fleet(folder: Path, size: Size) -> AsyncIterator[PageFleet]:
    """A control plane, a navigator, and everything that speaks with them."""
    local, page_port = LocalFleet(folder), any_free(HOST)
    control = Process(
        "control", "control", "start", "--dir", str(folder / "control"), "--port", str(local.control_port),
        "--page-port", str(page_port), "--log-level", "warning", log=folder / "log",
    )  # fmt: skip
    (folder / "navigator").mkdir(parents=True)
    navigator = ManagerProcess(folder / "navigator", "--port", "0", "--control-dir", str(folder / "control"))
    async with AsyncExitStack() as closing:
        await asyncio.to_thread(control.start)
        closing.callback(control.kill)
        await asyncio.to_thread(navigator.start)
        closing.callback(navigator.kill)
        api = local.connect(local.control_port)
        closing.callback(api.close)
        fleet = PageFleet(size, api, control, navigator, f"http://{HOST}:{page_port}")
        await asyncio.to_thread(_apply, api, documents(size))
        running = OwnedTasks()
        closing.push_async_callback(running.close)
        closing.callback(fleet.leave)
        await _start_agents(fleet, local, running)
        texts = await tokens(folder / "navigator", size.clusters)
        fleet.edges = await connect_edges(navigator, texts, closing)
        await sync(fleet.edges, size.pods // size.clusters)
        await fleet.all_ready()
        yield fleet


def _apply(api: Api, found: Sequence[dict[str, Any]]) -> None:
    for start in range(0, len(found), 50):
        api.apply(*found[start : start + 50])


async def _start_agents(fleet: PageFleet, local: LocalFleet, running: OwnedTasks) -> None:
    turns = asyncio.Semaphore(_JOINING)
    ca = (local.folder / "control" / "pki" / "ca.crt").read_bytes()

    async def start(number: int) -> None:
        name, region = fleet.size.cluster(number)
        body = {"kind": "agent", "name": f"{name}-default", "cluster": name, "region": region, "shard": "default"}
        async with turns:
            made = await asyncio.to_thread(fleet.api.request, "POST", "/tokens", body)
            join = made.body["join"]
            agent = SimulatedAgent(join["url"], ca, join["token"], name, region, fleet.instances)
            await agent.join()
            fleet.agents[name] = agent
            running.start(agent.run(), name=f"agent/{name}")
            await eventually(lambda: agent.synced >= 2, timeout_s=60)

    starting: list[Awaitable[None]] = [start(n) for n in range(fleet.size.clusters)]
    await asyncio.gather(*starting)
