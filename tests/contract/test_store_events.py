"""Redis between servers of one store: it delivers, and can neither read, make up, change nor reorder events."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from redis import Redis
from redis.exceptions import RedisError

from shoal.app.locks import ClusterLocks
from shoal.app.pki import Pki, server_context
from shoal.base.clock import RealClock
from shoal.client import Client
from shoal.errors import ShoalError
from shoal.reconcile.leader import LockRecord
from shoal.store import Key, LogStore, open_store
from shoal.store.copy import rotate_event_key
from shoal.store.postgres import journal, sealing
from shoal.store.postgres.feed import Feed
from shoal.store.postgres.hints import STREAM
from shoal.store.postgres.rows import LogRow
from shoal.store.postgres.writer import PostgresWriter
from shoal.testing.databases import RedisServer, redis_server
from shoal.testing.servers import local_server
from shoal.testing.waiting import eventually

Fields = dict[bytes, bytes]
NEEDLE = "the-password-of-the-shop"
GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "store.md"


class SilentWriter(PostgresWriter):
    """Never notifies other servers."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments[:-1], lambda: False)


class Attacked:
    """A server that writes, a server that follows, and between them a Redis that somebody else controls."""

    def __init__(self, kind: Any, writing: LogStore, following: LogStore, said: Redis, heard: Redis) -> None:
        self._kind = kind
        self.writing, self.following = writing, following
        self._said, self._heard = said, heard
        self._taken = b"-"

    async def write(self, *names: str, resource: str = "pods", spec: str = "") -> int:
        entries = await self.writing.commit([self._kind.put(name, resource=resource, spec=spec) for name in names])
        return entries[-1].revision

    async def said(self, count: int = 1) -> list[Fields]:
        """The entries of the writing server that were not taken yet, at least ``count``."""

        def new() -> Any:
            found: Any = self._said.xrange(STREAM, min=b"(" + self._taken if self._taken != b"-" else b"-")
            return found if len(found) >= count else None

        found = await eventually(new)
        self._taken = found[-1][0]
        return [dict(fields) for _, fields in found]

    def tell(self, *entries: Fields) -> None:
        for entry in entries:
            self._heard.xadd(STREAM, entry)  # type: ignore[arg-type]

    async def follows(self, revision: int) -> None:
        await self.following.reached(revision, 10)
        assert list(self.following.range("pods").entries) == list(self.writing.range("pods").entries)
        assert self.following.watch("pods", 0).take(1000) == self.writing.watch("pods", 0).take(1000)


@pytest.fixture
def redises() -> Iterator[tuple[RedisServer, RedisServer]]:
    with redis_server() as one, redis_server() as other:
        yield one, other


@pytest.fixture
def hinted(monkeypatch: pytest.MonkeyPatch) -> list[LogRow]:
    """The rows that a server takes from Redis. It gets no others: nobody polls or notifies."""
    found: list[LogRow] = []
    take = Feed.hint

    def record(feed: Feed, rows: Sequence[LogRow]) -> None:
        found.extend(rows)
        take(feed, rows)

    monkeypatch.setattr(Feed, "hint", record)
    monkeypatch.setattr(journal, "_INTERVAL_HINTED_S", 60.0)
    monkeypatch.setattr(journal, "PostgresWriter", SilentWriter)
    return found


@asynccontextmanager
async def attacked(kind: Any, url: str, redises: tuple[RedisServer, RedisServer]) -> AsyncIterator[Attacked]:
    stores = [open_store(url, attrs_of=kind.attrs_of, events=redis.url) for redis in redises]
    said, heard = (Redis(unix_socket_path=str(redis.socket)) for redis in redises)

    def listens() -> bool:
        clients: Any = heard.client_list()
        return any(client["cmd"] == "xread" for client in clients)

    async with asyncio.timeout(60):
        try:
            for store in stores:
                await store.start()
            await eventually(listens)
            yield Attacked(kind, stores[0], stores[1], said, heard)
        finally:
            for store in stores:
                await store.stop()
            said.close()
            heard.close()


