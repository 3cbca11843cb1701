"""What every database of the fleet keeps: one order of changes, all or nothing, and an answer when it is away."""

from __future__ import annotations

import asyncio
import fcntl
import itertools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event, func, insert, inspect, select, text, update
from sqlalchemy.exc import IntegrityError

from shoal.base.clock import Clock, FakeClock, RealClock
from shoal.base.ids import Ids
from shoal.control.database import migrations
from shoal.control.database.changes import forget
from shoal.control.database.connections import DatabaseTimeouts
from shoal.control.database.engine import Database
from shoal.control.database.failures import Undone, Unsure
from shoal.control.database.migrate import make_tables, upgrade
from shoal.control.database.retention import Retention, sweep
from shoal.control.database.tables import (
    Audit,
    Base,
    Change,
    Compatibility,
    Desired,
    Event,
    Idempotency,
    RolloutCheck,
    Workspace,
)
from shoal.control.database.transaction import DesiredObject, Tx
from shoal.control.service.desired.queries import queries
from shoal.errors import ConfigError, ServiceUnavailable
from shoal.sync.keys import Place
from shoal.testing.changes import changes_after, desired_index
from shoal.testing.databases import PostgresServer, postgres_server, redis_server, shared_postgres, shared_redis
from shoal.testing.waiting import eventually

HERE = Place("clu_a", "s0")
DAY_MS = 24 * 3600 * 1000
QUICK = DatabaseTimeouts(begin_s=0.3)  # to give up; a busy machine may still take its time to answer


@dataclass
class Backend:
    """Where a test has its database; ``open`` again is another control plane on the same."""

    url: str
    events: str = ""
    clock: Clock = field(default_factory=RealClock)

    async def open(self, **options: Any) -> Database:
        return await Database.open(self.url, **{"clock": self.clock, "ids": Ids(), "events": self.events, **options})

    @asynccontextmanager
    async def opened(self, **options: Any) -> AsyncIterator[Database]:
        async with asyncio.timeout(60):
            database = await self.open(**options)
            try:
                yield database
            finally:
                await database.close()

    @property
    def is_shared(self) -> bool:
        """Whether several processes may use it."""
        return self.url.startswith("postgresql")


async def _make_template(url: str) -> None:
    """Tables in a database that is nobody's yet: copying it takes a fraction of the time of making another."""

    async with Backend(url).opened() as database:
        async with database.transaction() as tx:
            await tx.session.execute(text("DELETE FROM counters"))


@cache
def _sqlite_template() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_make_template(f"sqlite:///{folder}/fleet.db"))
        return Path(folder, "fleet.db").read_bytes()


@cache
def _postgres_template() -> str:
    name = f"fleet_template_{os.getpid()}"
    asyncio.run(_make_template(shared_postgres().create_database(name)))
    return name


_copies = itertools.count()


def _sqlite(folder: Path) -> str:
    (folder / "fleet.db").write_bytes(_sqlite_template())
    return f"sqlite:///{folder}/fleet.db"


def _postgres() -> str:
    name = f"fleet_{os.getpid()}_{next(_copies)}"
    shared_postgres().sql(f'CREATE DATABASE "{name}" TEMPLATE "{_postgres_template()}"')
    return shared_postgres().url(name)


