"""Guarantees of several servers on one database when the database, Redis or connections fail."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from random import Random
from typing import Any

import asyncpg
import pytest
from redis import Redis

from shoal.base.tasks import cancel_all
from shoal.store import (
    Absent,
    At,
    Compacted,
    Delete,
    Event,
    EventType,
    Key,
    LogStore,
    RequirementFailed,
    RingLimits,
    StoreReadOnly,
    StoreUnavailable,
    open_store,
)
from shoal.store.postgres import journal
from shoal.store.postgres.follow import CATCH_UP
from shoal.store.postgres.hints import STREAM, Hints
from shoal.store.postgres.sealing import EventKeys
from shoal.store.postgres.writer import PostgresWriter
from shoal.testing.databases import PostgresServer, RedisServer, postgres_server, redis_server, shared_postgres
from shoal.testing.proxy import SocketProxy
from shoal.testing.waiting import eventually


def pod(name: str) -> Key:
    return Key("pods", "default", name)


class Servers:
    """Stores on one database, as many as a test wants."""

    def __init__(self, backend: Any, url: str, events: str, stack: AsyncExitStack) -> None:
        self.put = backend.put
        self.url = url
        self.events = events
        self._attrs_of = backend.attrs_of
        self._stack = stack
        self.fatal: list[BaseException] = []

    async def start(self, *, url: str = "", events: str | None = None, **options: Any) -> LogStore:
        store = open_store(
            url or self.url,
            attrs_of=self._attrs_of,
            events=self.events if events is None else events,
            on_fatal=self.fatal.append,
            **options,
        )
        await store.start()
        self._stack.push_async_callback(store.stop)
        return store

    async def stop_all(self) -> None:
        await self._stack.aclose()


@asynccontextmanager
async def serving(backend: Any, *, url: str = "", events: str | None = None) -> AsyncIterator[Servers]:
    async with asyncio.timeout(60):
        async with AsyncExitStack() as stack:
            servers = Servers(backend, url or backend.url, backend.events if events is None else events, stack)
            yield servers
            assert not servers.fatal


async def follow(store: LogStore, count: int, after: int = 0) -> list[Event]:
    watch = store.watch("pods", after)
    events: list[Event] = []
    while len(events) < count:
        await asyncio.wait_for(watch.wait(), 20)
        events += watch.take()
    return events


@pytest.fixture(scope="module")
def own_postgres() -> Iterator[PostgresServer]:
    """A server that tests may stop, break and restore."""
    with postgres_server() as server:
        yield server


@pytest.fixture
def own_redis() -> Iterator[RedisServer]:
    with redis_server() as server:
        yield server


@asynccontextmanager
async def proxied(server: PostgresServer, url: str) -> AsyncIterator[tuple[SocketProxy, str]]:
    database = url.split("@/")[1].split("?")[0]
    async with SocketProxy(server.socket) as proxy:
        yield proxy, server.url(database, host=proxy.folder)


async def test_every_server_shows_every_write_once_in_the_same_order_with_the_same_bytes(shared: Any) -> None:
    async with serving(shared) as servers:
        stores = [await servers.start() for _ in range(3)]
        following = [asyncio.ensure_future(follow(store, 450)) for store in stores]
        acknowledged: list[int] = []

        async def writer(number: int) -> None:
            store = stores[number % 3]
            for i in range(15):
                entries = await store.commit([servers.put(f"w{number}"), servers.put(f"w{number}-{i}", spec="x" * i)])
                assert store.revision >= entries[1].revision == entries[0].revision + 1
                acknowledged.extend(entry.revision for entry in entries)

        await asyncio.gather(*(writer(n) for n in range(15)))
        seen = await asyncio.gather(*following)
        assert sorted(acknowledged) == list(range(1, 451)) == [event.entry.revision for event in seen[0]]
        assert seen[0] == seen[1] == seen[2]
        pages = [store.range("pods").entries for store in stores]
        assert list(pages[0]) == list(pages[1]) == list(pages[2])
        later = await servers.start()
        assert list(later.range("pods").entries) == list(pages[0])
        assert later.watch("pods", 0).take(1000) == seen[0]


async def test_a_fresh_read_on_any_server_sees_every_acknowledged_write(shared: Any) -> None:
    async with serving(shared) as servers:
        stores = [await servers.start() for _ in range(3)]
        for i in range(60):
            (entry,) = await stores[i % 3].commit([servers.put("a", spec=str(i))])
            assert await stores[(i + 1) % 3].fresh() >= entry.revision
            assert stores[(i + 1) % 3].get(pod("a")) == entry


async def test_fresh_reads_share_one_query_and_none_is_answered_by_an_earlier_one(
    shared: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 0

    class Counted:
        def __init__(self, statement: Any) -> None:
            self._statement = statement

        async def fetch(self, *arguments: Any, **options: Any) -> Any:
            nonlocal asked
            asked += 1
            return await self._statement.fetch(*arguments, **options)

    class Connection(asyncpg.Connection):
        async def prepare(self, query: str, **options: Any) -> Any:
            statement = await super().prepare(query, **options)
            return Counted(statement) if query == CATCH_UP else statement

    async with serving(shared) as servers:
        writing = await servers.start()
        monkeypatch.setattr(asyncpg, "connect", partial(asyncpg.connect, connection_class=Connection))
        reading = await servers.start()
        for i in range(20):
            (entry,) = await writing.commit([servers.put("a", spec=str(i))])
            asked = 0
            assert min(await asyncio.gather(*(reading.fresh() for _ in range(50)))) >= entry.revision
            assert 1 <= asked <= 3


async def test_compare_and_swap_holds_between_servers(shared: Any) -> None:
    async with serving(shared) as servers:
        stores = [await servers.start() for _ in range(3)]
        await stores[0].commit([servers.put("n", spec="0")])
        for store in stores:
            await store.fresh()

        async def writer(store: LogStore) -> None:
            for _ in range(10):
                while True:
                    entry = store.get(pod("n"))
                    assert entry is not None
                    count = int(json.loads(entry.value)["spec"]) + 1
                    try:
                        await store.commit([servers.put("n", spec=str(count))], [At(pod("n"), entry.revision)])
                        break
                    except RequirementFailed as failed:
                        assert failed.current is not None and failed.current.revision > entry.revision
                        assert store.revision >= failed.current.revision, "what has refused it can be read"

        await asyncio.gather(*(writer(store) for store in stores * 2))
        for store in stores:
            await store.fresh()
            final = store.get(pod("n"))
            assert final is not None and json.loads(final.value)["spec"] == "60"
        created = await asyncio.gather(
            *(store.commit([servers.put("one")], [Absent(pod("one"))]) for store in stores * 3), return_exceptions=True
        )
        assert sum(not isinstance(result, BaseException) for result in created) == 1


async def test_another_server_shows_a_write_soon(shared: Any) -> None:
    async with serving(shared) as servers:
        writing, watching = await servers.start(), await servers.start()

        async def took_s() -> float:
            (entry,) = await writing.commit([servers.put("a")])
            begun = time.monotonic()
            await watching.reached(entry.revision, 10)
            return time.monotonic() - begun

        async def soon() -> bool:
            return await took_s() < 0.1

        await eventually(soon, what="a hint")  # each server announces its writes once it knows of the other
        took = [await took_s() for _ in range(20)]
        assert sorted(took)[10] < 0.1, "by a hint, not by polling"


class ForgetfulHints(Hints):
    """Sends one batch of three."""

    _offered = 0

    def offer(self, prior: int, mark: int, events: Sequence[Event]) -> None:
        self._offered += 1
        if self._offered % 3 == 0:
            super().offer(prior, mark, events)


class SilentWriter(PostgresWriter):
    """Never notifies other servers."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments[:-1], lambda: False)


