"""Several API servers on one PostgreSQL, with writers, readers and watchers that report to a ``Recorder``.

Clients choose a server anew for every request and for every connection of a watch: what one server has acknowledged
must hold on all others. Watchers resume from the last revision they saw, list again after 410, and go elsewhere when a
server is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from shoal.base.clock import RealClock
from shoal.client import Client, RetryAfter, Scope, TransportError, builtin, load
from shoal.client.http import HttpTransport
from shoal.errors import AlreadyExists, ApiError, Conflict, Expired, NotFound
from shoal.kube.objects import Obj
from shoal.testing.databases import PostgresServer, RedisServer
from shoal.testing.recorder import Recorder, State, WatchSession
from shoal.testing.servers import ServerProcess, start_server_process
from shoal.testing.tally import TALLY
from shoal.testing.waiting import eventually

NAMESPACE = "default"
SCOPE = Scope(namespace=NAMESPACE, label_selector="recorded=true")
AWAY = (TransportError, ApiError, OSError, TimeoutError)
CONFIGMAPS = builtin("configmaps")
_PAUSE_S = 0.02
_LIMIT_S = 20.0


@dataclass
class Server:
    """One API server process, killed and started again at the same address."""

    folder: Path
    flags: tuple[str, ...]
    process: ServerProcess
    client: Client
    transport: HttpTransport

    @property
    def name(self) -> str:
        return self.folder.name

    async def kill(self) -> None:
        await asyncio.to_thread(self.process.kill)

    async def start(self) -> None:
        self.process = await asyncio.to_thread(start_server_process, self.folder, *self.flags)

    async def stop(self) -> None:
        await self.transport.close()
        self.process.process.terminate()
        try:
            await asyncio.to_thread(self.process.process.wait, 15)
        except Exception:
            self.process.kill()


@asynccontextmanager
async def servers(folder: Path, count: int, store: str, events: str = "") -> AsyncIterator[list[Server]]:
    """``count`` API servers on one store."""
    flags = ("--store", store, *(("--events", events) if events else ()))
    started: list[Server] = []
    try:
        for number in range(count):
            own = folder / f"server-{number}"
            if started and "--credentials" not in flags:
                flags = (*flags, "--credentials", str(started[0].folder))
            process = await asyncio.to_thread(start_server_process, own, *flags, "--port", "0")
            port = process.url.rpartition(":")[2]
            transport = HttpTransport(load(process.kubeconfig), clock=RealClock(), user_agent="recorder/1")
            client = Client(transport, clock=RealClock(), retry_after=RetryAfter(attempts=1))
            started.append(Server(own, (*flags, "--port", port), process, client, transport))
        yield started
    finally:
        for server in started:
            await server.stop()


@dataclass
class Load:
    """Clients at work; ``run`` ends when ``until`` does."""

    servers: Sequence[Server]
    recorder: Recorder
    random: Random
    writers: int = 6
    contenders: int = 3  # that change the same few objects
    watchers: int = 4
    keys: int = 4  # of each writer
    prefix: str = "w"  # of their names
    unknown: int = 0  # writes whose outcome had to be found out
    relists: int = 0
    sessions: list[WatchSession] = field(default_factory=list)  # that are being watched now
    _writing: bool = True

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        writers = [asyncio.create_task(self._write(number)) for number in range(self.writers)]
        writers += [asyncio.create_task(self._contend(number)) for number in range(self.contenders)]
        others = [asyncio.create_task(self._watch(number)) for number in range(self.watchers)]
        others.append(asyncio.create_task(self._read()))
        try:
            yield
            self._writing = False
            await asyncio.gather(*writers)
            await self._caught_up()
        finally:
            for task in (*writers, *others):
                task.cancel()
            results = await asyncio.gather(*writers, *others, return_exceptions=True)
        for result in results:
            if isinstance(result, Exception):
                raise result

    def _any(self) -> Server:
        return self.random.choice(self.servers)

    # -- writers ---------------------------------------------------------------------------------------------------

    async def _write(self, writer: int) -> None:
        """Write keys that no other writer uses, so that their state is known unless an outcome was unknown."""
        state: dict[str, Obj | None] = {f"{self.prefix}{writer}-{key}": None for key in range(self.keys)}
        number = 0
        while self._writing:
            number += 1
            name = self.random.choice(list(state))
            token = f"{writer}.{number}"
            try:
                async with asyncio.timeout(_LIMIT_S):
                    state[name] = await self._change(name, state[name], token)
            except (AlreadyExists, Conflict, NotFound) as error:
                raise AssertionError(f"{name}: a lone writer was told: {error}") from error
            except AWAY:
                self.unknown += 1
                state[name] = await self._find_out(name)

    async def _change(self, name: str, known: Obj | None, token: str) -> Obj | None:
        resource = self._any().client.of(CONFIGMAPS)
        if known is None:
            made = await resource.create(_object(name, token))
        elif self.random.random() < 0.2:
            await resource.delete(name, NAMESPACE, resource_version=known["metadata"]["resourceVersion"])
            self.recorder.removed(name, _revision(known))
            return None
        else:
            made = await resource.replace({**known, "data": {"token": token}})
        self.recorder.acknowledged(name, _revision(made), token)
        return made

    async def _find_out(self, name: str) -> Obj:
        """What is there after a write that was cut off. It may still be under way: only a later write of ours ends
        the doubt, so one is made until it is acknowledged."""
        attempt = 0
        while True:
            attempt += 1
            token = f"found.{name}.{attempt}.{self.random.random()}"
            resource = self._any().client.of(CONFIGMAPS)
            try:
                async with asyncio.timeout(_LIMIT_S):
                    try:
                        known = await resource.get(name, NAMESPACE)
                    except NotFound:
                        made = await resource.create(_object(name, token))
                    else:
                        made = await resource.replace({**known, "data": {"token": token}})
            except AWAY:
                await asyncio.sleep(_PAUSE_S)
                continue
            self.recorder.acknowledged(name, _revision(made), token)
            return made

    async def _contend(self, contender: int) -> None:
        """Read an object and write it with the revision that was read; another may have been faster."""
        number = 0
        while self._writing:
            number += 1
            name, token = f"{self.prefix}shared-{self.random.randrange(2)}", f"c{contender}.{number}"
            resource = self._any().client.of(CONFIGMAPS)
            with contextlib.suppress(*AWAY):
                async with asyncio.timeout(_LIMIT_S):
                    try:
                        known = await resource.get(name, NAMESPACE)
                        begun_s = time.monotonic()
                        made = await resource.replace({**known, "data": {"token": token}})
                        expected = _revision(known)
                    except NotFound:
                        begun_s, expected = time.monotonic(), 0
                        made = await resource.create(_object(name, token))
                ended_s = time.monotonic()
                self.recorder.swapped(name, expected, _revision(made), token, begun_s, ended_s)

    # -- readers ---------------------------------------------------------------------------------------------------

    async def _read(self) -> None:
        while True:
            with contextlib.suppress(*AWAY):
                await self._listed(self._any())
            await asyncio.sleep(0)

    async def _listed(self, server: Server) -> tuple[int, dict[str, State]]:
        floor, chapter = self.recorder.newest, self.recorder.chapter
        async with asyncio.timeout(_LIMIT_S):
            listed = await server.client.of(CONFIGMAPS).list(SCOPE)
        revision = int(listed.resource_version)
        state = {item["metadata"]["name"]: _state(item) for item in listed.items}
        if chapter == self.recorder.chapter:
            self.recorder.read(server.name, floor, revision)
            self.recorder.listed(server.name, revision, state)
        return revision, state

    async def _watch(self, number: int) -> None:
        session: WatchSession | None = None
        while True:
            server = self._any()
            try:
                if session is None:
                    session = await self._list(number, server)
                await self._follow(session, server)
            except Expired:
                self.relists += 1
                if session is not None:
                    self.sessions.remove(session)
                session = None
            except AWAY:
                await asyncio.sleep(_PAUSE_S)

    async def _list(self, number: int, server: Server) -> WatchSession:
        revision, initial = await self._listed(server)
        session = self.recorder.session(f"watcher {number}", revision, initial)
        self.sessions.append(session)
        return session

    async def _follow(self, session: WatchSession, server: Server) -> None:
        """Watch on this server for a while, then move on to another."""
        watch = await server.client.of(CONFIGMAPS).watch(SCOPE, resource_version=str(session.last))
        async with watch, asyncio.timeout(self.random.uniform(0.2, 3.0)):
            async for event in watch:
                if event.type == "BOOKMARK":
                    session.progress(int(event.resource_version))
                else:
                    name = event.object["metadata"]["name"]
                    session.event(event.type, name, *_state(event.object))

    async def _caught_up(self) -> None:
        """Wait until every watcher has seen the last acknowledged write."""
        await eventually(lambda: all(session.last >= self.recorder.newest for session in self.sessions))


async def final_states(all_servers: Sequence[Server]) -> dict[str, dict[str, State]]:
    """What each server lists."""
    found = {}
    for server in all_servers:
        listed = await server.client.of(CONFIGMAPS).list(SCOPE)
        found[server.name] = {item["metadata"]["name"]: _state(item) for item in listed.items}
    return found


def _object(name: str, token: str) -> Obj:
    metadata = {"name": name, "namespace": NAMESPACE, "labels": {"recorded": "true"}}
    return {"metadata": metadata, "data": {"token": token}}


def _revision(obj: Obj) -> int:
    return int(obj["metadata"]["resourceVersion"])


def _state(obj: Obj) -> State:
    return _revision(obj), obj["data"]["token"]


Fault = Callable[[Sequence[Server], PostgresServer, RedisServer, str], Awaitable[None]]


async def nothing(up: Sequence[Server], postgres: PostgresServer, redis: RedisServer, url: str) -> None:
    await asyncio.sleep(1)


async def redis_away(up: Sequence[Server], postgres: PostgresServer, redis: RedisServer, url: str) -> None:
    await asyncio.to_thread(redis.kill)
    await asyncio.sleep(1)
    await asyncio.to_thread(redis.start)


async def stream_emptied(up: Sequence[Server], postgres: PostgresServer, redis: RedisServer, url: str) -> None:
    from redis.asyncio import Redis

    async with Redis.from_url(redis.url) as client:
        for _ in range(5):
            await client.xtrim("k8s_events", maxlen=0)
            await client.xadd("k8s_events", {"revision": "not one", "object": b"\xff"})
            await asyncio.sleep(0.1)
        await client.flushall()


async def failed_over(up: Sequence[Server], postgres: PostgresServer, redis: RedisServer, url: str) -> None:
    """The primary dies and a standby with all that it had committed takes its address."""
    name = f"standby-{time.monotonic_ns()}"
    await asyncio.to_thread(postgres.kill)
    await asyncio.to_thread(postgres.save, name)
    await asyncio.to_thread(postgres.restore, name)
    await asyncio.to_thread(postgres.start)


async def entries_lost(up: Sequence[Server], postgres: PostgresServer, redis: RedisServer, url: str) -> None:
    await asyncio.to_thread(redis.lose_entries)


async def transaction_held_open(up: Sequence[Server], postgres: PostgresServer, redis: RedisServer, url: str) -> None:
    import asyncpg

    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            await connection.execute("SELECT * FROM shoal.counter FOR UPDATE")
            await asyncio.sleep(1)
    finally:
        await connection.close()


async def postgres_restarted(up: Sequence[Server], postgres: PostgresServer, redis: RedisServer, url: str) -> None:
    await asyncio.to_thread(postgres.stop)
    await asyncio.to_thread(postgres.start)


async def postgres_killed(up: Sequence[Server], postgres: PostgresServer, redis: RedisServer, url: str) -> None:
    await asyncio.to_thread(postgres.kill)
    await asyncio.to_thread(postgres.start)


async def servers_killed_in_turn(up: Sequence[Server], postgres: PostgresServer, redis: RedisServer, url: str) -> None:
    for server in up:
        await server.kill()
        await server.start()


FAULTS: tuple[Fault, ...] = (
    redis_away, stream_emptied, transaction_held_open, postgres_restarted, postgres_killed, servers_killed_in_turn,
)  # fmt: skip


async def witness(
    folder: Path, count: int, postgres: PostgresServer, redis: RedisServer, faults: Sequence[Fault], *, with_redis: bool
) -> Recorder:
    """Run clients while one fault follows another; everything that servers told them must be true in the end."""
    recorder, url = Recorder(), postgres.create_database()
    async with servers(folder, count, url, redis.url if with_redis else "") as up:
        load = Load(up, recorder, Random(1))
        async with load.running():
            for fault in faults:
                TALLY.faults += 1
                before = recorder.writes
                await fault(up, postgres, redis, url)
                await eventually(lambda before=before: recorder.writes > before + 50, timeout_s=60)  # type: ignore[misc]
        assert recorder.problems(await final_states(up)) == []
    print(
        f"{count} servers, {len(faults)} faults: {recorder.writes} writes, {recorder.events} events, "
        f"{load.unknown} outcomes found out, {load.relists} new lists"
    )
    return recorder
