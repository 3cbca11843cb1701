"""What agents are told to do, against a model of it; and statements of many rows."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import select, text, update

from shoal.base.clock import FakeClock
from shoal.base.ids import Ids
from shoal.control.database.engine import Database
from shoal.control.database.tables import Desired
from shoal.control.database.transaction import DesiredObject, Tx
from shoal.sync.keys import Place
from shoal.testing.changes import changes_after, desired_index

PLACES = [Place("clu_a", "s0"), Place("clu_a", "s1"), Place("clu_b", "s0")]
KEYS = ["deployment/d1", "deployment/d2", "route/r1"]

objects = st.tuples(st.sampled_from(PLACES), st.sampled_from(KEYS))
operations = st.one_of(
    st.tuples(st.just("want"), st.lists(objects, min_size=1, max_size=4)),
    st.tuples(st.sampled_from(["delete", "release"]), st.lists(objects, min_size=1, max_size=4, unique=True)),
    st.tuples(st.just("gone"), st.lists(objects, min_size=1, max_size=2)),
    st.tuples(st.just("number"), st.just([])),
)
transactions = st.lists(
    st.tuples(st.booleans(), st.booleans(), st.lists(operations, min_size=1, max_size=4)), min_size=1, max_size=6
)


@dataclass
class Row:
    number: int
    action: str
    by_user: bool
    gone: bool = False


@dataclass
class Model:
    number: int = 0
    rows: dict[tuple[Place, str], Row] = field(default_factory=dict)
    changes: list[tuple[int, Place, str]] = field(default_factory=list)

    def copy(self) -> Model:
        rows = {key: Row(**vars(row)) for key, row in self.rows.items()}
        return Model(self.number, rows, list(self.changes))

    def do(self, what: str, named: list[tuple[Place, str]], by_user: bool) -> list[int]:
        if what == "number":
            self.number += 1
            return [self.number]
        if what == "gone":
            for key in named:
                if key in self.rows and self.rows[key].action != "apply":
                    self.rows[key].gone = True
            return []
        numbers = []
        for place, key in named:
            self.number += 1
            row = self.rows.get((place, key))
            if what == "want":
                self.rows[place, key] = Row(self.number, "apply", by_user)
            elif row is not None and not row.gone and (row.action != what or (by_user and not row.by_user)):
                row.number, row.action, row.by_user = self.number, what, by_user
            else:
                numbers.append(0 if row is None else row.number)
                continue
            self.changes.append((self.number, place, key))
            numbers.append(self.number)
        return numbers


async def do(tx: Tx, what: str, named: list[tuple[Place, str]]) -> list[int]:
    if what == "want":
        return await tx.want_many([DesiredObject(place=place, key=key, workspace_id="w") for place, key in named])
    if what == "number":
        return [await tx.number()]
    if what == "gone":
        for place, key in named:
            where = (Desired.cluster_id == place.cluster, Desired.shard == place.shard, Desired.key == key)
            await tx.session.execute(update(Desired).where(*where, Desired.action != "apply").values(gone_at=1))
        return []
    return await tx.unwant_many(named, action=what)  # type: ignore[arg-type]


_template: list[bytes] = []


async def template() -> bytes:
    if not _template:
        with TemporaryDirectory() as folder:
            await (await open_in(folder)).close()
            _template.append(Path(folder, "f.db").read_bytes())
    return _template[0]


async def open_in(folder: str) -> Database:
    return await Database.open(f"sqlite:///{folder}/f.db", clock=FakeClock(), ids=Ids())


@given(plan=transactions)
@settings(max_examples=40, deadline=None)
async def test_what_is_desired_and_what_is_told_are_those_of_the_model(plan: Any) -> None:
    with TemporaryDirectory() as folder:
        Path(folder, "f.db").write_bytes(await template())
        database = await open_in(folder)
        model = Model()
        try:
            for by_user, fails, steps in plan:
                attempt = model.copy()
                try:
                    async with database.transaction(by_user=by_user, short=by_user) as tx:
                        for what, named in steps:
                            assert await do(tx, what, named) == attempt.do(what, named, by_user)
                        if fails:
                            raise ZeroDivisionError
                except ZeroDivisionError:
                    continue
                model = attempt
            assert (await database.position()).number == model.number
            kept = {(row.place, row.key): (row.number, row.action) for row in await desired_index(database)}
            assert kept == {key: (row.number, row.action) for key, row in model.rows.items()}
            told = [(change.number, change.place, change.key) for change in await changes_after(database, 0)]
            assert told == model.changes
        finally:
            await database.close()


async def test_a_whole_table_is_read_in_pieces_and_completely(tmp_path: Path) -> None:
    async with asyncio.timeout(30):
        database = await open_in(str(tmp_path))
        try:
            async with database.transaction() as tx:
                await tx.want_many(
                    [DesiredObject(place=PLACES[0], key=f"deployment/d{n:05}", workspace_id="w") for n in range(5000)]
                )
            asked = select(Desired.key).order_by(Desired.key)
            expected = [f"deployment/d{n:05}" for n in range(5000)]
            async with database.reading() as session:
                assert list((await session.execute(asked)).scalars()) == expected
                assert [row.key async for row in await session.stream(asked)] == expected
                pages = [page async for page in (await session.stream(asked)).partitions(999)]
                assert [len(page) for page in pages] == [999] * 5 + [5]
                assert [row.key for page in pages for row in page] == expected
                begun = await session.stream(asked)
                assert (await begun.fetchone()) == (expected[0],)
                await begun.close()  # the rest is not wanted
                assert (await session.execute(text("SELECT 1"))).scalar() == 1
            async with database.transaction() as tx:
                result = await tx.session.execute(update(Desired).values(gone_at=5))
                assert result.rowcount == 5000  # type: ignore[attr-defined]
        finally:
            await database.close()


async def test_a_key_that_is_none_changes_nothing(tmp_path: Path) -> None:
    async with asyncio.timeout(30):
        database = await open_in(str(tmp_path))
        try:
            for key in ("deployment", "pod/x", "deployment/"):
                try:
                    async with database.transaction() as tx:
                        await tx.want(PLACES[0], "deployment/d1", workspace_id="w")
                        await tx.want(PLACES[0], key, workspace_id="w")
                except ValueError:
                    continue
                raise AssertionError(f"{key} was taken")
            assert (await database.position()).number == 0
        finally:
            await database.close()