async def test_an_entry_that_no_server_has_sealed_changes_nothing(
    kind: Any, shared_url: str, redises: tuple[RedisServer, RedisServer], hinted: list[LogRow]
) -> None:
    async with attacked(kind, shared_url, redises) as world:
        await world.write("a")
        (genuine,) = await world.said()
        world.tell(genuine)
        await world.follows(1)
        assert [row.name for row in hinted] == ["a"], "entries of servers are used"
        forged = {
            **{name: genuine[name] for name in (b"incarnation", b"seal")}, b"prior": genuine[b"mark"], b"mark": b"7",
            b"revision": b"[2]", b"type": b'["ADDED"]', b"key": b'[["pods","default","forged"]]', b"created": b"[2]",
            b"hole": b"[0]", b"object": b'[{"labels":{},"indexed":[],"fence":""}]',
        }  # fmt: skip
        world.tell(forged, {name: value for name, value in forged.items() if name != b"seal"})
        revision = await world.write("b")
        world.tell(*await world.said())
        await world.follows(revision)
        assert [row.name for row in hinted] in (["a"], ["a", "b"])  # the forged one had it look at the log


Attack = Callable[[list[Fields], list[Fields]], list[Fields]]


def _altered(name: bytes) -> Attack:
    def attack(old: list[Fields], new: list[Fields]) -> list[Fields]:
        value = new[0][name]
        return [{**new[0], name: value[:-1] + bytes([value[-1] ^ 1])}, {**new[0], name: value[:-1]}, *new[1:]]

    return attack


ATTACKS: dict[str, Attack] = {
    **{f"alters {name.decode()}": _altered(name) for name in (b"seal", b"object", b"key", b"type", b"prior", b"mark")},
    "replays": lambda old, new: [*old, *new, *old, *new],
    "reorders": lambda old, new: new[::-1],
    "drops": lambda old, new: new[1:],
    "swaps objects": lambda old, new: [{**new[0], b"object": new[1][b"object"]}, {**new[1], b"key": new[0][b"key"]}],
    "renumbers": lambda old, new: [{**old[0], b"revision": new[0][b"revision"], b"prior": new[0][b"prior"]}, *new[1:]],
}


@pytest.mark.parametrize("attack", ATTACKS)
async def test_forged_replayed_truncated_and_reordered_entries_change_nothing(
    kind: Any, shared_url: str, redises: tuple[RedisServer, RedisServer], hinted: list[LogRow], attack: str
) -> None:
    async with attacked(kind, shared_url, redises) as world:
        await world.write("a")
        old = await world.said()
        world.tell(*old)
        await world.follows(1)
        new: list[Fields] = []
        for name in ("b", "c", "d"):
            await world.write(name, "a", spec=name)
            new += await world.said()
        world.tell(*ATTACKS[attack](old, new))
        revision = await world.write("e")
        world.tell(*await world.said())
        await world.follows(revision)
        true = {(event.entry.revision, event.entry.key.name) for event in world.writing.watch("pods", 0).take(1000)}
        assert {(row.revision, row.name) for row in hinted} <= true


async def test_redis_sees_no_object_no_name_and_nothing_of_a_secret(
    kind: Any, shared_url: str, redises: tuple[RedisServer, RedisServer], hinted: list[LogRow]
) -> None:
    async with attacked(kind, shared_url, redises) as world:
        await world.write("shop", spec=NEEDLE)
        await world.write("till", resource="secrets", spec=NEEDLE)
        entries = await world.said(2)
        world.tell(*entries)
        await world.following.reached(2, 10)
        assert world.following.get(Key("secrets", "default", "till")) is not None
        assert [row.name for row in hinted] == ["shop"], "a Secret is read from the database"
        assert b"object" in entries[0] and not {b"object", b"key", b"type"} & set(entries[1])
        for entry in entries:
            content = b"\n".join(entry.values())
            for text in (NEEDLE, "shop", "till", "pods", "secrets", "default", "ADDED", "metadata"):
                assert text.encode() not in content


