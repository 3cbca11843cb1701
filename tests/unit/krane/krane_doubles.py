"""Doubles for the agent's two sides: a control plane in memory that keeps the protocol, and a cluster of dictionaries."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from protobuf import Oneof

from shoal.base.clock import FakeClock
from shoal.base.metrics import Metrics
from shoal.base.tasks import cancel_all
from shoal.errors import ApiError, NotFound, ServiceUnavailable
from shoal.krane.cache import Cache, CacheOwner, Offload
from shoal.krane.config import Limits
from shoal.krane.controller import Controller, ControllerDeps, DeploymentController
from shoal.krane.metrics import KraneMetrics
from shoal.krane.model import Live, StreamHandlers
from shoal.krane.owner import Newer
from shoal.krane.protocol import is_removal, version_of
from shoal.krane.session import AgentSession
from shoal.sync.digest import Digest, bucket_of
from shoal.sync.keys import StreamKind, stream_of
from shoal.sync.versions import BadCursor, Cursor, Version, decode_cursor, encode_cursor
from shoal.wire.fleet.v1 import cluster_pb as pb

KEYS = {"main": b"signing key"}


def event(name: str, value: Any) -> pb.WatchEvent:
    said: Any = Oneof(name, value)
    return pb.WatchEvent(event=said)


class Desired:
    """What a control plane wants, and how it says so; pure."""

    def __init__(self) -> None:
        self.items: dict[str, pb.Item] = {}
        self.number = 0
        self.incarnation = 1
        self.syncs = 0

    def want(
        self, key: str, *, replicas: int = 1, by_user: bool = False, drift: pb.Drift = pb.Drift.CORRECT
    ) -> pb.Item:
        state: Oneof[Any, Any]
        if key.startswith("deployment/"):
            state = Oneof(
                "deployment", pb.DeploymentState(namespace="ns", name=key[11:], replicas=replicas, drift=drift)
            )
        else:
            state = Oneof("sentinel", pb.SentinelState(name=key, replicas=replicas))
        return self.put(pb.Item(key=key, action=state, by_user=by_user))

    def unwant(self, key: str, *, by_user: bool = False, release: bool = False) -> pb.Item:
        where = pb.Release(namespace="ns", name="n") if release else pb.Delete(namespace="ns", name="n")
        action: Any = Oneof("release" if release else "delete", where)
        return self.put(pb.Item(key=key, action=action, by_user=by_user))

    def lose(self, key: str) -> None:
        """The row is gone without a trace."""
        del self.items[key]
        self.number += 1

    def put(self, item: pb.Item) -> pb.Item:
        self.number += 1
        item.version = pb.Version(database="main", incarnation=self.incarnation, number=self.number)
        item.committed_ms = 1_700_000_000_000 + self.number
        self.items[item.key] = item
        return item

    def restore(self, items: dict[str, pb.Item], number: int) -> None:
        """A backup from before: a new history begins."""
        self.incarnation += 1
        self.number = number
        self.items = {}
        for key, item in items.items():
            copy = pb.Item.from_binary(item.to_binary())
            assert copy.version is not None
            copy.version.incarnation = self.incarnation
            self.items[key] = copy

    @property
    def cursor(self) -> str:
        return encode_cursor(Cursor({"main": (self.incarnation, self.number)}), KEYS)

    def wanted(self, stream: StreamKind = StreamKind.DEPLOYMENTS) -> dict[str, pb.Item]:
        return {key: item for key, item in self._of(stream).items() if not is_removal(item)}

    def hello(self, cursor: str, stream: StreamKind = StreamKind.DEPLOYMENTS) -> list[pb.WatchEvent]:
        position = decode_cursor(cursor, KEYS).positions.get("main")
        if position is None or position[0] != self.incarnation:
            observe = position is not None
            welcome = event("welcome", pb.Welcome(resumed=False, reason="no cursor", observe_only=observe))
            return [welcome, *self.sync((), stream)]
        news = [item for item in self._of(stream).values() if version_of(item).number > position[1]]
        return [event("welcome", pb.Welcome(resumed=True)), *(event("item", item) for item in news), self.progress()]

    def sync(self, buckets: Iterable[int], stream: StreamKind = StreamKind.DEPLOYMENTS) -> list[pb.WatchEvent]:
        self.syncs += 1
        chosen = frozenset(buckets)
        items = [item for key, item in self._of(stream).items() if not chosen or bucket_of(key) in chosen]
        keys = [item.key for item in items if not is_removal(item)]
        now = pb.Version(database="main", incarnation=self.incarnation, number=self.number)
        begin = pb.SyncBegin(
            sync=self.syncs, cursor=self.cursor, buckets=sorted(chosen), count=len(items), versions=[now]
        )
        return [
            event("sync_begin", begin),
            *(event("item", item) for item in items),
            event("sync_keys", pb.SyncKeys(sync=self.syncs, keys=keys)),
            event("sync_end", pb.SyncEnd(sync=self.syncs, cursor=self.cursor)),
        ]

    def progress(self) -> pb.WatchEvent:
        return event("progress", pb.Progress(cursor=self.cursor))

    def digest(self, stream: StreamKind = StreamKind.DEPLOYMENTS) -> pb.WatchEvent:
        digest = Digest()
        for key, item in self.wanted(stream).items():
            digest.put(key, str(version_of(item)))
        return event("digest", pb.Digest(cursor=self.cursor, buckets=digest.buckets))

    def _of(self, stream: StreamKind) -> dict[str, pb.Item]:
        return {key: item for key, item in self.items.items() if stream_of(key) is stream}


class FakePlane:
    """Implements ``ControlPlane``. ``error`` fails every call and every stream; ``slow`` holds reports of keys."""

    def __init__(self, desired: Desired | None = None) -> None:
        self.desired = desired or Desired()
        self.error: ApiError | None = None
        self.hellos: list[pb.Hello] = []
        self.received: list[str] = []
        self.asked: list[str] = []
        self.buckets: list[list[int]] = []
        self.requests: list[pb.ReportDeploymentStatusRequest | pb.ReportSentinelStatusRequest] = []
        self.reports: dict[str, pb.DeploymentReport | pb.SentinelReport] = {}
        self.beats: list[pb.HeartbeatRequest] = []
        self.answer = pb.HeartbeatResponse()
        self.joins: list[pb.JoinRequest] = []
        self.fleet = "flt_1"
        self.epoch = 0
        self.attempts = 0  # calls and streams, also those that failed
        self.slow: dict[str, asyncio.Event] = {}
        self.silent: set[str] = set()  # keys about whose change the stream says nothing
        self._streams: list[tuple[StreamKind, asyncio.Queue[pb.WatchEvent | ApiError]]] = []

    # what the test does

    def want(self, key: str, **how: Any) -> pb.Item:
        return self._say(self.desired.want(key, **how))

    def unwant(self, key: str, **how: Any) -> pb.Item:
        return self._say(self.desired.unwant(key, **how))

    def want_item(self, item: pb.Item) -> pb.Item:
        """Want an item that the test made; it gets the next version."""
        return self._say(self.desired.put(item))

    def _say(self, item: pb.Item) -> pb.Item:
        if item.key not in self.silent:
            self.push(event("item", item), stream_of(item.key))
            self.push(self.desired.progress(), stream_of(item.key))
        return item

    def push(self, message: pb.WatchEvent | ApiError, stream: StreamKind = StreamKind.DEPLOYMENTS) -> None:
        for name, queue in self._streams:
            if name is stream:
                queue.put_nowait(message)

    def tell_digest(self, stream: StreamKind = StreamKind.DEPLOYMENTS) -> None:
        self.push(self.desired.digest(stream), stream)

    def cut(self, error: ApiError | None = None) -> None:
        for _, queue in self._streams:
            queue.put_nowait(error or ServiceUnavailable("the connection was cut"))

    @property
    def streams(self) -> int:
        return len(self._streams)

    # what the agent calls

    async def join(self, request: pb.JoinRequest) -> pb.JoinResponse:
        await self._check()
        self.joins.append(request)
        self.epoch += 1
        return pb.JoinResponse(epoch=self.epoch, control_plane=self.fleet, heartbeat_seconds=10.0)

    async def heartbeat(self, request: pb.HeartbeatRequest) -> pb.HeartbeatResponse:
        await self._check()
        self.beats.append(request)
        return self.answer

    async def get_desired(self, stream: StreamKind, request: pb.GetDesiredRequest) -> pb.Item:
        await self._check()
        self.asked.append(request.key)
        item = self.desired.items.get(request.key)
        if item is None:
            raise NotFound(f"{request.key} is not known")
        return item

    async def report(
        self, stream: StreamKind, request: pb.ReportDeploymentStatusRequest | pb.ReportSentinelStatusRequest
    ) -> pb.ReportResponse:
        for report in request.reports:
            if report.key in self.slow:
                await self.slow[report.key].wait()
        await self._check()
        self.requests.append(request)
        for report in request.reports:
            self.reports[report.key] = report
        return pb.ReportResponse(unknown=[one.key for one in request.reports if one.key not in self.desired.items])

    async def watch(
        self, stream: StreamKind, requests: AsyncIterator[pb.WatchRequest]
    ) -> AsyncGenerator[pb.WatchEvent, None]:
        await self._check()
        first = await anext(requests)
        assert first.request is not None and first.request.field == "hello"
        hello = first.request.value
        self.hellos.append(hello)
        queue: asyncio.Queue[pb.WatchEvent | ApiError] = asyncio.Queue()
        reader = asyncio.create_task(self._read(stream, requests, queue))
        self._streams.append((stream, queue))
        try:
            for message in self.desired.hello(hello.cursor, stream):
                yield message
            while True:
                said = await queue.get()
                if isinstance(said, ApiError):
                    raise said
                yield said
        except BadCursor as error:
            raise type(error)("its signature is wrong") from None
        finally:
            self._streams = [(name, one) for name, one in self._streams if one is not queue]
            await cancel_all(reader)

    async def _read(
        self,
        stream: StreamKind,
        requests: AsyncIterator[pb.WatchRequest],
        queue: asyncio.Queue[pb.WatchEvent | ApiError],
    ) -> None:
        async for request in requests:
            assert request.request is not None
            if request.request.field == "received":
                self.received.append(request.request.value.cursor)
            elif request.request.field == "buckets":
                self.buckets.append(list(request.request.value.buckets))
                for message in self.desired.sync(request.request.value.buckets, stream):
                    queue.put_nowait(message)

    async def _check(self) -> None:
        self.attempts += 1
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error


class FakeCluster:
    """Implements ``Applier`` and ``Observer``. A workload is there as soon as it is applied, with all its replicas."""

    def __init__(self) -> None:
        self.objects: dict[str, pb.Item] = {}
        self.failing: dict[str, Exception] = {}
        self.blocked: dict[str, asyncio.Event] = {}
        self.applied: list[tuple[str, int]] = []
        self.deleted: list[str] = []
        self.released: list[str] = []
        self.delivered_keys: list[str] = []
        self.drift: dict[str, list[str]] = {}
        self.available: dict[str, int] = {}
        self.synced = True
        self.refusal = ""
        self.busy: set[str] = set()
        self.most_busy = 0
        self.changed: Callable[[str], None] | None = None

    async def apply(self, item: pb.Item) -> None:
        await self._work(item.key)
        live = self.objects.get(item.key)
        if live is not None and version_of(live).is_after(version_of(item)):
            raise Newer(f"{item.key} is at {version_of(live)}")
        self.objects[item.key] = item
        self.drift.pop(item.key, None)
        self.applied.append((item.key, version_of(item).number))
        self.tell(item.key)

    async def delete(self, key: str, namespace: str, name: str) -> None:
        await self._work(key)
        self.deleted.append(key)
        self.objects.pop(key, None)
        self.tell(key)

    async def release(self, key: str, namespace: str, name: str) -> None:
        await self._work(key)
        self.released.append(key)
        self.objects.pop(key, None)
        self.tell(key)

    async def live(self) -> dict[str, Live]:
        await self._work("live")
        return {key: Live("ns", key, version_of(item)) for key, item in self.objects.items()}

    async def run(self, changed: Callable[[str], None]) -> None:
        self.changed = changed
        for key in list(self.objects):
            changed(key)
        await asyncio.Event().wait()

    def delivered(self, report: pb.DeploymentReport | pb.SentinelReport) -> None:
        self.delivered_keys.append(report.key)

    def report(self, key: str) -> pb.DeploymentReport | pb.SentinelReport | None:
        item = self.objects.get(key)
        if item is None or item.action is None:
            return None
        state: Any = item.action.value
        available = self.available.get(key, state.replicas)
        if isinstance(state, pb.DeploymentState):
            drift = self.drift.get(key, [])
            return pb.DeploymentReport(
                desired_replicas=state.replicas, available_replicas=available, live_name=state.name, drift=drift
            )
        return pb.SentinelReport(desired_replicas=state.replicas, available_replicas=available)

    def keys(self) -> Iterable[str]:
        return list(self.objects)

    def tell(self, key: str) -> None:
        if self.changed is not None:
            self.changed(key)

    async def _work(self, key: str) -> None:
        assert key == "live" or key not in self.busy, f"two tasks work on {key}"
        self.busy.add(key)
        self.most_busy = max(self.most_busy, len(self.busy))
        try:
            await asyncio.sleep(0)
            if key in self.blocked:
                await self.blocked[key].wait()
            if key in self.failing:
                raise self.failing[key]
        finally:
            self.busy.discard(key)


async def inline(job: Callable[[], None]) -> None:
    """In place of a thread, so that the fake clock can tell when everybody waits."""
    await asyncio.sleep(0)
    job()


OWNER = CacheOwner(fleet="flt_1", cluster="c1", shard="default", stream="deployments", public_key="00")


class Rig:
    """One controller between its doubles, with a clock that stands still."""

    def __init__(
        self,
        path: Path,
        *,
        kind: type[Controller] = DeploymentController,
        plane: FakePlane | None = None,
        cluster: FakeCluster | None = None,
        clock: FakeClock | None = None,
        limits: Limits | None = None,
        joined: bool = True,
        owner: CacheOwner = OWNER,
        offload: Offload = inline,
    ) -> None:
        self.path = path
        self.clock = clock or FakeClock()
        self.plane = plane or FakePlane()
        self.cluster = cluster or FakeCluster()
        self.session = AgentSession(cluster="c1", region="eu", shard="default", agent="a1")
        if joined:
            self.session.begin(1)
        self.metrics = KraneMetrics(Metrics())
        self.cache = Cache.open(path / f"{kind.stream}.cache", owner, offload=offload)
        self.controller = kind(
            ControllerDeps(
                plane=self.plane,
                session=self.session,
                handlers=StreamHandlers(self.cluster, self.cluster),
                cache=self.cache,
                metrics=self.metrics,
                clock=self.clock,
                random=lambda: 0.5,
                # a fake clock does not go on by itself, so nothing is gathered unless a test is about it
                limits=limits or Limits(report_gather_s=0),
            )
        )

    async def __aenter__(self) -> Rig:
        await self.controller.start()
        await self.clock.settle()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.controller.stop()

    async def settle(self) -> None:
        for _ in range(5):
            await self.clock.settle()

    def running(self) -> dict[str, int]:
        """Keys and versions in the cluster."""
        return {key: version_of(item).number for key, item in self.cluster.objects.items()}

    def wanted(self) -> dict[str, int]:
        stream = self.controller.stream
        return {key: version_of(item).number for key, item in self.plane.desired.wanted(stream).items()}


def version(number: int, incarnation: int = 1) -> Version:
    return Version("main", incarnation, number)


async def ended(task: asyncio.Task[Any]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
