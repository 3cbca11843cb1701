"""Sessions: begun once by a code or with a token, ended by people, by time and with their token."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from sqlalchemy import select

from shoal.base.clock import FakeClock
from shoal.base.ids import Ids
from shoal.control.database.engine import Database, Databases
from shoal.control.database.sessions import CODE_S, SessionLimits, Sessions
from shoal.control.database.tables import Audit, LoginCode, Session
from shoal.control.database.tokens import ApiTokens, Principal
from shoal.errors import ConfigError, NotFound, Unauthorized
from shoal.testing.seeded import seeded_bytes

HOUR, DAY = 3600.0, 86400.0


class World:
    """Two control planes, each with its own memory, on one database."""

    def __init__(self, database: Database, clock: FakeClock) -> None:
        self.database = database
        self.clock = clock
        databases = Databases([database])
        self.tokens = ApiTokens(databases, clock)
        self.sessions = Sessions(databases, self.tokens, clock)
        self.elsewhere = Sessions(databases, ApiTokens(databases, clock), clock)

    async def user(self, name: str = "ann", role: str = "editor", ttl_s: float = 0.0) -> tuple[str, Principal]:
        text, _ = await self.tokens.create(kind="user", name=name, workspace_id="default", role=role, ttl_s=ttl_s)
        who = await self.tokens.authenticate(text)
        assert who is not None
        return text, who


@asynccontextmanager
async def a_world(tmp_path: Path) -> AsyncIterator[World]:
    async with asyncio.timeout(30):
        clock = FakeClock()
        database = await Database.open(f"sqlite:///{tmp_path}/f.db", clock=clock, ids=Ids(seeded_bytes(1)))
        try:
            yield World(database, clock)
        finally:
            await database.close()


async def why_not(sessions: Sessions, code: str) -> str:
    with pytest.raises(Unauthorized) as refused:
        await sessions.begin_with_code(code)
    assert refused.value.causes[0]["field"] == "code"
    return refused.value.message


async def test_a_session_speaks_for_the_owner_of_its_token_everywhere(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        text, who = await world.user()
        for begun in (
            await world.sessions.begin_with_token(text),
            await world.sessions.begin_with_code((await world.sessions.new_code(who))[0]),
        ):
            found = await world.elsewhere.authenticate(begun.text)
            assert found is not None
            assert (found.principal, found.id) == (who, begun.id)


async def test_a_code_works_once_whichever_control_plane_is_asked(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        _, who = await world.user()
        code, _ = await world.sessions.new_code(who)
        assert len(code) >= 43, "256 bits"
        await world.elsewhere.begin_with_code(code)
        for sessions in (world.sessions, world.elsewhere):
            assert "used already" in await why_not(sessions, code)


async def test_of_several_who_use_a_code_at_once_one_gets_in(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        _, who = await world.user()
        code, _ = await world.sessions.new_code(who)
        tries = [(world.sessions, world.elsewhere)[n % 2].begin_with_code(code) for n in range(6)]
        found = await asyncio.gather(*tries, return_exceptions=True)
        assert sum(not isinstance(each, BaseException) for each in found) == 1
        assert all(isinstance(each, Unauthorized) for each in found if isinstance(each, BaseException))


async def test_codes_that_are_old_or_wrong_say_so(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        text, who = await world.user()
        code, expires_at = await world.sessions.new_code(who)
        assert expires_at == round((world.clock.wall_s() + CODE_S) * 1000)
        await world.clock.advance(CODE_S + 0.1)
        assert "expired" in await why_not(world.sessions, code)
        for wrong in ("", "x", "a" * 100_000, "ü\x00", text):
            assert "not known" in await why_not(world.sessions, wrong)
        revoked, _ = await world.sessions.new_code(who)
        await world.tokens.revoke(who.token_id)
        assert "revoked" in await why_not(world.sessions, revoked)


async def test_tokens_that_do_not_work_or_are_of_agents_do_not_log_in(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        agent, _ = await world.tokens.create(kind="agent", name="krane", cluster="c", region="eu")
        for wrong, why in (("shoal_user_nobody", "unknown"), (agent, "kind agent")):
            with pytest.raises(Unauthorized, match=why) as refused:
                await world.sessions.begin_with_token(wrong)
            assert refused.value.causes[0]["field"] == "token"


@pytest.mark.parametrize("wrong", ["", "x", "shoal_session_", "shoal_session_" + "a" * 43, "a" * 100_000])
async def test_what_is_no_session_speaks_for_nobody(tmp_path: Path, wrong: str) -> None:
    async with a_world(tmp_path) as world:
        text, _ = await world.user()
        begun = await world.sessions.begin_with_token(text)
        assert await world.sessions.authenticate(wrong) is None
        assert await world.sessions.authenticate(text) is None, "a token is no session"
        assert await world.tokens.authenticate(begun.text) is None, "and a session no token"


async def test_revoking_the_token_ends_its_sessions_within_a_second(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        text, who = await world.user()
        begun = await world.sessions.begin_with_token(text)
        assert await world.elsewhere.authenticate(begun.text) is not None
        await world.tokens.revoke(who.token_id)
        await world.clock.advance(1)
        assert await world.elsewhere.authenticate(begun.text) is None
        assert await world.sessions.authenticate(begun.text) is None


async def test_a_session_ends_with_the_life_of_its_token(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        text, _ = await world.user(ttl_s=HOUR)
        begun = await world.sessions.begin_with_token(text)
        await world.clock.advance(HOUR - 5)
        assert await world.sessions.authenticate(begun.text) is not None
        await world.clock.advance(6)
        assert await world.sessions.authenticate(begun.text) is None


async def test_logging_out_ends_it_everywhere_within_a_second(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        text, _ = await world.user()
        begun, other = await world.sessions.begin_with_token(text), await world.sessions.begin_with_token(text)
        assert await world.elsewhere.authenticate(begun.text) is not None
        await world.sessions.end(begun.id, actor="ann")
        assert await world.sessions.authenticate(begun.text) is None
        await world.clock.advance(1)
        assert await world.elsewhere.authenticate(begun.text) is None
        assert await world.elsewhere.authenticate(other.text) is not None
        with pytest.raises(NotFound):
            await world.sessions.end("ses_none", actor="ann")
        with pytest.raises(NotFound):
            await world.sessions.end(other.id, actor="eve", workspace_id="others")


async def test_use_keeps_a_session_alive_up_to_its_longest_life(tmp_path: Path) -> None:
    limits = SessionLimits()
    async with a_world(tmp_path) as world:
        text, _ = await world.user()
        idle, used = await world.sessions.begin_with_token(text), await world.sessions.begin_with_token(text)
        begun_s = world.clock.wall_s()
        while world.clock.wall_s() < begun_s + limits.longest_s - 2 * HOUR:
            await world.clock.advance(HOUR)
            assert await world.sessions.authenticate(used.text) is not None
            await world.sessions.save_used()
        assert await world.elsewhere.authenticate(used.text) is not None, "others know of its use"
        assert await world.sessions.authenticate(idle.text) is None
        await world.clock.advance(2 * HOUR + 1)
        assert await world.sessions.authenticate(used.text) is None


async def test_idle_sessions_end_after_the_time_that_was_told(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        text, _ = await world.user()
        begun = await world.sessions.begin_with_token(text)
        await world.clock.advance(begun.expires_at / 1000 - world.clock.wall_s() - 1)
        found = await world.elsewhere.authenticate(begun.text)
        assert found is not None and found.expires_at > begun.expires_at, "use renews it"


async def test_neither_codes_nor_sessions_are_in_the_files(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        text, who = await world.user()
        code, _ = await world.sessions.new_code(who)
        begun = await world.sessions.begin_with_token(text)
        async with world.database.reading() as session:
            row = (await session.scalars(select(Session))).one()
        assert await world.sessions.authenticate(row.digest) is None, "what is kept is of no use"
    content = b"".join(path.read_bytes() for path in tmp_path.iterdir() if path.is_file())
    assert code.encode() not in content and begun.text.removeprefix("shoal_session_").encode() not in content
    assert row.digest.encode() in content


async def test_the_audit_log_shows_who_came_and_went(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        text, who = await world.user()
        begun = await world.sessions.begin_with_code((await world.sessions.new_code(who))[0])
        await world.sessions.end(begun.id, actor="ann")
        async with world.database.reading() as session:
            rows = list(await session.scalars(select(Audit).where(Audit.kind == "Session").order_by(Audit.id)))
        told = [(row.action, row.actor, row.name, row.object_id, row.workspace_id) for row in rows]
        assert told == [
            ("login", "ann", "user/ann", begun.id, "default"), ("logout", "ann", "user/ann", begun.id, "default"),
        ]  # fmt: skip
        assert text not in str(told)


async def test_lists_have_the_sessions_of_a_workspace_that_work(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        ann, eve = (await world.user("ann"))[0], (await world.user("eve"))[0]
        first = await world.sessions.begin_with_token(ann)
        await world.clock.advance(1)
        second, ended = await world.sessions.begin_with_token(eve), await world.sessions.begin_with_token(eve)
        await world.sessions.end(ended.id, actor="eve")
        assert [each.id for each in await world.sessions.list_("default")] == [second.id, first.id]
        assert await world.sessions.list_("others") == []
        await world.clock.advance(SessionLimits().idle_s)
        await world.elsewhere.begin_with_token(ann)
        assert len(await world.sessions.list_("default")) == 1, "those that were idle for long have ended"
        assert all(not each.text for each in await world.sessions.list_("default"))


async def test_what_is_over_is_forgotten_and_nothing_else(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        text, who = await world.user()
        await world.sessions.new_code(who)
        kept = await world.sessions.begin_with_token(text)
        ended = await world.sessions.begin_with_token(text)
        await world.sessions.end(ended.id, actor="ann")
        await world.clock.advance(2 * HOUR)
        await world.sessions.authenticate(kept.text)
        await world.sessions.save_used()
        assert await world.sessions.forget_old() == 2, "a code and the session that was ended"
        async with world.database.reading() as session:
            assert [row.id for row in await session.scalars(select(Session))] == [kept.id]
            assert list(await session.scalars(select(LoginCode))) == []
        await world.clock.advance(2 * DAY)
        assert await world.sessions.forget_old() == 1


def test_limits_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ConfigError, match="idle_s is 7"):
        SessionLimits(idle_s=7, longest_s=3)
