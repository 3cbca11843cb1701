"""The contract of the navigator's database, for SQLite and PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from shoal.errors import ConfigError
from shoal.navigator.digest import fingerprint
from shoal.navigator.manager import schema
from shoal.navigator.manager.postgres import PostgresRows
from shoal.navigator.manager.protocol import Put
from shoal.navigator.manager.rows import (
    PIECE_ROWS,
    ClusterClaimed,
    ClusterHeard,
    ClusterRemoved,
    RowKey,
    Rows,
    RowsChanged,
    SessionEnded,
    StoredCluster,
    StoredOption,
    StoredRow,
    StoredToken,
)
from shoal.navigator.manager.sqlite import SqliteRows
from shoal.navigator.model import KINDS, KindStatus
from shoal.testing.databases import shared_postgres

DAY_MS = 86_400_000
NOW_MS = 20_000 * DAY_MS + 1000

Backend = Callable[[], Rows]


@pytest.fixture(scope="module")
def postgres_url() -> str:
    return shared_postgres().create_database()


@pytest.fixture(params=["sqlite", "postgres"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Backend:
    if request.param == "sqlite":
        return lambda: SqliteRows(tmp_path / "navigator.db")
    url: str = request.getfixturevalue("postgres_url")
    database = url.split("@/")[1].partition("?")[0]
    shared_postgres().sql("DROP SCHEMA public CASCADE; CREATE SCHEMA public", database)
    return lambda: PostgresRows(url)


@asynccontextmanager
async def opened(backend: Backend) -> AsyncIterator[Rows]:
    async with asyncio.timeout(60):
        rows = backend()
        await rows.open()
        try:
            await rows.prepare(NOW_MS)
            yield rows
        finally:
            await rows.close()


def put(key: str, data: bytes = b"{}", kind: str = "pods") -> Put:
    return Put(kind, key, data, fingerprint(kind, key, data))


def changed(at_ms: int, *puts: Put, cluster: str = "east", gone: Sequence[str] = ()) -> RowsChanged:
    return RowsChanged(cluster, at_ms, puts, [("pods", key) for key in gone])


async def everything(pieces: AsyncIterator[list[StoredRow]]) -> list[StoredRow]:
    return sorted([row async for piece in pieces for row in piece])


def cluster(epoch: int = 1, *, name: str = "east", heard_ms: int = NOW_MS) -> StoredCluster:
    return StoredCluster(
        name=name,
        edge=f"edge-{epoch}",
        epoch=epoch,
        software="shoal/1",
        metadata={"region": "eu", "ü": "\x00"},
        interval_s=12.5,
        first_ms=heard_ms,
        heard_ms=heard_ms,
        statuses=(KindStatus(kind="pods", state="failing", error="no\x00way", since_s=1.5),),
    )


async def test_rows_are_stored_replaced_and_removed(backend: Backend) -> None:
    async with opened(backend) as rows:
        await rows.commit([changed(NOW_MS, put("a/1", b'{"v":1}'), put("a/2", b""), put("a/3"))])
        await rows.commit([changed(NOW_MS + 5, put("a/1", b'{"v":2}'), gone=["a/3", "a/4"])])
        found = await everything(rows.load())
        assert found == [
            StoredRow("east", "pods", "a/1", put("a/1", b'{"v":2}').fingerprint, NOW_MS + 5, b'{"v":2}'),
            StoredRow("east", "pods", "a/2", put("a/2", b"").fingerprint, NOW_MS, b""),
        ]
        wanted = [RowKey("east", "pods", "a/3"), RowKey("east", "pods", "a/1"), RowKey("west", "pods", "a/1")]
        assert await rows.objects(wanted) == [None, b'{"v":2}', None]
        assert await rows.objects([]) == []


async def test_committing_the_same_twice_changes_nothing(backend: Backend) -> None:
    async with opened(backend) as rows:
        writes = [
            ClusterClaimed(cluster()),
            changed(NOW_MS, put("a/1", b"1"), put("a/2")),
            changed(NOW_MS + 1, put("a/1", b"2"), gone=["a/2"]),
            SessionEnded("east", 1, NOW_MS + 2),
        ]
        await rows.commit(writes)
        once = await everything(rows.load()), await rows.between(0, NOW_MS * 2), await rows.sessions(NOW_MS * 2)
        await rows.commit(writes[2:])
        again = await everything(rows.load()), await rows.between(0, NOW_MS * 2), await rows.sessions(NOW_MS * 2)
        assert once == again


async def test_everything_survives_reopening_and_is_read_in_pieces(backend: Backend) -> None:
    puts = [put(f"ns/{number}", b"%d" % number) for number in range(PIECE_ROWS + 7)]

    async with opened(backend) as rows:
        await rows.commit(
            [ClusterClaimed(cluster()), changed(NOW_MS, *puts), changed(NOW_MS, *puts[:5], cluster="west")]
        )
    async with opened(backend) as rows:
        found = await everything(rows.load())
        assert len(found) == len(puts) + 5
        assert {(row.key, row.data) for row in found if row.cluster == "east"} == {(p.key, p.data) for p in puts}
        assert await rows.clusters() == [cluster()]


async def test_the_past_has_the_rows_that_held_at_the_moment(backend: Backend) -> None:
    async with opened(backend) as rows:
        await rows.commit([changed(NOW_MS, put("a/1", b"1"), put("a/2", b"x"))])
        await rows.commit([changed(NOW_MS + 10, put("a/1", b"2"))])
        await rows.commit([changed(NOW_MS + 20, gone=["a/1"]), changed(NOW_MS + 20, put("b/1", b"y"), cluster="west")])
        for at_ms, data in ((0, None), (NOW_MS - 1, None), (NOW_MS, b"1"), (NOW_MS + 9, b"1"), (NOW_MS + 10, b"2"),
                            (NOW_MS + 19, b"2"), (NOW_MS + 20, None)):  # fmt: skip
            found = await everything(rows.past(at_ms))
            assert [row.data for row in found] == ([] if data is None else [data]), at_ms
        assert await everything(rows.past(NOW_MS, "west")) == []
        first, second = await everything(rows.past(NOW_MS)), await everything(rows.past(NOW_MS + 10))
        key = RowKey("east", "pods", "a/1")
        assert first[0].since_ms == NOW_MS and second[0].since_ms == NOW_MS + 10
        wanted = [(key, NOW_MS + 10), (key, NOW_MS), (key, 7), (RowKey("east", "pods", "a/2"), NOW_MS)]
        assert await rows.versions(wanted) == [b"2", b"1", None, b"x"]
        replaced = await rows.replaced([(key, NOW_MS + 10), (key, NOW_MS), (key, NOW_MS + 20)])
        assert replaced == [b"1", None, None], "a removed row was not replaced"


async def test_the_past_is_read_in_pieces(backend: Backend) -> None:
    count = PIECE_ROWS * 2 + 3

    async with opened(backend) as rows:
        await rows.commit([changed(NOW_MS, *(put(f"a/{n}", b"1") for n in range(count)))])
        await rows.commit([changed(NOW_MS + 10, *(put(f"a/{n}", b"2") for n in range(count)))])
        found = await everything(rows.past(NOW_MS + 5))
        assert len({row.key for row in found}) == len(found) == count


async def test_what_happened_between_two_moments_in_order(backend: Backend) -> None:
    async with opened(backend) as rows:
        await rows.commit([changed(NOW_MS, put("a/1", b"1"), put("a/2", b"x"))])
        await rows.commit([changed(NOW_MS + 10, put("a/1", b"2"), put("c", b"n", kind="nodes"))])
        await rows.commit([changed(NOW_MS + 20, gone=["a/1"])])
        await rows.commit([changed(NOW_MS + 30, put("a/1", b"3"), cluster="west")])

        def shown(moments: object) -> list[tuple[str, str, float, bytes | None]]:
            return [(one.kind, one.key, round(one.at_s * 1000) - NOW_MS, one.data) for one in moments]  # type: ignore[attr-defined]

        assert shown(await rows.between(NOW_MS, NOW_MS + 30)) == [
            ("pods", "a/1", 0, b"1"), ("pods", "a/2", 0, b"x"), ("nodes", "c", 10, b"n"), ("pods", "a/1", 10, b"2"),
            ("pods", "a/1", 20, None), ("pods", "a/1", 30, b"3"),
        ]  # fmt: skip
        assert shown(await rows.between(NOW_MS + 1, NOW_MS + 29, cluster="east", kind="pods", key="a/1")) == [
            ("pods", "a/1", 10, b"2"), ("pods", "a/1", 20, None),
        ]  # fmt: skip
        assert len(await rows.between(NOW_MS, NOW_MS + 30, limit=2)) == 2


async def test_retention_deletes_ended_rows_and_keeps_current_ones(backend: Backend) -> None:
    async with opened(backend) as rows:
        for day in range(4):
            await rows.prepare(NOW_MS + day * DAY_MS)
        await rows.commit([ClusterClaimed(cluster()), changed(NOW_MS, put("a/1", b"0"), put("a/old", b"old"))])
        for day in range(1, 4):
            await rows.commit([changed(NOW_MS + day * DAY_MS, put("a/1", b"%d" % day))])
        before_ms = NOW_MS + 2 * DAY_MS + 1
        while await rows.expire(before_ms):
            pass
        assert [row.data for row in await everything(rows.past(NOW_MS + 3 * DAY_MS - 1))] == [b"2"]
        assert (
            await everything(rows.past(NOW_MS))
            == await everything(rows.past(NOW_MS + DAY_MS))
            == [row for row in await everything(rows.past(NOW_MS)) if row.data == b"2"]
        )
        assert {row.data for row in await everything(rows.load())} == {b"3", b"old"}
        assert len(await rows.sessions(before_ms)) == 1, "a session that goes on is not old"


async def test_the_history_of_events_can_be_deleted_earlier_than_that_of_other_kinds(backend: Backend) -> None:
    assert schema.IS_TRANSIENT == f"kind = '{next(name for name, kind in KINDS.items() if kind.transient)}'"
    assert sum(kind.transient for kind in KINDS.values()) == 1
    async with opened(backend) as rows:
        await rows.commit([ClusterClaimed(cluster(1))])
        await rows.commit([RowsChanged("east", NOW_MS, (put("a/1", kind="events"), put("a/1")), ())])
        await rows.commit([RowsChanged("east", NOW_MS + 10, (), (("events", "a/1"), ("pods", "a/1")))])
        assert await rows.expire(NOW_MS + 5, transient=True) == 0
        assert await rows.expire(NOW_MS + 11, transient=True) == 1
        assert await rows.expire(NOW_MS + 11, transient=True) == 0
        assert [row.kind for row in await everything(rows.past(NOW_MS))] == ["pods"]


async def test_sessions_show_which_edge_held_a_cluster_and_when(backend: Backend) -> None:
    async with opened(backend) as rows:
        assert await rows.first_session_ms() == 0
        await rows.commit([ClusterClaimed(cluster(1, heard_ms=NOW_MS))])
        await rows.commit([ClusterHeard("east", NOW_MS + 50, (KindStatus(kind="pods", state="synced"),))])
        await rows.commit([SessionEnded("east", 1, NOW_MS + 60)])
        await rows.commit([ClusterClaimed(cluster(2, heard_ms=NOW_MS + 100)), ClusterClaimed(cluster(1, name="west"))])
        await rows.commit([ClusterHeard("east", NOW_MS + 150, ())])
        assert await rows.sessions(NOW_MS - 1) == []
        assert await rows.first_session_ms() == NOW_MS
        assert [tuple(one) for one in await rows.sessions(NOW_MS + 99)] == [
            ("east", "edge-1", 1, NOW_MS, NOW_MS + 60), ("west", "edge-1", 1, NOW_MS, 0),
        ]  # fmt: skip
        (east, _) = await rows.clusters()
        assert (east.epoch, east.heard_ms, east.first_ms, east.statuses) == (2, NOW_MS + 150, NOW_MS, ())
    async with opened(backend) as rows:
        found = {one.cluster: one for one in await rows.sessions(NOW_MS + 1000)}
        assert found["east"].ended_ms == NOW_MS + 150, "ended when it was last heard of: the process was killed"


async def test_a_forgotten_cluster_is_gone_but_for_its_past(backend: Backend) -> None:
    async with opened(backend) as rows:
        await rows.commit([ClusterClaimed(cluster()), ClusterClaimed(cluster(name="west"))])
        await rows.commit([changed(NOW_MS, put("a/1", b"1")), changed(NOW_MS, put("a/1", b"w"), cluster="west")])
        await rows.commit([ClusterRemoved("east", NOW_MS + 10)])
        assert [one.name for one in await rows.clusters()] == ["west"]
        assert [row.cluster for row in await everything(rows.load())] == ["west"]
        assert [row.data for row in await everything(rows.past(NOW_MS + 5))] == [b"1"]


async def test_tokens_are_kept_replaced_and_seen_by_other_processes(backend: Backend) -> None:
    async with opened(backend) as rows:
        token = StoredToken(id="t1", kind="edge", cluster="east", digest="d1", created_ms=1, expires_ms=5)
        other = backend()
        await other.open(manager=False)
        try:
            await other.save_token(token)
            assert await rows.tokens() == [token]
            token = StoredToken(
                id="t1", kind="edge", cluster="east", digest="d2", created_ms=1, revoked_ms=3, previous_digest="d1",
                previous_until_ms=9, scopes=(),
            )  # fmt: skip
            await rows.save_token(token)
            assert await other.tokens() == [token]
        finally:
            await other.close()


async def test_scopes_of_tokens_are_kept_and_tokens_from_before_scopes_read_everything(backend: Backend) -> None:
    rows = backend()
    steps = "SQLITE" if isinstance(rows, SqliteRows) else "POSTGRES"
    scoped = next(number for number, step in enumerate(getattr(schema, steps)) if "scopes" in step[0])
    insert = "INSERT INTO nav_tokens VALUES ('{id}', '{kind}', '', 'digest-{id}', 1, 0, 0, '', 0)"
    with pytest.MonkeyPatch.context() as patch:
        before = [*getattr(schema, steps)[:scoped]]
        tokens = tuple(insert.format(id=kind, kind=kind) for kind in ("admin", "viewer", "edge"))
        patch.setattr(schema, steps, [*before[:-1], (*before[-1], *tokens)])
        await rows.open()
        await rows.close()
    async with opened(backend) as rows:
        assert {token.kind: token.scopes for token in await rows.tokens()} == {
            "admin": ("*",), "viewer": ("*",), "edge": (),
        }  # fmt: skip
        limited = StoredToken(
            id="t2", kind="viewer", cluster="", digest="d", created_ms=1, scopes=("cluster=a", "workspace=w")
        )
        await rows.save_token(limited)
        assert limited in await rows.tokens()


async def test_options_are_kept_per_cluster_and_replaced_whole(backend: Backend) -> None:
    async with opened(backend) as rows:
        await rows.replace_options("", {"sync.interval_s": "10", "namespaces.exclude": "kube-*"})
        await rows.replace_options("east", {"sync.interval_s": "5"})
    async with opened(backend) as rows:
        found = [StoredOption("", "namespaces.exclude", "kube-*"), StoredOption("", "sync.interval_s", "10"),
                 StoredOption("east", "sync.interval_s", "5")]  # fmt: skip
        assert await rows.options() == found
        await rows.replace_options("", {})
        assert await rows.options() == found[2:]


async def test_there_is_one_manager_per_postgresql(postgres_url: str) -> None:
    async with asyncio.timeout(30):
        first, second = PostgresRows(postgres_url), PostgresRows(postgres_url)
        await first.open()
        with pytest.raises(ConfigError, match="another navigator manager"):
            await second.open()
        await first.close()
        third = PostgresRows(postgres_url)
        await third.open()
        await third.close()


async def test_tables_of_a_newer_version_are_left_alone(backend: Backend) -> None:
    from shoal.navigator.manager import schema

    async with opened(backend):
        pass  # only made
    rows = backend()
    steps = schema.SQLITE if isinstance(rows, SqliteRows) else schema.POSTGRES

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schema, "SQLITE" if isinstance(rows, SqliteRows) else "POSTGRES", steps[:0])
        with pytest.raises(ConfigError, match="newer Shoal"):
            await rows.open()
    await rows.close()