async def test_lost_hints_only_cost_time(shared: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(shared) as servers:
        watching = await servers.start()
        monkeypatch.setattr(journal, "Hints", ForgetfulHints)
        monkeypatch.setattr(journal, "PostgresWriter", SilentWriter)
        writing = await servers.start()
        following = asyncio.ensure_future(follow(watching, 100))
        for i in range(100):
            await writing.commit([servers.put(f"p{i}")])
        assert [event.entry.revision for event in await following] == list(range(1, 101))


def both_listen(redis: Redis) -> bool:
    """Whether two servers wait for new entries of the stream."""
    clients: Any = redis.client_list()
    return sum(client["cmd"] == "xread" for client in clients) == 2


async def test_redis_may_stop_come_back_empty_and_hold_anything(
    shared_url: str, own_redis: RedisServer, kind: Any
) -> None:
    async with serving(kind, url=shared_url, events=own_redis.url) as servers:
        one, other = await servers.start(), await servers.start()
        following = asyncio.ensure_future(follow(other, 120))
        incarnation = one.incarnation.encode()
        longest = 0.0
        for i in range(120):
            if i == 20:
                own_redis.stop()
            if i == 40:
                own_redis.start()
            if i == 60:
                redis = Redis(unix_socket_path=str(own_redis.socket))
                await eventually(partial(both_listen, redis))
                redis.xadd("k8s_events", {"nonsense": b"\xff\x00"})
                redis.xadd("k8s_events", {"incarnation": incarnation})
                base = {"incarnation": incarnation, "mark": "1", "revision": "[61]", "key": '[["pods","default","x"]]'}
                for extra in (
                    {"type": '["ADDED"]', "prior": "7", "created": "[61]", "hole": "[0]", "object": '[{"a":1}]'},
                    {"type": '["ADDED"]', "prior": "7", "created": "[61]", "hole": "[0]", "object": "[{"},
                    {"type": '["WHAT"]', "prior": "x", "created": "[61]", "hole": "[0]", "object": "[]"},
                    {"type": "[]", "prior": "7", "created": "[]", "hole": "[]", "object": "[]"},
                ):
                    redis.xadd("k8s_events", {**base, **extra})  # type: ignore[arg-type]
                redis.xadd("k8s_events", {**base, "incarnation": "another", "prior": "0"})
            if i == 80:
                redis.xtrim("k8s_events", maxlen=0, approximate=False)
            if i == 90:
                redis.delete("k8s_events")
                redis.set("k8s_events", "not a stream")
            if i == 110:
                redis.delete("k8s_events")
                redis.close()
            begun = time.monotonic()
            await one.commit([servers.put(f"p{i}")])
            longest = max(longest, time.monotonic() - begun)
        assert [event.entry.revision for event in await following] == list(range(1, 121))
        assert list(one.range("pods").entries) == list(other.range("pods").entries)
        assert longest < 2, "no commit waits for Redis"


async def test_at_most_64_hints_wait_for_redis_and_the_oldest_are_dropped(own_redis: RedisServer) -> None:
    keys = EventKeys()
    keys.use({1: bytes(32)})
    hints = Hints(
        own_redis.url,
        keys=keys,
        incarnation=lambda: "one",
        known=lambda: 0,
        wanted=lambda: True,
        on_batch=lambda newest, rows: None,
    )
    for mark in range(1, 201):
        hints.offer(mark - 1, mark, ())
    redis = Redis(unix_socket_path=str(own_redis.socket))
    sending = asyncio.create_task(hints.run(), name="hints")
    try:
        await eventually(lambda: redis.xlen(STREAM))
        entries: Any = redis.xrange(STREAM)
        assert [int(fields[b"mark"]) for _, fields in entries] == list(range(137, 201))
    finally:
        redis.close()
        hints.end()
        await cancel_all(sending)


async def test_a_redis_that_hangs_delays_no_commit(shared_url: str, own_redis: RedisServer, kind: Any) -> None:
    async with serving(kind, url=shared_url, events=own_redis.url) as servers:
        one, other = await servers.start(), await servers.start()
        await one.commit([servers.put("a")])
        own_redis.pause()
        try:
            for i in range(200):
                await asyncio.wait_for(one.commit([servers.put("a", spec=str(i))]), 5)
            assert await other.fresh() == 201
        finally:
            own_redis.resume()


async def test_a_transaction_held_open_stops_writers_for_a_while_and_readers_never(shared: Any) -> None:
    async with serving(shared) as servers:
        one, other = await servers.start(unavailable_after_s=0.6), await servers.start()
        await one.commit([servers.put("a")])
        holder = await asyncpg.connect(servers.url)
        held = holder.transaction()
        await held.start()
        await holder.execute("SELECT * FROM shoal.counter FOR UPDATE")
        patient = asyncio.ensure_future(other.commit([servers.put("patient")]))
        begun = time.monotonic()
        with pytest.raises(StoreUnavailable):
            await one.commit([servers.put("impatient")])
        assert time.monotonic() - begun < 5
        assert await one.fresh() == 1 and one.get(pod("a")) is not None
        with pytest.raises(StoreUnavailable):
            await one.commit([servers.put("again")])
        await held.rollback()
        await holder.close()
        assert (await patient)[0].revision == 2
        assert (await one.commit([servers.put("after")]))[0].revision == 3
        assert one.get(pod("impatient")) is None, "a refused write did not happen later"


async def test_a_frozen_store_refuses_writes_with_its_reason(shared: Any) -> None:
    async with serving(shared) as servers:
        one, other = await servers.start(), await servers.start()
        await one.commit([servers.put("a")])
        connection = await asyncpg.connect(servers.url)
        await connection.execute("UPDATE shoal.counter SET frozen = 'it is being copied'")
        for store in (one, other):
            with pytest.raises(StoreReadOnly, match="it is being copied"):
                await store.commit([servers.put("b")])
        assert await other.fresh() == 1
        await connection.execute("UPDATE shoal.counter SET frozen = NULL")
        await connection.close()
        assert (await other.commit([servers.put("b")]))[0].revision == 2


async def test_a_restart_of_the_database_is_waited_for(own_postgres: PostgresServer, kind: Any) -> None:
    async with serving(kind, url=own_postgres.create_database()) as servers:
        one, other = await servers.start(), await servers.start()
        following = asyncio.ensure_future(follow(other, 60))
        done = 0

        async def writer(number: int) -> None:
            nonlocal done
            for i in range(15):
                await one.commit([servers.put(f"w{number}-{i}")])
                done += 1

        writing = asyncio.gather(*(writer(n) for n in range(4)))
        await eventually(lambda: done >= 10)
        await asyncio.to_thread(own_postgres.stop)
        assert one.range("pods").entries, "reads go on"
        await asyncio.to_thread(own_postgres.start)
        await eventually(lambda: done >= 40)
        await asyncio.to_thread(own_postgres.kill)
        await asyncio.to_thread(own_postgres.start)
        await writing
        revisions = [event.entry.revision for event in await following]
        assert revisions == list(range(1, 61)), "nothing was done twice"
        assert one.incarnation == other.incarnation and one.count("pods") == 60


async def test_while_the_database_is_away_writes_and_fresh_reads_fail_after_their_limit_and_the_rest_works(
    own_postgres: PostgresServer, kind: Any
) -> None:
    async with serving(kind, url=own_postgres.create_database()) as servers:
        one = await servers.start(unavailable_after_s=0.5)
        await one.commit([servers.put("a")])
        watch = one.watch("pods", 0)
        await asyncio.to_thread(own_postgres.stop)
        try:
            for _ in range(2):
                begun = time.monotonic()
                refused = await asyncio.gather(
                    *(one.commit([servers.put(f"b{i}")]) for i in range(5)), one.fresh(), return_exceptions=True
                )
                assert [type(result) for result in refused] == [StoreUnavailable] * 6
                assert 0.3 < time.monotonic() - begun < 5
            assert len(watch.take()) == 1 and one.count("pods") == 1
        finally:
            await asyncio.to_thread(own_postgres.start)
        waiting = asyncio.ensure_future(watch.wait())
        await until_written(one, servers.put("c"))
        await waiting
        assert [event.entry.key.name for event in watch.take()] == ["c"]


async def test_writes_fail_while_the_database_hangs_and_work_again_afterwards(
    own_postgres: PostgresServer, kind: Any
) -> None:
    async with serving(kind, url=own_postgres.create_database()) as servers:
        one = await servers.start(unavailable_after_s=0.8)
        await one.commit([servers.put("a")])
        own_postgres.pause()
        try:
            refused = await asyncio.gather(one.commit([servers.put("b")]), one.fresh(), return_exceptions=True)
            assert [type(result) for result in refused] == [StoreUnavailable] * 2
        finally:
            own_postgres.resume()
        await until_written(one, servers.put("c"))
        assert one.get(pod("c")) is not None


async def until_written(store: LogStore, put: Any) -> None:
    async def written() -> bool:
        try:
            await store.commit([put])
        except StoreUnavailable:
            return False
        return True

    await eventually(written, timeout_s=10)


@pytest.mark.parametrize("fault", ["mute", "deafen", "cut"])
async def test_a_commit_whose_connection_broke_is_done_once_and_gets_its_result(shared: Any, fault: str) -> None:
    async with serving(shared) as servers:
        async with proxied(shared_postgres(), servers.url) as (proxy, url):
            one, other = await servers.start(url=url), await servers.start()
            revision, newest = (await one.commit([servers.put("n")]))[0].revision, 1
            for i in range(6):
                if fault != "cut":
                    getattr(proxy, fault)()
                commits = [
                    asyncio.ensure_future(one.commit([servers.put("n", spec=str(i))], [At(pod("n"), revision)])),
                    asyncio.ensure_future(one.commit([servers.put("m")], [Absent(pod("n"))])),
                    asyncio.ensure_future(one.commit([servers.put("u", spec=str(i))])),  # nothing forbids it twice
                ]
                if fault == "mute":  # it happens, and the answer never comes
                    await eventually(lambda wanted=newest + 2: other.revision >= wanted)
                else:
                    await asyncio.sleep(0.002 * i)
                proxy.cut()
                done, refused, free = await asyncio.gather(*commits, return_exceptions=True)
                assert not isinstance(done, BaseException) and not isinstance(free, BaseException)
                assert isinstance(refused, RequirementFailed) and refused.current == done[0]
                revision, newest = done[0].revision, newest + 2
                assert await other.fresh() == newest == await one.fresh(), "neither lost nor done twice"
                assert one.get(pod("n")) == other.get(pod("n")) == done[0]
                assert one.get(pod("u")) == other.get(pod("u")) == free[0]
            await one.stop()


async def test_a_commit_that_still_waits_in_the_database_is_not_left_to_happen_later(shared: Any) -> None:
    async with serving(shared) as servers:
        async with proxied(shared_postgres(), servers.url) as (proxy, url):
            one = await servers.start(url=url)
            await one.commit([servers.put("a")])
            holder = await asyncpg.connect(servers.url)
            held = holder.transaction()
            await held.start()
            await holder.execute("SELECT * FROM shoal.counter FOR UPDATE")
            commit = asyncio.ensure_future(one.commit([servers.put("b")]))
            waiting = "SELECT pid FROM pg_locks WHERE NOT granted AND locktype IN ('transactionid', 'tuple')"
            session = await eventually(lambda: holder.fetchval(waiting), timeout_s=10)
            proxy.cut()
            gone = "SELECT count(*) = 0 FROM pg_locks WHERE pid = $1"  # pg_stat_activity is fixed in a transaction
            await eventually(lambda: holder.fetchval(gone, session), timeout_s=10)
            await held.rollback()
            await holder.close()
            (entry,) = await commit
            assert entry.revision == 2
            assert await one.fresh() == 2
            await one.stop()


async def test_a_restored_backup_is_noticed_by_all_and_given_one_new_incarnation(
    own_postgres: PostgresServer, kind: Any
) -> None:
    """Two servers have seen what the backup does not hold; both find out at the same time."""

    async with serving(kind, url=own_postgres.create_database()) as servers:
        one, other = await servers.start(), await servers.start()
        await one.commit([servers.put("kept"), servers.put("changed", spec="old"), servers.put("deleted")])
        await other.fresh()
        await asyncio.to_thread(own_postgres.stop)
        own_postgres.save(servers.put("x").key.name + str(time.monotonic_ns()))
        saved = sorted(own_postgres.folder.glob("saved-*"))[-1].name.removeprefix("saved-")
        await asyncio.to_thread(own_postgres.start)
        await until_written(one, servers.put("changed", spec="new"))
        await one.commit([servers.put("lost"), Delete(pod("deleted"))])
        await other.fresh()
        assert other.revision == one.revision == 6
        before = one.incarnation
        heard: list[tuple[EventType, str]] = []
        resets: list[int] = []
        mirror = {entry.key: entry for entry in other.range("pods").entries}

        def on_events(events: Any) -> None:
            for event in events:
                heard.append((event.type, event.entry.key.name))
                if event.type is EventType.DELETED:
                    del mirror[event.entry.key]
                else:
                    mirror[event.entry.key] = event.entry

        other.subscribe("pods", on_events)
        other.subscribe("pods", lambda events: None, lambda: resets.append(other.revision))
        watches = [store.watch(resource, 6) for store in (one, other) for resource in ("pods", "nodes")]
        waits = [asyncio.ensure_future(watch.wait()) for watch in watches]
        await asyncio.to_thread(own_postgres.stop)
        own_postgres.restore(saved)
        await asyncio.to_thread(own_postgres.start)
        await eventually(lambda: one.incarnation != before and other.incarnation != before)
        assert one.incarnation == other.incarnation
        await asyncio.wait_for(asyncio.gather(*waits), 5)
        for watch in watches:
            with pytest.raises(Compacted):
                watch.take()
        for store in (one, other):
            assert store.revision == await store.fresh() > 1_000_000
            assert {e.key.name for e in store.range("pods").entries} == {"kept", "changed", "deleted"}
            for resource in ("pods", "nodes"):
                with pytest.raises(Compacted):
                    store.range(resource, revision=6)
                with pytest.raises(Compacted):
                    store.watch(resource, 6)
            assert store.watch("pods", store.revision).take() == []
        assert sorted(heard) == [("ADDED", "deleted"), ("DELETED", "lost"), ("MODIFIED", "changed")]
        assert len(resets) == 1 and mirror == {entry.key: entry for entry in other.range("pods").entries}
        jumped = one.revision
        (entry,) = await other.commit([servers.put("after")], [At(pod("kept"), 1), Absent(pod("lost"))])
        assert entry.revision == jumped + 1
        assert await one.fresh() == jumped + 1 and one.get(pod("after")) == entry


async def test_history_that_was_rewritten_is_noticed_though_the_counter_went_on(shared: Any) -> None:
    """As after a failover to a replica that lacked some writes, when others have written there since."""

    async with serving(shared) as servers:
        async with proxied(shared_postgres(), servers.url) as (proxy, url):
            one = await servers.start(url=url)
            await one.commit([servers.put("a")])
            await one.commit([servers.put("lost")])
            before = one.incarnation
            proxy.refuse()
            connection = await asyncpg.connect(servers.url)
            await connection.execute("DELETE FROM shoal.log WHERE revision > 1")
            await connection.execute("DELETE FROM shoal.current WHERE revision > 1")
            await connection.execute(
                "UPDATE shoal.counter SET revision = 1, mark = (SELECT mark FROM shoal.log WHERE revision = 1)"
            )
            await connection.close()
            other = await servers.start()
            assert other.revision == 1
            for i in range(5):
                await other.commit([servers.put(f"since-{i}")])
            proxy.heal()
            await eventually(lambda: one.incarnation != before and other.incarnation == one.incarnation)
            assert one.revision == other.revision > 1_000_000
            assert list(one.range("pods").entries) == list(other.range("pods").entries)
            assert one.count("pods") == 6
            await one.stop()


async def test_a_server_that_missed_more_than_the_log_holds_reloads(shared: Any) -> None:
    async with serving(shared) as servers:
        async with proxied(shared_postgres(), servers.url) as (proxy, url):
            one, other = await servers.start(url=url, events=""), await servers.start()
            await one.commit([servers.put("a", spec="0"), servers.put("b")])
            watch = one.watch("pods", 2)
            proxy.refuse()
            for i in range(5):
                await other.commit([servers.put("a", spec=str(i))])
            connection = await asyncpg.connect(servers.url)
            await connection.execute("DELETE FROM shoal.log WHERE revision BETWEEN 3 AND 5")
            await connection.close()
            proxy.heal()
            assert await one.fresh() == 7
            assert one.incarnation == other.incarnation
            assert list(one.range("pods").entries) == list(other.range("pods").entries)
            with pytest.raises(Compacted):
                watch.take()
            (entry,) = await one.commit([servers.put("c")], [At(pod("a"), 7)])
            assert entry.revision == 8
            await one.stop()


async def test_history_is_forgotten_by_all_together_and_never_before_a_slow_server_has_it(shared: Any) -> None:
    limits = RingLimits(max_events=20)

    async with serving(shared) as servers:
        one, other = await servers.start(limits=limits), await servers.start()
        for i in range(200):
            await one.commit([servers.put("a", spec=str(i)), servers.put(f"p{i % 10}")])
        await other.fresh()
        await one.compact(one.revision)
        await eventually(lambda: shared.rows() == 11)
        assert len(other.watch("pods", 0).take()) == 400, "its own memory is not touched"
        third = await servers.start()
        assert list(third.range("pods").entries) == list(one.range("pods").entries)
        with pytest.raises(Compacted):
            third.watch("pods", 100)
        connection = await asyncpg.connect(servers.url)
        await connection.execute("INSERT INTO shoal.server VALUES ('slow', 405, now())")
        for i in range(10):
            await one.commit([servers.put("a", spec=str(i))])
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(one.compact(one.revision), 1.0)
        left = await connection.fetch("SELECT revision FROM shoal.log WHERE revision > 405 ORDER BY revision")
        assert [row[0] for row in left] == [406, 407, 408, 409, 410]
        await connection.execute("DELETE FROM shoal.server WHERE id = 'slow'")
        await connection.close()
        await one.compact(one.revision)
        await eventually(lambda: shared.rows() == 11)


async def test_many_servers_may_start_at_once_on_an_empty_database(shared: Any) -> None:
    async with serving(shared) as servers:
        stores = await asyncio.gather(*(servers.start() for _ in range(6)))
        assert len({store.incarnation for store in stores}) == 1
        entries = await asyncio.gather(*(store.commit([servers.put(f"p{i}")]) for i, store in enumerate(stores)))
        assert sorted(entry.revision for (entry,) in entries) == [1, 2, 3, 4, 5, 6]
        for store in stores:
            assert await store.fresh() == 6 and store.count("pods") == 6


async def test_whatever_breaks_no_write_is_lost_doubled_or_seen_out_of_order(shared: Any) -> None:
    async with serving(shared) as servers:
        dice = Random(7)
        async with AsyncExitStack() as proxies:
            pairs = [await proxies.enter_async_context(proxied(shared_postgres(), servers.url)) for _ in range(3)]
            stores = [await servers.start(url=url, unavailable_after_s=2) for _, url in pairs]
            await stores[0].commit([servers.put("n", spec="0")])
            for store in stores:
                await store.fresh()
            seen: list[list[int]] = [[], [], []]
            for store, numbers in zip(stores, seen, strict=True):
                store.subscribe(
                    "pods", lambda events, numbers=numbers: numbers.extend(e.entry.revision for e in events)
                )
            acknowledged, unknown, stop = 0, 0, False

            async def writer(store: LogStore) -> None:
                nonlocal acknowledged, unknown
                while not stop:
                    entry = store.get(pod("n"))
                    assert entry is not None
                    put = servers.put("n", spec=str(int(json.loads(entry.value)["spec"]) + 1))
                    try:
                        (done,) = await store.commit([put], [At(pod("n"), entry.revision)])
                        assert store.revision >= done.revision
                        acknowledged += 1
                    except RequirementFailed:
                        pass
                    except StoreUnavailable:
                        unknown += 1

            writing = [asyncio.ensure_future(writer(store)) for store in stores * 2]
            deadline = time.monotonic() + 4
            while time.monotonic() < deadline:
                proxy, _ = dice.choice(pairs)
                dice.choice([proxy.mute, proxy.deafen, proxy.cut, proxy.refuse])()
                await asyncio.sleep(dice.random() * 0.1)
                proxy.cut()
                proxy.heal()
                await asyncio.sleep(dice.random() * 0.1)
            stop = True
            await asyncio.gather(*writing)
            newest = max([await store.fresh() for store in stores])
            for store, numbers in zip(stores, seen, strict=True):
                await store.reached(newest, 10)
                final = store.get(pod("n"))
                assert final is not None
                count = int(json.loads(final.value)["spec"])
                assert acknowledged <= count <= acknowledged + unknown
                assert numbers == list(range(2, newest + 1)) and count == newest - 1
            assert acknowledged > 50
            await servers.stop_all()


async def test_a_store_of_another_format_is_refused(shared: Any) -> None:
    async with serving(shared) as servers:
        await (await servers.start()).stop()
        connection = await asyncpg.connect(servers.url)
        await connection.execute("UPDATE shoal.counter SET format = 99")
        await connection.close()
        with pytest.raises(Exception, match="format 99"):
            await servers.start()


async def test_a_database_that_cannot_be_reached_is_named_without_its_password(kind: Any) -> None:
    url = "postgresql://me:secret@/none?host=/nowhere"
    store = open_store(url, attrs_of=kind.attrs_of, unavailable_after_s=0.2)
    with pytest.raises(Exception, match="cannot be used") as failed:
        await store.start()
    assert "secret" not in str(failed.value)