@pytest.fixture(params=["sqlite", "postgres"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Backend:
    return Backend(_sqlite(tmp_path) if request.param == "sqlite" else _postgres())


@pytest.fixture(params=["sqlite", "postgres"])
def empty(request: pytest.FixtureRequest, tmp_path: Path) -> Backend:
    """Without any tables."""
    return Backend(
        f"sqlite:///{tmp_path}/fleet.db" if request.param == "sqlite" else shared_postgres().create_database()
    )


@pytest.fixture(params=["postgres", "postgres and redis"])
def shared(request: pytest.FixtureRequest) -> Backend:
    return Backend(_postgres(), events=shared_redis().url if "redis" in request.param else "")


@pytest.fixture(scope="module")
def harmed_postgres() -> Iterator[PostgresServer]:
    with postgres_server() as server:
        yield server


@pytest.fixture
def own_postgres(harmed_postgres: PostgresServer) -> Iterator[PostgresServer]:
    """A server that the test may stop, kill and pause."""
    yield harmed_postgres
    if not harmed_postgres.running:
        harmed_postgres.start()


async def count(database: Database, table: Any) -> int:
    async with database.reading() as session:
        return int((await session.execute(select(func.count()).select_from(table))).scalar_one())


async def row_of(database: Database, key: str, place: Place = HERE) -> Desired:
    async with database.reading() as session:
        asked = select(Desired).where(Desired.key == key, Desired.cluster_id == place.cluster)
        return (await session.execute(asked)).scalar_one()


async def want(database: Database, key: str, place: Place = HERE, **options: Any) -> int:
    async with database.transaction(**options) as tx:
        return await tx.want(place, key, workspace_id="ws_1", namespace="ns", name="web")


# Opening


async def test_a_database_stays_who_it_is(backend: Backend) -> None:
    async with backend.opened() as database:
        assert database.fleet.startswith("fleet-")
        assert len(database.signing_key) >= 32
        again = await backend.open(fleet=database.fleet)
        try:
            assert (again.fleet, again.signing_key) == (database.fleet, database.signing_key)
            assert await again.position() == await database.position()
        finally:
            await again.close()
        with pytest.raises(ConfigError, match="was set up as 'main'"):
            await backend.open(name="other")
        with pytest.raises(ConfigError, match="belongs to the fleet"):
            await backend.open(fleet="fleet-of-others")


async def test_the_migrations_make_the_tables_of_the_models(empty: Backend) -> None:
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    async with empty.opened() as database:

        def differences(connection: Any) -> Any:
            context = MigrationContext.configure(connection, opts={"compare_type": True})
            return compare_metadata(context, Base.metadata)

        def columns(connection: Any) -> Any:
            found = inspect(connection)
            return {
                (table, each["name"]): (str(each["type"]), each["nullable"], each["default"])
                for table in found.get_table_names()
                for each in found.get_columns(table)
            }

        def migrate(connection: Any) -> None:
            Base.metadata.drop_all(connection)
            connection.execute(text("DROP TABLE alembic_version"))
            upgrade(connection)

        async with database.transaction() as tx:
            connection = await tx.session.connection()
            made = await connection.run_sync(columns)  # at once: the database was empty
            assert await connection.run_sync(differences) == []
            await connection.run_sync(migrate)
            assert await connection.run_sync(differences) == []
            assert await connection.run_sync(columns) == made  # defaults too, which programs of the release before need


def test_the_newest_revision_is_the_one_that_is_named() -> None:
    from alembic.script import ScriptDirectory

    script = ScriptDirectory(str(Path(migrations.__file__).parent))
    assert script.get_heads() == [migrations.HEAD]
    assert [step.revision for step in script.walk_revisions()] == list(reversed(migrations.REVISIONS))


async def test_a_database_of_a_later_version_is_refused(backend: Backend) -> None:
    async with backend.opened() as database:
        async with database.transaction() as tx:
            await tx.session.execute(text("UPDATE alembic_version SET version_num = '9999'"))
            await tx.session.execute(text("DROP TABLE compatibility"))  # as versions before 0.2.0 left it
        with pytest.raises(ConfigError, match="'9999'.*does not know"):
            await backend.open()


async def change_tables(database: Database, *, oldest: str) -> None:
    """What a later version does at its start: another revision, a new table and a column that has a default."""
    async with database.transaction() as tx:
        for statement in (
            "UPDATE alembic_version SET version_num = '9999'",
            f"UPDATE compatibility SET oldest = '{oldest}'",
            "CREATE TABLE inventions (id INTEGER PRIMARY KEY)",
            "ALTER TABLE workspaces ADD COLUMN colour VARCHAR(16) NOT NULL DEFAULT 'blue'",
        ):
            await tx.session.execute(text(statement))


async def test_the_version_before_starts_again_on_tables_that_a_later_one_changed(
    backend: Backend, capsys: pytest.CaptureFixture[str]
) -> None:
    async with backend.opened() as database:
        await change_tables(database, oldest=migrations.REVISIONS[-1])
        fleet = database.fleet
    async with backend.opened() as database:
        assert database.fleet == fleet
        async with database.transaction() as tx:
            tx.session.add(Workspace(id="wsp_a", name="a", created_at=1))
            await tx.number()
        async with database.reading() as session:
            assert (await session.execute(text("SELECT colour FROM workspaces"))).scalars().all()[-1] == "blue"
            assert (await session.execute(text("SELECT version_num FROM alembic_version"))).scalar() == "9999"
    assert "a later version of Shoal has changed the tables" in capsys.readouterr().err


async def test_tables_that_do_not_work_with_the_version_before_are_refused_by_it(backend: Backend) -> None:
    async with backend.opened() as database:
        await change_tables(database, oldest="9998")
        with pytest.raises(ConfigError, match="'9999'.*does not know"):
            await backend.open()


async def test_every_database_says_which_programs_work_with_its_tables(empty: Backend) -> None:
    async with empty.opened() as database, database.reading() as session:
        assert (await session.execute(select(Compatibility.oldest))).scalars().all() == [migrations.OLDEST]
    assert migrations.OLDEST in migrations.REVISIONS


async def test_a_migration_that_fails_leaves_nothing_behind(empty: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(step: Any) -> Any:
        def fail(connection: Any) -> None:
            step(connection)
            raise RuntimeError("no")

        return fail

    for step in (upgrade, make_tables):
        with monkeypatch.context() as patched:
            patched.setattr("shoal.control.database.migrate.make_tables", failing(step))
            with pytest.raises(RuntimeError):
                await empty.open()
    database = await empty.open()
    try:
        assert (await database.position()).number == 0
    finally:
        await database.close()


OPENER = """
import asyncio, sys
from shoal.base.clock import RealClock
from shoal.base.ids import Ids
from shoal.control.database.engine import Database

async def main():
    database = await Database.open(sys.argv[1], clock=RealClock(), ids=Ids())
    print(database.fleet, database.signing_key.decode())
    await database.close()

asyncio.run(main())
"""


def test_processes_that_start_at_once_make_the_tables_once(empty: Backend) -> None:
    processes = [
        subprocess.Popen([sys.executable, "-c", OPENER, empty.url], stdout=subprocess.PIPE, text=True) for _ in range(3)
    ]
    said = {process.communicate(timeout=60)[0] for process in processes}
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert len(said) == 1


async def test_who_opens_a_file_waits_for_whoever_is_making_its_tables(tmp_path: Path) -> None:
    backend = Backend(f"sqlite:///{tmp_path}/fleet.db")

    async with asyncio.timeout(30):
        with (tmp_path / "fleet.db.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            opening = asyncio.create_task(backend.open())
            done, _ = await asyncio.wait([opening], timeout=0.2)
            assert not done
        await (await opening).close()


async def test_sqlite_keeps_what_it_acknowledged_and_is_private(tmp_path: Path) -> None:
    backend = Backend(f"sqlite:///{tmp_path}/deep/fleet.db")

    async with backend.opened() as database:
        async with database.transaction() as tx:
            for pragma, value in (("journal_mode", "wal"), ("synchronous", 2), ("foreign_keys", 1)):
                assert (await tx.session.execute(text(f"PRAGMA {pragma}"))).scalar() == value
        for path in (tmp_path / "deep").iterdir():
            assert path.stat().st_mode & 0o077 == 0, path


async def test_urls_of_other_databases_are_refused_without_their_password() -> None:
    with pytest.raises(ConfigError, match="use sqlite:///PATH or postgresql://") as refused:
        await Database.open("mysql://me:hunter2@host/db", clock=RealClock(), ids=Ids())
    assert "hunter2" not in str(refused.value)


# Transactions


async def test_a_change_is_in_both_tables_with_its_number(backend: Backend) -> None:
    async with backend.opened() as database:
        async with database.transaction(actor="eve", by_user=True, trace="00-ab-cd-01") as tx:
            first = await tx.want(HERE, "deployment/dep_1", workspace_id="ws_1", namespace="ns", name="web")
            second = await tx.want(HERE, "route/rt_1", workspace_id="ws_2")
        assert (first, second) == (1, 2)
        row = await row_of(database, "deployment/dep_1")
        assert (row.number, row.action, row.by_user, row.trace) == (1, "apply", True, "00-ab-cd-01")
        assert (row.kind, row.object_id, row.stream, row.namespace, row.name) == (
            "deployment", "dep_1", "deployments", "ns", "web",
        )  # fmt: skip
        assert (row.applied_number, row.error, row.observed, row.gone_at) == (0, None, None, 0)
        found = await changes_after(database, 0)
        assert [(c.number, c.workspace_id, c.stream, c.place, c.key) for c in found] == [
            (1, "ws_1", "deployments", HERE, "deployment/dep_1"),
            (2, "ws_2", "sentinels", HERE, "route/rt_1"),
        ]
        assert await changes_after(database, 1) == found[1:]
        assert (await database.position()).number == 2


async def test_a_transaction_that_fails_changes_nothing_and_uses_no_number(backend: Backend) -> None:
    async with backend.opened() as database:
        with pytest.raises(ZeroDivisionError):
            async with database.transaction() as tx:
                await tx.want(HERE, "deployment/dep_1", workspace_id="ws_1")
                tx.event(workspace_id="w", kind="App", object_id="a", name="a", reason="R", message="m")
                tx.audit(workspace_id="w", action="apply", kind="App", object_id="a", name="a", diff=None)
                raise ZeroDivisionError
        assert await count(database, Desired) == await count(database, Change) == 0
        assert await count(database, Event) == await count(database, Audit) == 0
        assert await want(database, "deployment/dep_2") == 1


async def test_a_broken_rule_is_not_taken_for_an_outage(backend: Backend) -> None:
    async with backend.opened() as database:
        async with database.transaction() as tx:
            tx.session.add(Workspace(id="ws_1", name="one", created_at=tx.now))
        with pytest.raises(IntegrityError):
            async with database.transaction() as tx:
                tx.session.add(Workspace(id="ws_2", name="one", created_at=tx.now))


async def test_a_block_is_not_committed_by_hand_and_not_nested(backend: Backend) -> None:
    async with backend.opened() as database:
        with pytest.raises(RuntimeError, match="when its block ends"):
            async with database.transaction() as tx:
                await tx.session.commit()
        with pytest.raises(RuntimeError, match="would deadlock"):
            async with database.transaction(), database.transaction():
                pass
        assert await want(database, "deployment/dep_1") == 1


async def test_events_and_audit_are_kept_with_who_did_it(backend: Backend) -> None:
    async with backend.opened() as database:
        async with database.transaction(actor="eve", correlation="c-1") as tx:
            tx.event(
                workspace_id="w", kind="App", object_id="a", name="p/e/a", reason="Placed", message="m", region="eu"
            )
            tx.audit(workspace_id="w", action="apply", kind="App", object_id="a", name="p/e/a", diff=[{"path": "x"}])
        async with database.reading() as session:
            event_ = (await session.execute(select(Event))).scalar_one()
            audit = (await session.execute(select(Audit))).scalar_one()
        assert (event_.reason, event_.type, event_.region, event_.at > 0) == ("Placed", "Normal", "eu", True)
        assert (audit.actor, audit.correlation, audit.diff) == ("eve", "c-1", [{"path": "x"}])


async def test_changes_wishes_and_events_name_the_request_that_they_follow_from(backend: Backend) -> None:
    async with backend.opened() as database:
        async with database.transaction(correlation="c-1") as tx:
            await tx.want(HERE, "deployment/dep_1", workspace_id="w")
            await tx.want(HERE, "deployment/dep_2", workspace_id="w")
            with tx.caused_by("c-2"):
                await tx.want(HERE, "route/rt_1", workspace_id="w")
                await tx.unwant(HERE, "deployment/dep_2")
                tx.event(workspace_id="w", kind="App", object_id="a", name="p/e/a", reason="Ready", message="m")
            kept = DesiredObject(place=HERE, key="route/rt_2", workspace_id="w", correlation="c-3")
            await tx.want_many([kept])
        async with database.reading() as session:
            wishes = {row.key: row.correlation for row in await session.scalars(select(Desired))}
            changes = [
                (row.key, row.correlation) for row in await session.scalars(select(Change).order_by(Change.number))
            ]
            event_ = (await session.execute(select(Event))).scalar_one()
        assert wishes == {
            "deployment/dep_1": "c-1",
            "deployment/dep_2": "c-2",
            "route/rt_1": "c-2",
            "route/rt_2": "c-3",
        }
        assert changes == [
            ("deployment/dep_1", "c-1"), ("deployment/dep_2", "c-1"), ("route/rt_1", "c-2"),
            ("deployment/dep_2", "c-2"), ("route/rt_2", "c-3"),
        ]  # fmt: skip
        assert event_.correlation == "c-2"


async def test_a_control_plane_that_knows_nothing_of_correlation_writes_beside_one_that_does(backend: Backend) -> None:
    """The statements of the version before, which runs on until it is replaced."""
    async with backend.opened() as database:
        async with database.transaction(serial=False) as tx:
            for statement in (
                "INSERT INTO changes (number, workspace_id, stream, cluster_id, shard, key, created_at) "
                "VALUES (1, 'w', 'deployments', 'c', 's', 'deployment/a', 1)",
                "INSERT INTO events (workspace_id, at, type, reason, kind, object_id, name, region, message) "
                "VALUES ('w', 1, 'Normal', 'Ready', 'App', 'a', 'a', '', 'm')",
            ):
                await tx.session.execute(text(statement))
        async with database.reading() as session:
            change = (await session.execute(select(Change))).scalar_one()
            event_ = (await session.execute(select(Event))).scalar_one()
        assert (change.correlation, change.applied_at, event_.correlation) == ("", 0, "")


async def test_transactions_do_not_see_each_other_half_done(backend: Backend) -> None:
    """Read, wait, write: nobody's addition is lost."""

    async with backend.opened() as database:
        async with database.transaction() as tx:
            tx.session.add(Workspace(id="ws_1", name="0", created_at=0))
        others = [database, await backend.open()] if backend.is_shared else [database]

        async def add(to: Database) -> None:
            for _ in range(5):
                async with to.transaction() as tx:
                    row = await tx.session.get_one(Workspace, "ws_1")
                    await asyncio.sleep(0.001)  # time for the others to read the same row, if they could
                    row.created_at += 1

        try:
            await asyncio.gather(*(add(one) for one in others for _ in range(3)))
            async with database.reading() as session:
                assert (await session.get_one(Workspace, "ws_1")).created_at == 15 * len(others)
        finally:
            for other in others[1:]:
                await other.close()


async def test_a_transaction_that_is_cancelled_is_undone_and_in_nobodys_way(backend: Backend) -> None:
    async with backend.opened() as database:
        inside = asyncio.Event()

        async def stuck() -> None:
            async with database.transaction() as tx:
                await tx.want(HERE, "deployment/dep_1", workspace_id="ws_1")
                inside.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(stuck())
        await inside.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await want(database, "deployment/dep_2") == 1
        assert [row.key for row in await desired_index(database)] == ["deployment/dep_2"]


async def test_cancelling_at_any_moment_leaves_a_database_that_works(backend: Backend) -> None:
    async with backend.opened() as database:
        for turns in range(40):
            task = asyncio.create_task(want(database, f"deployment/dep_{turns}"))
            for _ in range(turns):
                await asyncio.sleep(0)
            if turns % 3 == 0:
                await asyncio.sleep(0.001)
            task.cancel()
            await asyncio.wait([task])
        number = await want(database, "deployment/last")
        kept = {row.key: row.number for row in await desired_index(database)}
        told = {change.key: change.number for change in await changes_after(database, 0)}
        assert kept == told
        assert number == max(told.values()) == (await database.position()).number


async def test_reading_is_of_one_moment_and_cannot_write(backend: Backend) -> None:
    async with backend.opened() as database:
        await want(database, "deployment/dep_1")
        async with database.reading() as session:
            asked = select(func.count()).select_from(Desired)
            before = (await session.execute(asked)).scalar_one()
            await want(database, "deployment/dep_2")
            assert (await session.execute(asked)).scalar_one() == before == 1
        assert await count(database, Desired) == 2
        with pytest.raises(Exception, match="(?i)read-?only|away"):
            async with database.reading() as session:
                await session.execute(insert(Workspace).values(id="w", name="w", created_at=0))


# Wanting


async def test_what_is_no_longer_wanted_stays_as_a_tombstone(backend: Backend) -> None:
    async with backend.opened() as database:
        await want(database, "deployment/dep_1")
        async with database.transaction() as tx:
            gone = await tx.unwant(HERE, "deployment/dep_1")
            assert await tx.unwant(HERE, "deployment/dep_1") == gone
            assert await tx.unwant(HERE, "deployment/never") == 0
        row = await row_of(database, "deployment/dep_1")
        assert (row.action, row.number, row.namespace, row.name) == ("delete", gone, "ns", "web")
        assert [change.number for change in await changes_after(database, 1)] == [gone]
        async with database.transaction() as tx:
            assert await tx.unwant(HERE, "deployment/dep_1") == gone
        assert len(await changes_after(database, 1)) == 1


async def test_a_person_who_deletes_what_was_already_going_is_heard(backend: Backend) -> None:
    async with backend.opened() as database:
        await want(database, "deployment/dep_1")
        async with database.transaction() as tx:
            first = await tx.unwant(HERE, "deployment/dep_1")
        async with database.transaction(by_user=True) as tx:
            second = await tx.unwant(HERE, "deployment/dep_1")
        async with database.transaction() as tx:
            third = await tx.unwant(HERE, "deployment/dep_1")
        assert first < second == third
        assert (await row_of(database, "deployment/dep_1")).by_user


async def test_release_and_delete_are_different_wishes(backend: Backend) -> None:
    async with backend.opened() as database:
        await want(database, "deployment/dep_1")
        async with database.transaction() as tx:
            released = await tx.unwant(HERE, "deployment/dep_1", action="release")
        assert (await row_of(database, "deployment/dep_1")).action == "release"
        async with database.transaction() as tx:
            assert await tx.unwant(HERE, "deployment/dep_1") > released
        assert (await row_of(database, "deployment/dep_1")).action == "delete"


async def test_what_is_wanted_again_forgets_what_was_said_of_the_old_one(backend: Backend) -> None:
    reported = {
        "applied_incarnation": 1, "applied_number": 1, "applied_at": 5, "observed": {"available": 1},
        "error": {"reason": "x"}, "report_epoch": 3, "report_sequence": 9, "fingerprint": 7,
    }  # fmt: skip

    async def report(database: Database, **values: Any) -> None:
        async with database.transaction(serial=False) as tx:
            await tx.session.execute(update(Desired).values(**values))

    async with backend.opened() as database:
        await want(database, "deployment/dep_1")
        await report(database, **reported)
        async with database.transaction() as tx:
            await tx.want(HERE, "deployment/dep_1", workspace_id="ws_1")
        row = await row_of(database, "deployment/dep_1")
        assert (row.applied_number, row.observed, row.namespace, row.name) == (1, {"available": 1}, "ns", "web")

        async with database.transaction() as tx:
            await tx.unwant(HERE, "deployment/dep_1")
        await report(database, gone_at=99)
        await want(database, "deployment/dep_1")
        row = await row_of(database, "deployment/dep_1")
        assert (row.action, row.gone_at, row.applied_number, row.observed, row.error) == ("apply", 0, 0, None, None)
        assert (row.report_epoch, row.report_sequence) == (3, 9), "an old report must not be taken for a new one"


async def test_a_thousand_places_take_as_many_statements_as_one(backend: Backend) -> None:
    async def statements_for(database: Database, places: int) -> int:
        said: list[str] = []

        def note(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
            said.append(statement)

        async with database.transaction() as tx:
            connection = (await tx.session.connection()).sync_connection
            event.listen(connection, "before_cursor_execute", note)
            try:
                numbers = await tx.want_many(
                    [
                        DesiredObject(place=Place(f"clu_{n}", "s0"), key="deployment/dep_1", workspace_id="w")
                        for n in range(places)
                    ]
                )
                assert numbers == sorted(set(numbers))
                assert len(numbers) == places
            finally:
                event.remove(connection, "before_cursor_execute", note)
        return len(said)

    async with backend.opened() as database:
        assert await statements_for(database, 1000) == await statements_for(database, 1)
        assert await count(database, Desired) == 1000
        async with database.transaction() as tx:
            numbers = await tx.unwant_many([(Place(f"clu_{n}", "s0"), "deployment/dep_1") for n in range(1000)])
        assert [change.number for change in await changes_after(database, numbers[0] - 1)] == numbers


async def test_of_the_same_object_twice_the_later_wins(backend: Backend) -> None:
    async with backend.opened() as database:
        one = DesiredObject(place=HERE, key="deployment/dep_1", workspace_id="w", namespace="a", name="a")
        two = DesiredObject(place=HERE, key="deployment/dep_1", workspace_id="w", namespace="b", name="b")
        async with database.transaction() as tx:
            first, second = await tx.want_many([one, two])
        row = await row_of(database, "deployment/dep_1")
        assert (row.number, row.namespace) == (second, "b")
        assert [change.number for change in await changes_after(database, 0)] == [first, second]


async def test_texts_of_every_kind_pass_unharmed(backend: Backend) -> None:
    async with backend.opened() as database:
        odd = "ünï \"quoted\" 'single' \\ {json} :bind %s 🐟"
        async with database.transaction(trace="'; DROP") as tx:
            await tx.want(HERE, "deployment/dep_1", workspace_id="w", namespace="n", name=odd)
        row = await row_of(database, "deployment/dep_1")
        assert (row.name, row.trace) == (odd, "'; DROP")


# The order of changes


async def test_whoever_follows_the_numbers_misses_nothing(backend: Backend) -> None:
    """Writers of several control planes dawdle between taking a number and the commit, and some give up; a reader
    asks for what is after the last number it saw."""
    writers, rounds = 6, 8

    async with backend.opened() as database:
        planes = [database]
        if backend.is_shared:
            planes += [await backend.open(), await backend.open()]
        written: list[int] = []
        done = asyncio.Event()

        async def write(plane: Database, who: int) -> None:
            for n in range(rounds):
                gives_up = (who + n) % 4 == 0
                try:
                    async with plane.transaction(serial=(who + n) % 2 == 0) as tx:
                        taken = [await tx.number()]
                        await asyncio.sleep(((who * 7 + n * 3) % 5) / 1000)
                        taken = [
                            await tx.want(HERE, f"deployment/dep_{who}_{n}_{i}", workspace_id="w") for i in range(3)
                        ]
                        if gives_up:
                            raise ZeroDivisionError
                except ZeroDivisionError:
                    continue
                written.extend(taken)

        async def follow(plane: Database) -> list[int]:
            seen: list[int] = []
            last = 0
            while True:
                ending = done.is_set()
                found = await changes_after(plane, last, limit=5)
                seen += [change.number for change in found]
                last = seen[-1] if seen else 0
                if ending and not found:
                    return seen
                if not found:
                    await plane.wait_for_change(last, 0.02)

        readers = [asyncio.create_task(follow(plane)) for plane in planes]
        try:
            await asyncio.gather(*(write(planes[who % len(planes)], who) for who in range(writers)))
            done.set()
            for reader in readers:
                assert await reader == sorted(written)
            assert len(set(written)) == len(written) == writers * rounds * 3 * 3 // 4
        finally:
            for plane in planes[1:]:
                await plane.close()


async def test_whoever_takes_a_number_late_waits_and_is_still_in_order(shared: Backend) -> None:
    async with shared.opened() as database:
        other = await shared.open()
        took, finish = asyncio.Event(), asyncio.Event()

        async def slow() -> int:
            async with database.transaction() as tx:
                number = await tx.want(HERE, "deployment/slow", workspace_id="w")
                took.set()
                await finish.wait()
            return number

        try:
            first = asyncio.create_task(slow())
            await took.wait()
            second = asyncio.create_task(want(other, "deployment/fast", serial=False))
            done, _ = await asyncio.wait([second], timeout=0.1)
            assert not done, "a number was given out although a lower one was not committed"
            assert await changes_after(other, 0) == []
            finish.set()
            assert (await first, await second) == (1, 2)
        finally:
            await other.close()


async def test_the_index_has_every_object_once(backend: Backend) -> None:
    async with backend.opened() as database:
        wanted = [
            DesiredObject(place=Place(f"clu_{c}", f"s{s}"), key=f"{kind}/x{n}", workspace_id="w")
            for c in range(2) for s in range(2) for kind in ("deployment", "route") for n in range(5)
        ]  # fmt: skip
        async with database.transaction() as tx:
            numbers = await tx.want_many(wanted)
        async with database.moment() as ask:
            rows = await ask(queries(database.dialect).index, {})
        found = {(Place(row.cluster_id, row.shard), row.key): (row.number, row.action) for row in rows}
        assert len(rows) == len(found)
        assert found == {(w.place, w.key): (n, "apply") for w, n in zip(wanted, numbers, strict=True)}


async def test_a_new_incarnation_is_begun_once_by_those_who_agree(backend: Backend) -> None:
    async with backend.opened() as database:
        await want(database, "deployment/dep_1")
        assert (await database.position()).incarnation == 1
        await asyncio.gather(*(database.new_incarnation("backup", after=1) for _ in range(3)))
        position = await database.position()
        assert (position.incarnation, position.oldest) == (2, position.number)
        assert await want(database, "deployment/dep_1") == position.number + 1
        assert (await database.new_incarnation("again")).incarnation == 3


# Wake-ups


async def test_who_waits_is_woken_by_a_commit_of_this_process(backend: Backend) -> None:
    async with backend.opened() as database:
        waiting = asyncio.create_task(database.wait_for_change(0, 30))
        await asyncio.sleep(0)
        await want(database, "deployment/dep_1")
        async with asyncio.timeout(10):
            await waiting
            await database.wait_for_change(0, 30)  # it is there already


async def test_who_waits_is_woken_by_a_commit_of_another_control_plane(shared: Backend) -> None:
    async with shared.opened() as database:
        other = await shared.open()
        try:
            for n in range(1, 4):  # hints are not promised: whoever waits looks again after a while
                waiting = asyncio.create_task(database.wait_for_change(n - 1, 30))
                await asyncio.sleep(0)
                await want(other, f"deployment/dep_{n}")
                async with asyncio.timeout(20):
                    await waiting
        finally:
            await other.close()


async def test_waiting_ends_by_itself(backend: Backend) -> None:
    backend.clock = clock = FakeClock()

    async with backend.opened() as database:
        last = await want(database, "deployment/dep_1")
        waiting = asyncio.create_task(database.wait_for_change(last, 1.0))
        await clock.settle()
        if backend.is_shared:  # the first connection of the listener says that something may have happened
            async with asyncio.timeout(10):
                while not waiting.done():
                    await clock.advance(0.5)
        await clock.advance(0.4)
        await clock.advance(0.7)
        await asyncio.wait_for(waiting, 5)


async def test_hints_come_back_after_redis_was_away() -> None:
    with redis_server() as redis:
        backend = Backend(_postgres(), events=redis.url)

        async with backend.opened() as database:
            other = await backend.open()
            try:
                await asyncio.to_thread(redis.kill)
                await want(other, "deployment/dep_1")
                await database.wait_for_change(1, 0.05)
                await asyncio.to_thread(redis.start)

                async def hinted() -> bool:
                    last = await want(other, "deployment/dep_1")
                    began = time.monotonic()
                    await database.wait_for_change(last - 1, 1.0)
                    return time.monotonic() - began < 0.9

                await eventually(hinted)
                assert await hinted(), "the first may have been the reconnect itself"
            finally:
                await other.close()


# Forgetting


async def _reported_gone(database: Database, key: str) -> None:
    async with database.transaction() as tx:
        await tx.session.execute(update(Desired).where(Desired.key == key).values(gone_at=tx.now))


async def test_old_changes_are_forgotten_and_the_position_says_up_to_where(backend: Backend) -> None:
    backend.clock = clock = FakeClock()

    async with backend.opened() as database:
        await want(database, "deployment/old")
        second = await want(database, "deployment/older")
        await clock.advance(3600)
        young = await want(database, "deployment/young")
        assert await forget(database, 1800 * 1000, DAY_MS) == (2, 0)
        assert (await database.position()).oldest == second
        assert [change.number for change in await changes_after(database, 0)] == [young]
        assert await count(database, Desired) == 3, "what is wanted is never forgotten"
        assert await forget(database, 1800 * 1000, DAY_MS) == (0, 0)


async def test_tombstones_outlive_the_changes_until_the_object_is_gone(backend: Backend) -> None:
    backend.clock = clock = FakeClock()

    async def keys(database: Database) -> set[str]:
        return {row.key for row in await desired_index(database)}

    async with backend.opened() as database:
        for name in ("gone", "unheard"):
            await want(database, f"deployment/{name}")
            async with database.transaction() as tx:
                await tx.unwant(HERE, f"deployment/{name}")
        await _reported_gone(database, "deployment/gone")
        assert (await forget(database, DAY_MS, 90 * DAY_MS)).tombstones == 0
        await clock.advance(2 * DAY_MS / 1000)
        assert (await forget(database, DAY_MS, 90 * DAY_MS)).tombstones == 1
        assert await keys(database) == {"deployment/unheard"}
        await clock.advance(90 * DAY_MS / 1000)
        assert (await forget(database, DAY_MS, 90 * DAY_MS)).tombstones == 1
        assert await keys(database) == set()


async def test_a_tombstone_stays_while_its_change_is_kept(backend: Backend) -> None:
    """A reader from before it would otherwise never learn of it."""
    backend.clock = clock = FakeClock()

    async with backend.opened() as database:
        await want(database, "deployment/first")
        await want(database, "deployment/dep_1")
        await clock.advance(2 * DAY_MS / 1000)
        async with database.transaction() as tx:
            tx.now -= 3 * DAY_MS  # a clock that was wrong
            await tx.unwant(HERE, "deployment/dep_1")
            tx.now += 3 * DAY_MS
        await clock.advance(1)
        await forget(database, DAY_MS, DAY_MS)
        assert {change.key for change in await changes_after(database, (await database.position()).oldest)} == {
            "deployment/dep_1"
        }
        assert (await row_of(database, "deployment/dep_1")).action == "delete"


async def test_everything_old_goes_in_small_steps(backend: Backend) -> None:
    backend.clock = clock = FakeClock()

    async def fill(database: Database) -> None:
        for n in range(7):
            async with database.transaction() as tx:
                await tx.want(HERE, f"deployment/dep_{n}", workspace_id="w")
                tx.event(workspace_id="w", kind="App", object_id="a", name="a", reason="R", message="m")
                tx.audit(workspace_id="w", action="apply", kind="App", object_id="a", name="a", diff=None)
                key = f"{tx.now}-{n}"
                tx.session.add(
                    Idempotency(workspace_id="w", key=key, request="", status=200, answer={}, created_at=tx.now)
                )
                tx.session.add(
                    RolloutCheck(
                        rollout_id=key, wave=0, step=1, settled_at=tx.now, name="smoke", region="", workspace_id="w",
                        due_at=tx.now, numbers={},
                    )
                )  # fmt: skip

    async with backend.opened() as database:
        await fill(database)
        await clock.advance(10)
        await fill(database)
        kept = Retention(changes_s=5, tombstones_s=5, idempotency_s=5, events_s=5, audit_s=5, batch=3)
        assert await sweep(database, kept) == (7, 0, 7, 7, 7, 0, 0, 7)
        for table in (Change, Event, Audit, Idempotency, RolloutCheck):
            assert await count(database, table) == 7
        assert await sweep(database, kept) == (0, 0, 0, 0, 0, 0, 0, 0)


# Away


async def test_a_database_that_is_away_is_said_to_be_and_comes_back(own_postgres: PostgresServer) -> None:
    backend = Backend(own_postgres.create_database())

    async with backend.opened(patience=QUICK) as database:
        await want(database, "deployment/dep_1")
        for stop in (own_postgres.kill, own_postgres.stop):
            await asyncio.to_thread(stop)
            async with asyncio.timeout(15):
                for ask in (want(database, "deployment/dep_2"), database.position(), changes_after(database, 0)):
                    with pytest.raises(ServiceUnavailable, match="database 'main' is unavailable") as told:
                        await ask
                    assert told.value.retry_after_s
            await asyncio.to_thread(own_postgres.start)
            await want(database, "deployment/dep_3")  # at once: whoever begins takes a connection that lives
            assert (await database.position()).number == len(await changes_after(database, 0))


async def test_a_restart_that_nobody_saw_is_not_noticed(own_postgres: PostgresServer) -> None:
    backend = Backend(own_postgres.create_database())

    async with backend.opened() as database:
        for ask in (database.position, lambda: want(database, "deployment/dep_1"), lambda: changes_after(database, 0)):
            await asyncio.to_thread(own_postgres.restart)
            assert await ask() is not None


async def test_work_is_done_again_when_the_database_went_in_the_middle(own_postgres: PostgresServer) -> None:
    backend = Backend(own_postgres.create_database())

    async with backend.opened(patience=QUICK) as database:
        runs: list[int] = []

        async def work(tx: Tx) -> int:
            number = await tx.want(HERE, "deployment/dep_1", workspace_id="w")
            runs.append(number)
            if len(runs) == 1:
                await asyncio.to_thread(own_postgres.restart)
            return number

        assert await database.run(work) == 1
        assert runs == [1, 1]
        assert [change.number for change in await changes_after(database, 0)] == [1]


async def test_a_commit_without_an_answer_is_not_called_undone(own_postgres: PostgresServer) -> None:
    backend = Backend(own_postgres.create_database())

    async with backend.opened(patience=QUICK) as database:
        with pytest.raises(Unsure, match="may or may not"):
            async with database.transaction(serial=False) as tx:
                await tx.session.execute(insert(Workspace).values(id="w", name="w", created_at=0))
                await asyncio.to_thread(own_postgres.kill)


async def test_a_database_that_hangs_makes_nobody_wait_for_ever(own_postgres: PostgresServer) -> None:
    backend = Backend(own_postgres.create_database())

    async with backend.opened(
        patience=DatabaseTimeouts(connect_s=2.0, statement_s=2.0, queue_s=6.0, begin_s=0.3)
    ) as database:
        await want(database, "deployment/dep_1")
        own_postgres.pause()
        try:
            async with asyncio.timeout(30):
                asked = [want(database, f"deployment/dep_{n}") for n in range(6)] + [database.position()]
                for answer in await asyncio.gather(*asked, return_exceptions=True):
                    assert isinstance(answer, ServiceUnavailable), answer
        finally:
            own_postgres.resume()

        async def is_written() -> bool:
            with suppress(ServiceUnavailable):
                return bool(await want(database, "deployment/after"))
            return False

        await eventually(is_written)


async def test_two_that_lock_each_other_out_are_both_done_in_the_end(shared: Backend) -> None:
    async with shared.opened() as database:
        async with database.transaction() as tx:
            tx.session.add_all([Workspace(id=id_, name=id_, created_at=0) for id_ in "ab"])
        both, undone = asyncio.Barrier(2), 0

        async def work(tx: Tx, order: str, first: list[bool]) -> None:
            nonlocal undone
            for id_ in order:
                try:
                    await tx.session.execute(
                        update(Workspace).where(Workspace.id == id_).values(created_at=Workspace.created_at + 1)
                    )
                except Undone:
                    undone += 1
                    raise
                if first:
                    first.clear()
                    await both.wait()

        starts: list[list[bool]] = [[True], [True]]
        await asyncio.gather(
            database.run(lambda tx: work(tx, "ab", starts[0]), serial=False),
            database.run(lambda tx: work(tx, "ba", starts[1]), serial=False),
        )
        assert undone == 1
        async with database.reading() as session:
            assert [row.created_at for row in (await session.execute(select(Workspace))).scalars()] == [2, 2]


async def test_a_control_plane_that_hangs_in_a_transaction_loses_it(shared: Backend) -> None:
    async with shared.opened() as database:
        other = await shared.open(patience=DatabaseTimeouts(idle_s=1.0))
        inside, go_on = asyncio.Event(), asyncio.Event()

        async def hang() -> None:
            async with other.transaction() as tx:
                await tx.want(HERE, "deployment/dep_1", workspace_id="w")
                inside.set()
                await go_on.wait()

        try:
            hanging = asyncio.create_task(hang())
            await inside.wait()
            assert await want(database, "deployment/dep_2") == 1  # within its own patience
            go_on.set()
            with pytest.raises(ServiceUnavailable):
                await hanging
        finally:
            await other.close()


async def test_a_locked_file_is_an_answer_and_not_a_hang(tmp_path: Path) -> None:
    import sqlite3

    backend = Backend(f"sqlite:///{tmp_path}/fleet.db")

    async with backend.opened(patience=DatabaseTimeouts(statement_s=0.2, begin_s=0.1)) as database:
        with ExitStack() as stack:
            other = sqlite3.connect(tmp_path / "fleet.db", isolation_level=None)
            stack.callback(other.close)
            other.execute("BEGIN IMMEDIATE")
            async with asyncio.timeout(15):
                with pytest.raises(ServiceUnavailable, match="locked"):
                    await want(database, "deployment/dep_1")
            assert (await database.position()).number == 0  # readers go on
            other.execute("ROLLBACK")
        assert await want(database, "deployment/dep_1") == 1
