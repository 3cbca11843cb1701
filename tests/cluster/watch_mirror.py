"""Clients that rebuild what they watch from events alone, and writers that keep them busy.

A ``Mirror`` checks every event against what it has seen: no object appears twice, none changes or goes that was not
there, revisions only rise. It lets go of its stream now and then and resumes from the last revision it knows; at the
end what it holds must be what a list with the same selector holds.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

import orjson

from shoal.apiserver.context import ServerConfig
from shoal.apiserver.inprocess import InProcessTransport
from shoal.apiserver.registry import Registry
from shoal.apiserver.server import ApiServer
from shoal.apiserver.user import User
from shoal.base.clock import RealClock
from shoal.base.ids import Ids, token_digest
from shoal.store import RingLimits, open_store
from shoal.testing.servers import ADMIN_TOKEN, PATCHES, LocalServer
from shoal.testing.waiting import eventually

TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"
PARTIAL = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
NAMESPACES = ("red", "green", "blue")
NODES = ("n1", "n2", "n3")
SELECTIONS = (
    "/api/v1/pods", "/api/v1/namespaces/red/pods", "/api/v1/pods?labelSelector=color%3Dhot",
    "/api/v1/pods?labelSelector=color%20in%20(hot,cold),!old", "/api/v1/namespaces/green/pods?labelSelector=color!%3Dhot",
    "/api/v1/pods?fieldSelector=spec.nodeName%3Dn1", "/api/v1/pods?fieldSelector=spec.nodeName%3Dn2,status.phase%3DRunning",
    "/api/v1/pods?fieldSelector=status.phase!%3DRunning", "/api/v1/namespaces/blue/pods?fieldSelector=metadata.name%3Dp3",
    "/api/v1/pods?fieldSelector=metadata.name%3Dp1", "/api/v1/pods?labelSelector=color%3Dcold&fieldSelector=metadata.namespace%3Dred",
    "/api/v1/pods?labelSelector=nobody%3Dhere",
)  # fmt: skip


@asynccontextmanager
async def server_with(
    limits: RingLimits | None = None, config: ServerConfig | None = None
) -> AsyncIterator[LocalServer]:
    """``local_server`` with a given size of the history."""
    registry = Registry()
    store = open_store("memory://", attrs_of=registry.attrs_of, limits=limits)
    await store.start()
    server = ApiServer(
        store, registry, clock=RealClock(), ids=Ids(), config=config or ServerConfig(ca_certificate="test CA"),
        tokens={token_digest(ADMIN_TOKEN): User("admin", ("system:masters", "system:authenticated"))},
    )  # fmt: skip
    try:
        await server.start()
        yield LocalServer(server, store)
    finally:
        await server.stop()
        await store.stop()


@dataclass
class Mirror:
    """One client of ``target``. ``restless`` is how many events it takes before it hangs up (0: never)."""

    server: LocalServer
    target: str
    accept: str = ""
    restless: int = 0
    slow_s: float = 0.0
    away_s: float = 0.0  # how long it stays away after hanging up
    seen: dict[tuple[str, str], str] = field(default_factory=dict)  # (namespace, name) -> resourceVersion
    revision: int = 0
    events: int = 0
    bookmarks: int = 0
    relists: int = 0
    resumes: int = 0

    @property
    def _more(self) -> str:
        return "&" if "?" in self.target else "?"

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            await self._stream()
            await asyncio.sleep(self.away_s)

    async def _stream(self) -> None:
        start = f"&resourceVersion={self.revision}" if self.revision else ""
        if not self.revision:
            self.seen.clear()
            self.relists += 1
        target = f"{self.target}{self._more}watch=1&allowWatchBookmarks=true{start}"
        transport: InProcessTransport = self.server.transport
        reply = await transport.stream("GET", target, headers={"accept": self.accept} if self.accept else {})
        initial, taken, rest = not self.revision, 0, b""
        try:
            async for chunk in reply.chunks():
                if self.slow_s:
                    await asyncio.sleep(self.slow_s)
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    event = orjson.loads(line)
                    if event["type"] == "ERROR":
                        assert event["object"]["code"] == 410 and event["object"]["reason"] == "Expired", event
                        self.revision = 0
                        return
                    initial = self._take(event, initial)
                    taken += 1
                if self.restless and taken >= self.restless and not initial:
                    self.resumes += 1
                    return
            assert not rest, "the stream ended in the middle of an event"
        finally:
            await reply.close()

    def _take(self, event: Any, initial: bool) -> bool:
        """Apply one event; whether the objects of the start are still coming."""
        metadata = self._metadata(event["object"])
        revision = int(metadata["resourceVersion"])
        if event["type"] == "BOOKMARK":
            self.bookmarks += 1
            assert revision >= self.revision, (self.target, revision, self.revision)
            self.revision = revision
            return initial and "k8s.io/initial-events-end" not in (metadata.get("annotations") or {})
        key = (metadata["namespace"], metadata["name"])
        if initial:
            assert event["type"] == "ADDED" and key not in self.seen
            self.seen[key] = metadata["resourceVersion"]
            return True
        self.events += 1
        assert revision > self.revision, f"{self.target}: {event['type']} {key} at {revision} after {self.revision}"
        assert (event["type"] == "ADDED") == (key not in self.seen), (
            f"{self.target}: {event['type']} of {key} at {revision}"
        )
        self.revision = revision
        if event["type"] == "DELETED":
            del self.seen[key]
        else:
            self.seen[key] = metadata["resourceVersion"]
        return False

    def _metadata(self, obj: Any) -> Any:
        if self.accept == TABLE:
            assert obj["kind"] == "Table"
            (row,) = obj["rows"]
            return row["object"]["metadata"]
        if self.accept == PARTIAL:
            assert obj["kind"] == "PartialObjectMetadata" and "spec" not in obj
        return obj["metadata"]

    async def check(self) -> None:
        """Assert that the rebuilt objects are those of a list."""
        listed = await self.server.get(self.target)
        there = {
            (o["metadata"]["namespace"], o["metadata"]["name"]): o["metadata"]["resourceVersion"]
            for o in listed["items"]
        }
        assert self.seen == there, f"{self.target}: {self.seen.items() ^ there.items()}"

    async def caught_up(self) -> bool:
        listed = await self.server.get(self.target)
        there = {
            (o["metadata"]["namespace"], o["metadata"]["name"]): o["metadata"]["resourceVersion"]
            for o in listed["items"]
        }
        return self.seen == there


async def write(server: LocalServer, random: Random, writes: int, padding: int = 0) -> None:
    """Create, change and delete pods at random; several of these race for the same names."""
    for _ in range(writes):
        where = f"/api/v1/namespaces/{random.choice(NAMESPACES)}/pods"
        name = f"p{random.randrange(8)}"
        match random.randrange(6):
            case 0 | 1:
                metadata = {
                    "name": name,
                    "labels": {"color": random.choice(("hot", "cold"))},
                    "annotations": {"a": "x" * padding},
                }
                spec = {"nodeName": random.choice(NODES), "containers": [{"name": "c", "image": "i"}]}
                await server.call("POST", where, {"metadata": metadata, "spec": spec})
            case 2:
                change = {
                    "metadata": {
                        "labels": {"color": random.choice(("hot", "cold", None)), "old": random.choice(("1", None))}
                    }
                }
                await server.call("PATCH", f"{where}/{name}", change, {"content-type": PATCHES["merge"]})
            case 3 | 4:
                status = {"status": {"phase": random.choice(("Pending", "Running"))}}
                await server.call("PATCH", f"{where}/{name}/status", status, {"content-type": PATCHES["merge"]})
            case 5:
                await server.call("DELETE", f"{where}/{name}?gracePeriodSeconds=0")
        await asyncio.sleep(0)


async def prepare(server: LocalServer) -> None:
    for name in NAMESPACES:
        await server.post("/api/v1/namespaces", {"metadata": {"name": name}})
    await server.server.housekeeping.idle.wait()


async def settle(mirrors: list[Mirror], tasks: list[asyncio.Task[None]]) -> None:
    """Wait until every mirror equals the server; raise the error of a mirror that has failed."""
    for mirror in mirrors:

        async def settled(mirror: Mirror = mirror) -> bool:
            return any(task.done() for task in tasks) or await mirror.caught_up()

        try:
            await eventually(settled)
        except AssertionError:
            await mirror.check()  # says what differs
            raise
        for task in tasks:
            if task.done():
                task.result()


async def storm(
    server: LocalServer, mirrors: list[Mirror], *, writers: int, writes: int, seed: int, padding: int = 0
) -> None:
    """Run writers and mirrors at the same time, then compare."""
    tasks = [asyncio.create_task(mirror.run()) for mirror in mirrors]
    try:
        await asyncio.gather(*(write(server, Random(f"{seed}/{n}"), writes, padding) for n in range(writers)))
        await settle(mirrors, tasks)
    finally:
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException) and not isinstance(result, asyncio.CancelledError):
            raise result
    for mirror in mirrors:
        await mirror.check()
