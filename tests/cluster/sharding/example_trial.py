"""The sample controller on an embedded cluster, with the ShardConfig of the documentation: Websites change all the time,
and the number of shards is recorded."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count, pairwise
from pathlib import Path
from random import Random
from typing import Any

import yaml

from shoal.app.demo import websites
from shoal.base.clock import RealClock
from shoal.base.tasks import cancel_all
from shoal.client import Client, Scope, builtin, connect, load
from shoal.crds.shard import ConfigSpec
from shoal.errors import NotFound
from shoal.kube.objects import Obj
from shoal.reconcile import Change, Informer
from shoal.sharding.manager.writers import CONFIGS, INSTANCES
from shoal.sharding.model import SLOTS, slot_of
from shoal.testing.exclusion import read_journals, violations
from shoal.testing.servers import server_process
from shoal.testing.sharding import SlotWatch
from shoal.testing.waiting import eventually

HERE = Path(__file__).parent
NAMESPACE = "default"
EXAMPLE = """
apiVersion: shard.io/v1
kind: ShardConfig
metadata:
  name: example-config
spec:
  minShards: 2
  maxShards: 10
  scaleUpThreshold: 0.8
  scaleDownThreshold: 0.3
  loadBalanceStrategy: "consistent-hash"
  healthCheckInterval: "30s"
  resources:
    requests:
      cpu: "200m"
      memory: "256Mi"
    limits:
      cpu: "500m"
      memory: "512Mi"
"""
NAME = "example-config"
INSTANCE = """
apiVersion: shard.io/v1
kind: ShardInstance
metadata:
  name: shard-001
spec:
  shardId: "shard-001"
  hashRange:
    start: 0
    end: 1073741823
status:
  phase: "Running"
  load: 0.65
  lastHeartbeat: "2024-01-15T10:30:00Z"
  assignedResources: ["resource-001", "resource-002"]
"""
HANDLERS = 4  # of a worker at once; each takes a second for a page: a worker publishes four a second
FLAGS = ("--port", "0", "--components", "apiserver,scheduler,controllers,nodes", "--nodes", "2", "--sharding")


def config(journals: Path, **spec: Any) -> Obj:
    """The example, with its target and the template of its workers."""
    made: Obj = yaml.safe_load(EXAMPLE)
    env = {"PYTHONPATH": f"{HERE.parents[1] / 'src'}:{HERE}", "PUBLISH_S": "1", "PUBLISH_JOURNALS": str(journals)}
    worker = {
        "name": "worker", "image": "shoal/shard-worker",
        "args": ["published_websites:app", "--concurrency", str(HANDLERS)],
        "env": [{"name": name, "value": value} for name, value in env.items()],
    }  # fmt: skip
    controlled = [{"kind": "ConfigMap"}, {"group": "apps", "kind": "Deployment"}]
    made["metadata"]["namespace"] = NAMESPACE
    made["spec"] |= {
        "targets": [{"group": websites.GROUP, "kind": websites.KIND, "controlled": controlled}],
        "template": {"spec": {"serviceAccountName": "shard-worker", "containers": [worker]}},
        **spec,
    }
    return made


class Sites:
    """Websites, and the pages written to them."""

    def __init__(self, client: Client) -> None:
        self._random = Random(1)
        self._numbers = count()
        self.resource = client.resource(websites.GROUP, websites.VERSION, "websites")
        self.pages: dict[str, str] = {}
        self._in_hand: set[str] = set()  # what a writer writes just now
        self.per_s = 1.0  # by each writer

    async def make(self) -> None:
        name = f"site-{next(self._numbers):04}"
        page, about = f"first page of {name}", {"name": name, "namespace": NAMESPACE}
        await self.resource.create({"metadata": about, "spec": {"replicas": 0, "page": page}})
        self.pages[name] = page

    @asynccontextmanager
    async def written(self, writers: int, each_per_s: float) -> AsyncIterator[None]:
        """Pages change meanwhile, and new sites come. ``per_s`` can be changed."""
        self.per_s, ending = each_per_s, asyncio.Event()
        tasks = [asyncio.create_task(self._write(ending), name=f"writer/{number}") for number in range(writers)]
        try:
            yield
        finally:
            ending.set()  # a write that is cut short may have happened or not
            await asyncio.gather(*tasks)

    async def _write(self, ending: asyncio.Event) -> None:
        for number in count():
            if ending.is_set():
                return
            if number % 25 == 0:
                await self.make()
            name = self._random.choice([name for name in self.pages if name not in self._in_hand])
            self._in_hand.add(name)
            self.pages[name] = f"page {number} of {name}"
            await self.resource.patch(name, {"spec": {"page": self.pages[name]}}, NAMESPACE)
            self._in_hand.remove(name)
            await asyncio.sleep(1 / self.per_s)


class Course:
    """The changes of the ShardConfig's status."""

    def __init__(self, client: Client) -> None:
        scope = Scope(namespace=NAMESPACE, field_selector=f"metadata.name={NAME}")
        self.informer = Informer(client.of(CONFIGS), clock=RealClock(), random=Random(1).random, scope=scope)
        self.informer.cache.add_handler(self._changed)
        self._began_s = time.monotonic()
        self.sizes: list[int] = []
        self.scalings: list[tuple[int, str]] = []  # desired shards, and why
        self.lines: list[str] = []

    def _changed(self, change: Change) -> None:
        status = (change.object.get("status") or {}) if change.new is not None else {}
        if "desiredShards" not in status:
            return
        desired = status["desiredShards"]
        if not self.sizes or self.sizes[-1] != desired:
            self.sizes.append(desired)
            self.scalings.append((desired, status.get("lastScale", "")))
            self._say(status)

    def _say(self, status: Obj) -> None:
        self.lines.append(
            f"{time.monotonic() - self._began_s:6.1f} s  {status['desiredShards']:2} wanted, "
            f"{status['healthyShards']:2} healthy, load {status['averageLoad']:.2f}, queued {status['queueDepth']:4}: "
            f"{status.get('lastScale') or status['decision']}"
        )