async def test_a_new_key_is_used_by_all_and_the_old_one_ends_after_the_overlap(
    kind: Any,
    shared_url: str,
    redises: tuple[RedisServer, RedisServer],
    hinted: list[LogRow],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def key_of(entry: Fields) -> int:
        return int.from_bytes(entry[b"seal"][1:9], "big")

    monkeypatch.setattr(journal, "_KEY_BEATS", 1)
    async with attacked(kind, shared_url, redises) as world:
        await world.write("a")
        (first,) = await world.said()
        database = await asyncpg.connect(shared_url)
        await rotate_event_key(shared_url)

        async def renewed() -> Fields | None:
            await world.write("a")
            entry = (await world.said())[-1]
            return entry if key_of(entry) != key_of(first) else None

        newer = await eventually(renewed)
        world.tell(first)  # sealed before the rotation, delivered after it
        await world.following.reached(1, 10)
        assert [row.revision for row in hinted] == [1]
        await database.execute("UPDATE shoal.event_key SET made = made - interval '1 hour'")
        await sealing.rotate(database)
        kept = [row["id"] for row in await database.fetch("SELECT id FROM shoal.event_key ORDER BY id")]
        await database.close()
        assert key_of(first) not in kept and key_of(newer) in kept and len(kept) == 2


@asynccontextmanager
async def over_tls(folder: Path, redis: RedisServer) -> AsyncIterator[str]:
    """The Redis behind TLS; host, port and authority as a part of its URL."""
    pki = Pki(folder / "pki", now=datetime.now(UTC))
    context = server_context(pki.ensure_server(("127.0.0.1",)), pki.ca_cert)
    context.verify_mode = ssl.CERT_NONE

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner = await asyncio.open_unix_connection(str(redis.socket))
        await asyncio.gather(copy(reader, inner[1]), copy(inner[0], writer))

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}/0?ssl_ca_certs={pki.ca_cert}"
    finally:
        server.close()


async def test_redis_with_tls_and_a_user_of_its_own_carries_events_and_locks(
    tmp_path: Path, kind: Any, shared_url: str, hinted: list[LogRow]
) -> None:
    (user,) = (line for line in GUIDE.read_text().splitlines() if line.startswith("user shoal on"))
    (tmp_path / "users").write_text(f"user default off\n{user.replace('PASSWORD', 'over+the/sea')}\n")
    with redis_server("--aclfile", str(tmp_path / "users")) as redis:
        async with asyncio.timeout(60), over_tls(tmp_path, redis) as place:
            url = f"rediss://shoal:over%2Bthe%2Fsea@{place}"
            stores = [open_store(shared_url, attrs_of=kind.attrs_of, events=url) for _ in range(2)]
            for store in stores:
                await store.start()
            try:

                async def told() -> bool:
                    await stores[0].commit([kind.put("a")])
                    return bool(hinted)

                await eventually(told, what="an event through Redis")
            finally:
                for store in stores:
                    await store.stop()
            async with local_server() as server:
                client = Client(server.transport, clock=RealClock())

                async def taken(at: str) -> str:
                    locks = ClusterLocks(at, "kube-system", new_id=lambda: "one")
                    try:
                        lock = await locks.lock(client, "leader")
                        now = datetime.now(UTC).isoformat()
                        wanted = LockRecord(holder="one", lease_s=15, acquired_at=now, renewed_at=now)
                        renewed = await lock.update(await lock.create(wanted))
                        found = await lock.get()
                        await lock.update(replace(renewed, holder=""))
                        return "" if found is None else found.holder
                    finally:
                        await locks.close()

                assert await taken(url) == "one"
                for wrong in (url.partition("?")[0], url.replace("sea", "lake")):  # an unknown authority, a password
                    with pytest.raises((RedisError, ShoalError)):
                        await taken(wrong)
