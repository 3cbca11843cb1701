"""The page over several databases, and over PostgreSQL with two control planes."""

from __future__ import annotations

import asyncio
from pathlib import Path

from api_world import Client, an_app
from page_world import served_page

from shoal.errors import Unauthorized
from shoal.testing.databases import shared_postgres

_HOME = "/api/v1/projects/shop"


async def test_a_workspace_in_another_database_is_shown_as_it_changes_there(tmp_path: Path) -> None:
    urls = {name: f"sqlite:///{tmp_path}/{name}.db" for name in ("main", "second")}
    async with served_page(tmp_path, urls=urls, workspaces={"tenant": "second"}) as page:
        await page.world.fleet.ensure_workspace("tenant")
        tenant = await page.world.user("tim", "admin", "tenant")
        await page.world.ok(tenant("PUT", _HOME, {}))
        await page.world.ok(tenant("PUT", f"{_HOME}/environments/prod", {}))
        topic = {"id": 1, "topic": "apps"}
        async with page.browser(tenant) as browser, page.browser(page.world.admin) as admin:
            async with browser.stream(topic) as own, admin.stream({**topic, "workspace": "tenant"}) as seen:
                for stream in (own, seen):
                    await stream.until(lambda stream=stream: 1 in stream.rows)  # type: ignore[misc]
                await page.world.ok(tenant("PUT", f"{_HOME}/environments/prod/apps/web", an_app()))
                for stream in (own, seen):
                    await stream.until(lambda stream=stream: "app/shop/prod/web" in stream.rows[1])  # type: ignore[misc]
            async with admin.stream(topic) as others:
                await others.until(lambda: 1 in others.rows)
                assert others.rows[1] == {}, "their own workspace"


async def test_with_postgresql_two_control_planes_are_one_page(tmp_path: Path) -> None:
    urls = {"main": shared_postgres().create_database()}
    async with served_page(tmp_path, urls=urls) as first, served_page(tmp_path, urls=urls, prepare=False) as second:
        code = (await first.world.ok(first.world.editor("POST", "/api/v1/login-codes", {})))["code"]
        tries = [(first, second)[n % 2].sessions.begin_with_code(code) for n in range(6)]
        found = await asyncio.gather(*tries, return_exceptions=True)
        assert sum(not isinstance(each, BaseException) for each in found) == 1, "a code works once"
        assert all(isinstance(each, Unauthorized) for each in found if isinstance(each, BaseException))
        editor = Client(second.api, first.world.editor.token)
        async with second.browser(editor) as browser, browser.stream({"id": 1, "topic": "apps"}) as stream:
            await stream.until(lambda: 1 in stream.rows)
            await first.world.put_app()
            await stream.until(lambda: "app/shop/prod/web" in stream.rows[1])
            await first.world.join("eu1")  # without a number: seen at the next look
            await stream.until(lambda: stream.rows[1]["place/shop/prod/web/1/eu/eu1/default"]["reason"] != "NoAgent")