class Trial:
    def __init__(self, client: Client) -> None:
        self.client = client
        self.sites = Sites(client)
        self.course = Course(client)
        self.slots = SlotWatch(client, NAME)

    async def begin(self, config: Obj) -> None:
        await eventually(lambda: self._made(config))
        await self.settled(2, timeout_s=60.0)

    async def _made(self, config: Obj) -> bool:
        try:
            await self.client.of(CONFIGS).create(config)
        except NotFound:  # the kind comes with the manager
            return False
        return True

    async def decides(self, word: str, *, timeout_s: float) -> None:
        async def check() -> bool:
            status = (await self.client.of(CONFIGS).get(NAME, NAMESPACE))["status"]
            assert status["decision"].startswith(f"{word}: "), status["decision"]
            return True

        await eventually(check, timeout_s=timeout_s)

    async def settled(self, shards: int, *, timeout_s: float) -> None:
        """Wait until so many shards are wanted, run, and serve all slots."""

        async def check() -> bool:
            status = (await self.client.of(CONFIGS).get(NAME, NAMESPACE)).get("status") or {}
            assert status.get("desiredShards") == shards, (status, self.course.lines)
            phases = [
                (obj.get("status") or {}).get("phase") for obj in (await self.client.of(INSTANCES).list(Scope())).items
            ]
            assert phases.count("Running") == shards, phases
            served = self.slots.served()
            assert (len(served), sum(served.values())) == (shards, SLOTS), served
            return True

        await eventually(check, timeout_s=timeout_s)

    async def everything_is_made(self) -> bool:
        """Every Website has its ConfigMap with its page and its Deployment, and says so."""
        made: dict[str, dict[str, Obj]] = {}
        for plural, group in (("configmaps", ""), ("deployments", "apps")):
            found = (await self.client.of(builtin(plural, group)).list(Scope(namespace=NAMESPACE))).items
            made[plural] = {obj["metadata"]["name"]: obj for obj in found}
        sites = {obj["metadata"]["name"]: obj for obj in (await self.sites.resource.list(Scope())).items}
        assert sites.keys() == self.sites.pages.keys(), "websites were lost"
        for name, site in sites.items():
            page, deployment = made["configmaps"].get(f"{name}-page"), made["deployments"].get(name)
            assert page is not None, f"{name} has no page"
            assert page["data"]["index.html"] == self.sites.pages[name], name
            assert deployment is not None, f"{name} has no deployment"
            for child in (page, deployment):
                assert child["metadata"]["ownerReferences"][0]["uid"] == site["metadata"]["uid"]
                assert slot_of(child, NAME) == slot_of(site, NAME) is not None
            assert site["status"]["observedGeneration"] == site["metadata"]["generation"], name
        return True

    async def events(self) -> list[Obj]:
        scope = Scope(namespace=NAMESPACE, field_selector=f"involvedObject.name={NAME}")
        return (await self.client.of(builtin("events")).list(scope)).items

    async def explained(self) -> bool:
        """Every change of the number is in the status and in an event, with its reason."""
        events = [event["message"] for event in await self.events()]
        assert len(self.course.sizes) > 2
        for before, (after, why) in pairwise(self.course.scalings):
            direction = "up" if after > before[0] else "down"
            assert why.startswith(f"{direction} to {after}: "), why
            reason = why.partition(": ")[2]
            assert f"{before[0]} to {after} shards: {reason}" in events, (why, events)
        return True


@asynccontextmanager
async def trial(folder: Path, kubeconfig: str, **spec: Any) -> AsyncIterator[Trial]:
    """The cluster of a kubeconfig with the example on it. At the end all that was promised is looked at."""
    journals = folder / "journals"
    journals.mkdir()
    async with connect(load(Path(kubeconfig)), clock=RealClock(), field_manager="people") as client:
        made = Trial(client)
        running = [
            asyncio.create_task(made.course.informer.run(), name="course"),
            asyncio.create_task(made.slots.run(), name="slots"),
        ]
        try:
            await made.begin(config(journals, **spec))
            yield made
            await eventually(made.everything_is_made, timeout_s=60.0)
            await eventually(made.explained)
            print("events:", dict(Counter(event["reason"] for event in await made.events())))
        finally:
            print(*made.course.lines, sep="\n")
            print(f"longest without a worker: {made.slots.longest_s:.1f} s; {len(made.sites.pages)} websites")
            await cancel_all(*running)
    accepted = list(read_journals(journals.glob("*.jsonl")))
    print(f"{len(accepted)} accepted writes of {len({each.who for each in accepted})} workers")
    assert accepted
    assert violations(accepted) == []
    assert made.slots.longest_s <= 1.25 * ConfigSpec().lease_s + 2.0


def cluster(folder: Path) -> Any:
    return server_process(folder / "cluster", *FLAGS)
