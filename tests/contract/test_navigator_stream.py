"""The stream to the manager, over a real connection: one supervisor, one writer, and the effect of each setting."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from shoal.base.clock import RealClock
from shoal.base.metrics import Metrics
from shoal.base.tasks import cancel_all
from shoal.navigator.edge.config import ConnectionConfig, SyncConfig, read_join_file
from shoal.navigator.edge.metrics import EdgeMetrics
from shoal.navigator.edge.protocol import Claim, EdgeMachine
from shoal.navigator.edge.stream import EdgeStream, GaveUp, StreamDeps
from shoal.testing.navigator import ClaimRejection, ManagerModel, RecordingManager, recording_manager
from shoal.testing.proxy import TcpProxy
from shoal.wire.navigator.v1 import navigator_pb as pb

KINDS = ("pods", "services")
QUICK = {"retry_base_s": 0.02, "retry_cap_s": 0.05, "standby_s": 0.05}


FOLDER = Path()


@pytest.fixture(scope="module", autouse=True)
def keys(tmp_path_factory: pytest.TempPathFactory) -> None:
    """One set of keys for all managers."""
    global FOLDER
    FOLDER = tmp_path_factory.mktemp("manager")


def a_manager(model: ManagerModel | None = None) -> AbstractAsyncContextManager[RecordingManager]:
    return recording_manager(model, folder=FOLDER)


class Hurried(RealClock):
    """Remembers how long waits should be, and shortens them."""

    def __init__(self) -> None:
        self.waits: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        await super().sleep(min(seconds, 0.05))


class NoRequests:
    """Answers every request with its id, in two parts."""

    def __init__(self) -> None:
        self.stopped = 0
        self.tasks: list[asyncio.Task[None]] = []

    def start(self, request: pb.Request, reply: Callable[[pb.Reply], Awaitable[None]]) -> None:
        async def answer() -> None:
            await reply(pb.Reply(id=request.id, part=request.id.encode() * 100_000))
            await reply(pb.Reply(id=request.id, last=True))

        self.tasks.append(asyncio.create_task(answer(), name="answer"))

    def cancel(self, id_: str) -> None: ...

    async def stop(self) -> None:
        self.stopped += 1
        await cancel_all(*self.tasks)


class Line:
    """A machine and its stream."""

    def __init__(self, manager: RecordingManager, join: Any = None, clock: Any = None, **settings: Any) -> None:
        config = ConnectionConfig(**(QUICK | settings))
        self.machine = EdgeMachine(KINDS, sync=SyncConfig(), connection=config)
        self.requests = NoRequests()
        self.metrics = EdgeMetrics(Metrics())
        path = join or manager.join_file()
        self.stream = EdgeStream(
            StreamDeps(
                machine=self.machine, join=lambda: read_join_file(path),
                claim=lambda: Claim(edge="e1", cluster="east", metadata={}, software="test"), requests=self.requests,
                take_options=lambda revision, values: None,
                config=config, metrics=self.metrics, clock=clock or RealClock(), random=lambda: 0.5,
            )
        )  # fmt: skip
        self.task = asyncio.create_task(self.stream.run(), name="stream")

    def put(self, key: str, text: str = "") -> None:
        data = f'{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"{key}"}},"spec":"{text}"}}'
        self.machine.put("pods", key, data.encode())
        self.stream.wake()

    def ready(self) -> None:
        for kind in KINDS:
            self.machine.ready(kind)
            self.machine.status(kind, "synced", "", 1)
        self.stream.wake()


@asynccontextmanager
async def line(model: ManagerModel | None = None, *, proxied: bool = False, **settings: Any):
    async with a_manager(model) as manager, TcpProxy(manager.port) as proxy:
        join = manager.join_file(url=f"https://127.0.0.1:{proxy.port}") if proxied else None
        made = Line(manager, join, **settings)
        try:
            yield manager, made, proxy
        finally:
            await cancel_all(made.task)
            assert not manager.failures, manager.failures


def equal(manager: RecordingManager, made: Line) -> bool:
    held = {key: row for key, (row, _) in made.machine.kind_rows["pods"].rows.items()}
    return manager.model.rows.get("pods", {}) == held


async def test_rows_and_changes_arrive() -> None:
    async with line() as (manager, made, _):
        for number in range(300):
            made.put(f"default/p{number}", "x" * 4000)
        made.ready()
        await manager.until(lambda: equal(manager, made) and len(manager.model.keys("pods")) == 300)
        made.put("default/p1", "changed")
        made.machine.remove("pods", "default/p2")
        made.stream.wake()
        await manager.until(lambda: equal(manager, made))
        assert made.stream.state == "connected"


async def test_a_stream_that_is_ended_cleanly_is_connected_again() -> None:
    async with line() as (manager, made, _):
        made.ready()
        for turn in range(1, 4):
            await manager.until(lambda turn=turn: len(manager.sessions) == turn and manager.current is not None)
            await manager.until(lambda: made.stream.state == "connected")
            made.put(f"default/p{turn}")
            await manager.until(lambda: equal(manager, made))
            manager.end()
        await manager.until(lambda: len(manager.sessions) == 4)


async def test_answers_and_state_have_one_writer() -> None:
    async with line(ManagerModel()) as (manager, made, _):
        for number in range(500):
            made.put(f"default/p{number}", "x" * 2000)
        await manager.until(lambda: made.stream.state == "connected")
        made.ready()
        from protobuf import Oneof

        asked = [
            asyncio.create_task(manager.ask(f"r{number}", Oneof("logs", pb.PodLogs())), name="ask")
            for number in range(5)
        ]
        for turn in range(50):
            made.put(f"default/p{turn}", f"again {turn}")
            await asyncio.sleep(0)
        replies = await asyncio.gather(*asked)
        await manager.until(lambda: equal(manager, made))
        for number, parts in enumerate(replies):
            assert b"".join(part.part for part in parts) == f"r{number}".encode() * 100_000


async def test_there_is_never_a_second_connection_beside_the_first() -> None:
    async with line(proxied=True) as (manager, made, proxy):
        made.ready()
        for turn in range(1, 6):
            await manager.until(lambda turn=turn: len(manager.sessions) >= turn and manager.current is not None)
            made.put(f"default/p{turn}")
            proxy.cut()
            await manager.until(lambda: manager.current is None)
        await manager.until(lambda: manager.current is not None and equal(manager, made))
        assert manager.overlapping == 0
        epochs = manager.model.epoch
        assert epochs == len(manager.sessions)


async def test_requests_end_with_the_connection_they_came_on() -> None:
    async with line() as (manager, made, _):
        await manager.until(lambda: manager.current is not None)
        manager.end()
        await manager.until(lambda: len(manager.sessions) == 2)
        assert made.requests.stopped == 1


@pytest.mark.parametrize(
    ("code", "waits"),
    [
        (pb.RejectionCode.ACTIVE_CONNECTION_EXISTS, [7.0, 44.0]),
        (pb.RejectionCode.RECENT_DISCONNECTION, [7.0, 44.0]),
        (pb.RejectionCode.BAD_TOKEN, [7.0, 10.0]),  # no time named: half of the backoff's bound, as random says
        (pb.RejectionCode.STALE_EPOCH, [7.0, 10.0]),
        (pb.RejectionCode.INVALID_IDENTIFICATION, [7.0, 10.0]),
    ],
)
async def test_a_rejected_edge_retries_after_the_time_of_the_manager_or_of_its_settings(
    code: pb.RejectionCode, waits: list[float]
) -> None:
    async with a_manager() as manager:
        manager.refusals = [ClaimRejection(code, 7.0), ClaimRejection(code, 0.0)]
        clock = Hurried()
        made = Line(manager, clock=clock, standby_s=44.0, retry_base_s=20.0, retry_cap_s=20.0)
        try:
            await manager.until(lambda: made.stream.state == "connected")
            assert [wait for wait in clock.waits if wait > 6.5] == waits
            counted = made.metrics.connections.labels(code.name.lower())
            assert counted.value == 2
        finally:
            await cancel_all(made.task)


@pytest.mark.parametrize(
    ("code", "state"),
    [(pb.RejectionCode.ACTIVE_CONNECTION_EXISTS, "standby"), (pb.RejectionCode.BAD_TOKEN, "rejected")],
)
async def test_a_standby_and_a_refused_edge_have_different_states(code: pb.RejectionCode, state: str) -> None:
    async with a_manager() as manager:
        manager.refusals = [ClaimRejection(code, 600.0, "because")]
        made = Line(manager)
        await manager.until(lambda: made.stream.reason == "because")
        assert made.stream.state == state
        await cancel_all(made.task)


async def test_a_token_that_is_not_known_is_a_rejection_and_a_replaced_one_works() -> None:
    async with a_manager() as manager:
        path = manager.join_file(token="old")
        made = Line(manager, path)
        try:
            await manager.until(lambda: made.stream.state == "rejected")
            assert "token" in made.stream.reason
            manager.join_file()
            await manager.until(lambda: made.stream.state == "connected")
        finally:
            await cancel_all(made.task)


# each setting


async def _ends(made: Line, timeout_s: float = 20.0) -> BaseException | None:
    await asyncio.wait([made.task], timeout=timeout_s)
    return made.task.exception() if made.task.done() else None


async def test_retry_count_limits_the_attempts_and_0_does_not() -> None:
    async with a_manager() as manager:
        gone = manager.join_file(url="https://127.0.0.1:9")
        limited, endless = Line(manager, gone, retry_count=3), Line(manager, gone)
        error = await _ends(limited)
        assert isinstance(error, GaveUp) and "4 attempts" in str(error)
        assert not endless.task.done()
        await cancel_all(endless.task)


async def test_the_backoff_bounds_the_waits_between_attempts() -> None:
    async with a_manager() as manager:
        clock = Hurried()
        gone = manager.join_file(url="https://127.0.0.1:9")
        made = Line(manager, gone, clock, retry_base_s=16.0, retry_cap_s=60.0, retry_count=4)
        await _ends(made)
        assert [wait for wait in clock.waits if wait >= 8] == [8.0, 16.0, 30.0, 30.0]


async def test_connect_timeout_ends_an_attempt_that_is_not_answered() -> None:
    async with a_manager() as manager:
        manager.mute = True
        made = Line(manager, connect_timeout_s=0.3)
        await manager.until(lambda: manager.claims >= 2)
        assert "within 0.3 s" in made.stream.reason
        await cancel_all(made.task)


async def test_request_timeout_ends_a_connection_on_which_nothing_is_stored() -> None:
    async with line(request_timeout_s=0.5, keep_alive_timeout_s=60) as (manager, made, _):
        manager.silent_stores = True
        made.ready()
        await manager.until(lambda: "acknowledge" in made.stream.reason)
        manager.silent_stores = False
        made.put("default/p")
        await manager.until(lambda: equal(manager, made))


async def test_keep_alives_are_sent_in_silence_and_their_timeout_ends_a_dead_connection() -> None:
    async with line(proxied=True, keep_alive_s=0.2, keep_alive_timeout_s=1.0) as (manager, made, proxy):
        made.ready()
        await manager.until(lambda: manager.current is not None and "keep_alive" in manager.current.bodies)
        assert len(manager.sessions) == 1
        proxy.mute()
        await manager.until(lambda: "keep-alives" in made.stream.reason)
        proxy.heal()
        await manager.until(lambda: len(manager.sessions) >= 2 and made.stream.state == "connected")


async def test_no_message_is_larger_than_the_limit_of_either_side() -> None:
    async def largest(own: int, managers: int) -> int:
        async with line(ManagerModel(max_message_bytes=managers), max_message_bytes=own) as (manager, made, _):
            for number in range(100):
                made.put(f"default/p{number}", "x" * 1000)
            made.ready()
            await manager.until(lambda: equal(manager, made) and len(manager.model.keys("pods")) == 100)
            return manager.model.largest_bytes

    small = 16 * 1024
    assert await largest(small, 1 << 20) <= small
    assert await largest(1 << 20, small) <= small
    assert await largest(1 << 20, 1 << 20) > small
