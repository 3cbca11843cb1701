"""Several API servers on one PostgreSQL: nothing acknowledged is lost, and no watcher misses, repeats or reorders an
event, whatever is stopped, killed or cut meanwhile. ``tests/chaos`` does the same for longer and in every order."""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from several_servers import FAULTS, Load, Server, final_states, nothing, servers, witness

from shoal.base.clock import RealClock
from shoal.client import Client, RetryAfter
from shoal.client.transport import StreamReply, Transport
from shoal.testing.databases import PostgresServer, RedisServer, postgres_server, redis_server
from shoal.testing.recorder import Recorder
from shoal.testing.servers import local_server
from shoal.testing.tally import TALLY
from shoal.testing.waiting import eventually


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with postgres_server() as server:
        yield server


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    with redis_server() as server:
        yield server


@pytest.mark.timeout(180)
@pytest.mark.parametrize("with_redis", [True, False], ids=["with Redis", "without Redis"])
async def test_what_one_server_acknowledges_holds_on_the_others(
    tmp_path: Path, postgres: PostgresServer, redis: RedisServer, with_redis: bool
) -> None:
    recorder = await witness(tmp_path, 2, postgres, redis, [nothing, nothing], with_redis=with_redis)
    assert recorder.writes > 200


@pytest.mark.chaos
@pytest.mark.timeout(300)
async def test_nothing_is_lost_repeated_or_reordered_while_things_break(
    tmp_path: Path, postgres: PostgresServer, redis: RedisServer
) -> None:
    await witness(tmp_path, 3, postgres, redis, FAULTS, with_redis=True)


@pytest.mark.timeout(180)
async def test_a_restored_backup_ends_every_watch_and_starts_a_new_history(
    tmp_path: Path, postgres: PostgresServer, redis: RedisServer
) -> None:
    recorder, url = Recorder(), postgres.create_database()
    async with servers(tmp_path, 2, url, redis.url) as up:
        watching = Load(up, recorder, Random(2), writers=0, contenders=0)
        async with watching.running():
            await _write_for_a_while(up, recorder, "kept")
            await asyncio.to_thread(postgres.stop)
            postgres.save("backup")
            await asyncio.to_thread(postgres.start)
            saved = recorder.newest
            await _write_for_a_while(up, recorder, "lost")
            await eventually(lambda: all(session.last >= recorder.newest for session in watching.sessions))
            gone = {id(session): (session, len(session.events)) for session in watching.sessions}
            await asyncio.to_thread(postgres.stop)
            postgres.restore("backup")
            assert recorder.turn_back(saved) == []
            await asyncio.to_thread(postgres.start)
            await eventually(lambda: watching.relists >= watching.watchers)
            await _write_for_a_while(up, recorder, "new")
            for session, count in gone.values():
                assert len(session.events) == count, "a watch went on after the restore"
        final = await final_states(up)
        assert recorder.problems(final) == []
        assert not [name for name in final["server-0"] if name.startswith("lost")]
        assert [name for name in final["server-0"] if name.startswith("new")]


async def _write_for_a_while(up: Sequence[Server], recorder: Recorder, prefix: str) -> None:
    before = recorder.writes
    async with Load(up, recorder, Random(prefix), watchers=0, prefix=prefix).running():
        await eventually(lambda: recorder.writes > before + 100)


class LossyTransport:
    """Drops one watch event in fifty, as a server with a bug would."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self._events = itertools.count()
        self.request = inner.request
        self.close = inner.close

    async def stream(self, method: str, target: str, **options: Any) -> StreamReply:
        reply = await self._inner.stream(method, target, **options)
        return LossyReply(reply, self._events)


class LossyReply:
    def __init__(self, inner: StreamReply, events: Iterator[int]) -> None:
        self.status, self.headers, self.close = inner.status, inner.headers, inner.close
        self._chunks, self._events = inner.chunks, events

    async def chunks(self) -> AsyncIterator[bytes]:
        rest = b""
        async for chunk in self._chunks():
            *lines, rest = (rest + chunk).split(b"\n")
            yield b"".join(line + b"\n" for line in lines if next(self._events) % 50)


async def test_the_recorder_reports_events_that_never_reach_a_watcher(tmp_path: Path) -> None:
    async with local_server() as server:
        lossy = LossyTransport(server.transport)
        client = Client(lossy, clock=RealClock(), retry_after=RetryAfter(attempts=1))
        up = [Server(tmp_path / "only", (), None, client, None)]  # type: ignore[arg-type]
        recorder = Recorder()
        async with Load(up, recorder, Random(3)).running():
            await eventually(lambda: recorder.writes > 300)
        before = TALLY.violations
        assert any("nothing came for" in problem for problem in recorder.problems(await final_states(up)))
        TALLY.violations = before  # the fault was planted


async def test_a_server_with_other_keys_is_refused(tmp_path: Path, postgres: PostgresServer) -> None:
    url = postgres.create_database()
    command = [sys.executable, "-m", "shoal", "cluster", "start", "--store", url, "--port", "0", "--dir"]

    async with servers(tmp_path, 1, url):
        stranger = await asyncio.to_thread(
            subprocess.run, [*command, str(tmp_path / "stranger")], capture_output=True, text=True, timeout=60
        )
        assert stranger.returncode != 0
        assert "start it with --credentials DIR" in stranger.stderr
