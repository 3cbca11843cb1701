"""Tokens: known by their digest, revoked within a second, rotated without a gap."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from shoal.base.clock import FakeClock
from shoal.base.ids import Ids
from shoal.control.database.engine import Database, Databases
from shoal.control.database.tables import FLEET, Audit, Token
from shoal.control.database.tokens import ApiTokens
from shoal.errors import AlreadyExists, Conflict, Invalid, NotFound
from shoal.testing.seeded import seeded_bytes

AGENT = {"kind": "agent", "name": "krane", "cluster": "c1", "region": "eu"}


class World:
    """Two control planes, each with its own memory, on one database."""

    def __init__(self, database: Database, clock: FakeClock) -> None:
        self.database = database
        self.clock = clock
        self.tokens = ApiTokens(Databases([database]), clock)
        self.elsewhere = ApiTokens(Databases([database]), clock)


@asynccontextmanager
async def a_world(tmp_path: Path) -> AsyncIterator[World]:
    async with asyncio.timeout(30):
        clock = FakeClock()
        database = await Database.open(f"sqlite:///{tmp_path}/f.db", clock=clock, ids=Ids(seeded_bytes(1)))
        try:
            yield World(database, clock)
        finally:
            await database.close()


async def test_a_token_speaks_for_what_it_was_made_for(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        secret, row = await world.tokens.create(**AGENT, shard="s1")
        who = await world.elsewhere.authenticate(secret)
        assert who is not None
        assert (who.kind, who.workspace_id, who.role) == ("agent", FLEET, "")
        assert (who.cluster, who.region, who.shard) == ("c1", "eu", "s1")
        assert (who.token_id, who.name) == (row.id, "krane")


@pytest.mark.parametrize("wrong", ["", "x", "shoal_agent_", "a" * 100_000, "ü\x00", "' OR 1=1 --"])
async def test_what_is_no_token_speaks_for_nobody(tmp_path: Path, wrong: str) -> None:
    async with a_world(tmp_path) as world:
        await world.tokens.create(**AGENT)
        assert await world.tokens.authenticate(wrong) is None


async def test_the_text_of_a_token_is_nowhere_in_the_files(tmp_path: Path) -> None:
    secrets: list[str] = []

    async with a_world(tmp_path) as world:
        secret, row = await world.tokens.create(**AGENT)
        rotated, _ = await world.tokens.rotate(row.id)
        secrets.extend((secret, rotated))
        assert await world.tokens.authenticate(row.digest) is None, "what is kept is of no use"
    for path in tmp_path.iterdir():
        assert not any(secret.encode() in path.read_bytes() for secret in secrets)


async def test_a_revoked_token_stops_here_at_once_and_elsewhere_within_a_second(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        secret, row = await world.tokens.create(**AGENT)
        for tokens in (world.tokens, world.elsewhere):
            assert await tokens.authenticate(secret)
        await world.tokens.revoke(row.id)
        assert await world.tokens.authenticate(secret) is None
        await world.clock.advance(1.0)
        assert await world.elsewhere.authenticate(secret) is None
        first = (await world.tokens.list_())[0].revoked_at
        await world.clock.advance(5)
        assert (await world.tokens.revoke(row.id)).revoked_at == first


async def test_a_token_is_looked_up_at_most_once_a_second(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        secret, _ = await world.tokens.create(**AGENT)
        reads, reading = 0, world.database.reading

        def counted() -> Any:
            nonlocal reads
            reads += 1
            return reading()

        world.database.reading = counted  # type: ignore[method-assign]
        for _ in range(50):
            assert await world.tokens.authenticate(secret)
        assert reads == 1
        await world.clock.advance(1.0)
        assert await world.tokens.authenticate(secret)
        assert reads == 2


async def test_an_expired_token_is_nobodys_and_its_name_is_free(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        secret, _ = await world.tokens.create(**AGENT, ttl_s=60)
        await world.clock.advance(59)
        assert await world.tokens.authenticate(secret)
        with pytest.raises(AlreadyExists):
            await world.tokens.create(**AGENT)
        await world.clock.advance(1.5)
        assert await world.tokens.authenticate(secret) is None
        again, _ = await world.tokens.create(**AGENT)
        assert await world.tokens.authenticate(again)
        assert await world.tokens.authenticate(secret) is None
        assert len(await world.tokens.list_()) == 1


async def test_rotating_lets_the_old_text_work_for_a_while(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        first, row = await world.tokens.create(**AGENT)
        second, same = await world.tokens.rotate(row.id, grace_s=60)
        assert same.id == row.id
        assert await world.elsewhere.authenticate(first) == await world.elsewhere.authenticate(second) is not None
        await world.clock.advance(61)
        assert await world.elsewhere.authenticate(first) is None
        assert await world.elsewhere.authenticate(second)


async def test_of_two_rotations_only_the_last_two_texts_work_and_revoking_ends_both(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        first, row = await world.tokens.create(**AGENT)
        second, _ = await world.tokens.rotate(row.id)
        third, _ = await world.tokens.rotate(row.id)
        assert await world.tokens.authenticate(first) is None
        assert await world.tokens.authenticate(second)
        assert await world.tokens.authenticate(third)
        await world.tokens.revoke(row.id)
        assert await world.tokens.authenticate(second) is None
        assert await world.tokens.authenticate(third) is None
        with pytest.raises(Conflict):
            await world.tokens.rotate(row.id)


async def test_rotating_renews_the_lifetime_but_not_of_the_old_text(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        first, row = await world.tokens.create(**AGENT, ttl_s=100)
        await world.clock.advance(90)
        second, _ = await world.tokens.rotate(row.id, grace_s=3600)
        await world.clock.advance(11)
        assert await world.tokens.authenticate(first) is None
        assert await world.tokens.authenticate(second)
        await world.clock.advance(90)
        assert await world.tokens.authenticate(second) is None


async def test_one_question_tells_which_of_many_still_work(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        rows = [(await world.tokens.create(kind="user", name=f"u{n}", role="admin"))[1] for n in range(3)]
        expiring = (await world.tokens.create(kind="user", name="late", ttl_s=5))[1]
        await world.tokens.revoke(rows[1].id)
        await world.clock.advance(10)
        asked = [*(row.id for row in rows), expiring.id, "tok_unknown"]
        assert await world.tokens.working(asked) == {rows[0].id, rows[2].id}
        assert await world.tokens.working([]) == set()


async def test_when_a_token_was_used_is_written_down_later(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        secret, row = await world.tokens.create(**AGENT)
        await world.clock.advance(7)
        await world.tokens.authenticate(secret)
        assert (await world.tokens.find("agent", "krane")).last_used_at == 0
        await world.tokens.save_used()
        used = (await world.tokens.find("agent", "krane")).last_used_at
        assert used == row.created_at + 7000


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"kind": "robot", "name": "x"}, "kind"),
        ({"kind": "user", "name": ""}, "name"),
        ({"kind": "user", "name": "x" * 64}, "name"),
        ({"kind": "user", "name": "x", "role": "king"}, "role"),
        ({"kind": "agent", "name": "x", "region": "eu"}, "cluster"),
        ({"kind": "agent", "name": "x", "cluster": "c"}, "region"),
        ({"kind": "edge", "name": "x", "role": "admin"}, "role"),
        ({"kind": "user", "name": "x", "ttl_s": -1.0}, "ttl"),
    ],
)
async def test_a_token_that_makes_no_sense_is_refused_with_the_field(tmp_path: Path, fields: Any, named: str) -> None:
    async with a_world(tmp_path) as world:
        with pytest.raises(Invalid) as refused:
            await world.tokens.create(**fields)
        assert [error.field for error in refused.value.errors] == [named]
        assert await world.tokens.list_() == []


async def test_tokens_are_found_by_workspace_and_kind(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        await world.tokens.create(**AGENT)
        await world.tokens.create(kind="user", name="ann", workspace_id="ws_1")
        await world.tokens.create(kind="user", name="ann", workspace_id="ws_2")
        assert [row.name for row in await world.tokens.list_(workspace_id="ws_1")] == ["ann"]
        assert [row.name for row in await world.tokens.list_(kind="agent")] == ["krane"]
        assert (await world.tokens.find("user", "ann", workspace_id="ws_2")).role == "viewer"
        with pytest.raises(NotFound):
            await world.tokens.find("user", "ann")
        for change in (world.tokens.revoke, world.tokens.rotate):
            with pytest.raises(NotFound):
                await change("tok_unknown")


async def test_what_is_done_to_tokens_is_audited_without_their_text(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        first, row = await world.tokens.create(**AGENT, actor="ann")
        second, _ = await world.tokens.rotate(row.id, actor="bob")
        await world.tokens.revoke(row.id, actor="cid")
        async with world.database.reading() as session:
            rows = (await session.execute(select(Audit).order_by(Audit.id))).scalars().all()
            kept = (await session.execute(select(Token))).scalar_one()
        assert [(r.actor, r.action, r.kind, r.name) for r in rows] == [
            ("ann", "create", "Token", "agent/krane"),
            ("bob", "rotate", "Token", "agent/krane"),
            ("cid", "revoke", "Token", "agent/krane"),
        ]
        shown = str([vars(r) for r in [*rows, kept]])
        assert first not in shown and second not in shown
