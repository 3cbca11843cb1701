"""A live revision that fails is marked until it recovers, and goes on serving."""

from __future__ import annotations

from pathlib import Path

from fleet_world import ADMIN, World, a_fleet, an_app, ref

from shoal.control.database import tables
from shoal.control.domain.broken import MANY, after_answers
from shoal.control.domain.model import Answers
from shoal.sync.keys import key_of


async def marks(world: World) -> list[str]:
    events = [each["reason"] for each in await world.fleet.events(ADMIN, ref("App", "web"))]
    return [each for each in events if each in ("Failing", "Recovered")]


async def test_a_live_revision_that_breaks_is_marked_until_it_recovers_and_goes_on_serving(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await world.apply(an_app())
        first = await world.report_app()
        await world.report(first, ready=False, status="failed", reason="CrashLoopBackOff", exit_code=3, restarts=4)
        shown = await world.fleet.history(ADMIN, ref("App", "web"))
        (revision,) = shown["revisions"]
        assert revision["status"] == "broken" and "CrashLoopBackOff, exit code 3" in revision["reason"]
        document = await world.fleet.get(ADMIN, ref("App", "web"))
        assert document["status"]["state"] == "Broken" and "CrashLoopBackOff" in document["status"]["reason"]
        lines = (await world.fleet.explain(ADMIN, ref("App", "web")))["lines"]
        assert any("shoal rollback app web" in line for line in lines)
        assert await world.wanted("deployment") == {("eu1", key_of("deployment", first))}
        assert [row.weight for row in await world.topology()] == [100]
        await world.report(first)
        assert await marks(world) == ["Failing", "Recovered"]
        assert (await world.fleet.get(ADMIN, ref("App", "web")))["status"]["state"] == "Ready"


async def test_one_that_was_left_while_it_was_broken_stays_marked(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await world.apply(an_app())
        first = await world.report_app()
        await world.report(first, ready=False, status="failed", reason="CrashLoopBackOff")
        await world.apply(an_app(image="shop/web:2"))
        await world.report_app()
        shown = await world.fleet.history(ADMIN, ref("App", "web"))
        assert {each["revision"]: each["status"] for each in shown["revisions"]} == {2: "ready", 1: "broken"}
        assert await marks(world) == ["Failing"]


async def test_half_of_the_answers_with_5xx_mark_a_revision_and_good_ones_end_it(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as world:
        await world.apply(an_app(regions=("eu", "us")))
        first = await world.report_app()

        async def answer(region: str, requests: int, failed: int) -> str:
            async with world.databases.of("default").transaction() as tx:
                await after_answers(tx, {first: Answers(region, requests, failed)})
            (row,) = await world.rows(tables.Deployment)
            return str(row.reason)

        assert await answer("eu", MANY - 1, MANY - 1) == "", "too few to say anything"
        assert await answer("eu", 100, 49) == ""
        assert await answer("eu", 100, 60) == "answers 60 of 100 requests with 5xx in eu"
        await world.report_app()
        assert await answer("us", 100, 0) != "", "what another region answers says nothing about this one"
        assert (await world.fleet.get(ADMIN, ref("App", "web")))["status"]["state"] == "Broken"
        assert await answer("eu", 100, 2) == ""
        assert await marks(world) == ["Failing", "Recovered"]
