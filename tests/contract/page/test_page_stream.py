"""The stream of a page over a port: what is shown, what changes, what is refused, and how it ends."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from api_world import ENV, error_of
from page_world import Browser, PageWorld, served_page
from sqlalchemy import update

from shoal.control.database import tables
from shoal.control.database.sessions import Session
from shoal.testing.waiting import eventually

APP = {"topic": "app", "project": "shop", "environment": "prod", "app": "web"}


async def test_changes_of_the_fleet_are_on_the_page_within_half_a_second(tmp_path: Path) -> None:
    async with served_page(tmp_path) as page, page.browser(page.world.editor) as browser:
        await page.world.put_app()
        async with browser.stream({"id": 1, "topic": "apps"}, {"id": 2, "topic": "fleet"}) as stream:
            await stream.until(lambda: {1, 2} <= stream.rows.keys())
            app = stream.rows[1]["app/shop/prod/web"]
            assert (app["state"], app["image"], app["revision"]) == ("Progressing", "shop/web:1", 1)
            assert stream.rows[2]["#"]["apps"] == 1 and stream.rows[2]["#"]["clusters"] == 2
            assert stream.rows[2]["cluster/eu1"]["state"] == "NoAgent"
            assert stream.rows[2]["problem/Cluster/eu1"]["command"] == "shoal cluster join eu1"
            begun = asyncio.get_running_loop().time()
            await page.world.put_app(image="shop/web:2")
            await stream.until(lambda: stream.rows[1]["app/shop/prod/web"]["revision"] == 2)
            assert asyncio.get_running_loop().time() - begun < 2, "half a second, and time for a busy machine"
            patch = next(m for m in reversed(stream.messages) if m.get("id") == 1)
            assert "reset" not in patch and "project" not in patch["set"]["app/shop/prod/web"]
            await page.world.join("eu1")
            await stream.until(lambda: stream.rows[2]["cluster/eu1"]["state"] == "Ready")
            assert "problem/Cluster/eu1" not in stream.rows[2]


async def test_what_people_do_not_see_in_the_api_is_in_no_topic(tmp_path: Path) -> None:
    async with served_page(tmp_path) as page:
        await page.world.put_app()
        tenant = await page.world.user("tim", "admin", "tenant")
        await page.world.fleet.ensure_workspace("tenant")
        topics = [
            {"id": 1, "topic": "apps"}, {"id": 2, "topic": "fleet"}, {**APP, "id": 3}, {"id": 4, "topic": "events"},
            {"id": 5, "topic": "apps", "workspace": "default"}, {"id": 6, "topic": "traffic"},
            {"id": 7, "topic": "why", "kind": "App", "project": "shop", "environment": "prod", "name": "web"},
        ]  # fmt: skip
        async with page.browser(page.world.viewer) as viewer, page.browser(tenant) as other:
            async with viewer.stream(*topics) as seen, other.stream(*topics) as stream:
                await seen.until(lambda: {1, 2, 3, 4, 6, 7} <= seen.rows.keys())
                await stream.until(lambda: {1, 2, 4, 6} <= stream.rows.keys() and {3, 5, 7} <= stream.errors.keys())
                assert "app/shop/prod/web" in seen.rows[1]
                assert stream.rows[1] == {} and stream.rows[2]["#"]["apps"] == 0
                assert stream.errors[3]["code"] == "NotFound" and stream.errors[5]["code"] == "Forbidden"
                assert "deployments" not in stream.rows[2]["cluster/eu1"], "what others have placed there"
                await page.world.put_app(image="shop/secret:2")
                await seen.until(lambda: seen.rows[1]["app/shop/prod/web"]["revision"] == 2)
                await stream.until(lambda: stream.beats >= 1)
                assert "secret" not in str(stream.messages) and "shop" not in str(stream.rows)


async def test_administrators_of_the_fleet_look_at_any_workspace(tmp_path: Path) -> None:
    async with served_page(tmp_path) as page, page.browser(page.world.admin) as browser:
        await page.world.put_app()
        await page.world.fleet.ensure_workspace("tenant")
        assert (await browser("GET", "/ui/session")).json()["workspaces"] == ["default", "tenant"]
        topics = [
            {"id": n, "topic": "apps", "workspace": name} for n, name in enumerate(("default", "tenant", "nobody"))
        ]
        async with browser.stream(*topics) as stream:
            await stream.until(lambda: {0, 1} <= stream.rows.keys() and 2 in stream.errors)
            assert "app/shop/prod/web" in stream.rows[0] and stream.rows[1] == {}
            assert stream.errors[2]["code"] == "NotFound"


async def test_topics_are_opened_and_closed_while_the_stream_goes_on(tmp_path: Path) -> None:
    async with served_page(tmp_path) as page, page.browser(page.world.editor) as browser:
        await page.world.put_app()
        async with browser.stream() as stream:
            await stream.until(lambda: bool(stream.id))
            opened = await browser("POST", f"/ui/stream/{stream.id}", {"open": [{**APP, "id": 7}]})
            assert (opened.status_code, opened.content) == (204, b"")
            await stream.until(lambda: 7 in stream.rows)
            assert stream.rows[7]["app"]["spec"]["image"] == "shop/web:1"
            assert "revision/1" in stream.rows[7] and any(key.startswith("event/") for key in stream.rows[7])
            await browser("POST", f"/ui/stream/{stream.id}", {"close": [7], "open": [{"id": 8, "topic": "apps"}]})
            await stream.until(lambda: 8 in stream.rows)
            before = len(stream.messages)
            await page.world.put_app(image="shop/web:2")
            await stream.until(lambda: stream.rows[8]["app/shop/prod/web"]["revision"] == 2)
            assert all(m.get("id") != 7 for m in stream.messages[before:])


async def test_an_object_that_is_deleted_while_it_is_shown_is_an_error_until_it_is_back(tmp_path: Path) -> None:
    async with served_page(tmp_path) as page, page.browser(page.world.editor) as browser:
        await page.world.put_app()
        async with browser.stream({**APP, "id": 1}, {"id": 2, "topic": "apps"}) as stream:
            await stream.until(lambda: {1, 2} <= stream.rows.keys())
            await page.world.ok(page.world.editor("DELETE", f"{ENV}/apps/web"))
            await stream.until(lambda: 1 in stream.errors and not stream.rows[2])
            assert stream.errors[1]["code"] == "NotFound"
            await page.world.put_app(image="shop/web:9")
            await stream.until(lambda: 1 not in stream.errors and bool(stream.rows[2]))
            assert stream.rows[1]["app"]["spec"]["image"] == "shop/web:9"


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"topic": "nothing"}, "topic"),
    ({"topic": "app", "project": "shop"}, "environment"),
    ({"topic": "apps", "colour": "red"}, "colour"),
    ({"topic": "events", "limit": 10_000}, "limit"),
    ({"topic": "rollout", "project": "shop", "environment": "prod", "app": "a b"}, "app"),
    ({"topic": "why", "kind": "Secret", "name": "x"}, "kind"),
    ({"topic": "why", "kind": "Pod", "name": "x"}, "cluster"),
    ({"topic": "query", "text": 7}, "text"),
    ({"topic": "apps", "workspace": "a/b"}, "workspace"),
    ({"topic": "apps", "workspace": 7}, "workspace"),
]


async def test_what_is_wrong_with_a_topic_is_told_on_the_stream(tmp_path: Path) -> None:
    async with served_page(tmp_path) as page, page.browser(page.world.viewer) as browser:
        asked = [{"id": n, **each} for n, (each, _) in enumerate(WRONG)]
        async with browser.stream(*asked, {"id": 50, "topic": "apps"}) as stream:
            await stream.until(lambda: len(stream.errors) == len(WRONG) and 50 in stream.rows)
            for n, (_, field) in enumerate(WRONG):
                assert field in stream.errors[n]["message"]


async def test_streams_belong_to_their_session(tmp_path: Path) -> None:
    async with served_page(tmp_path) as page:
        async with page.browser(page.world.admin) as admin, page.browser(page.world.viewer) as viewer:
            async with admin.stream() as stream:
                await stream.until(lambda: bool(stream.id))
                change = {"open": [{"id": 1, "topic": "apps"}]}
                answer = await viewer("POST", f"/ui/stream/{stream.id}", change)
                assert error_of(answer) == (404, "NotFound") and "open a new one" in answer.text
                assert error_of(await admin("POST", "/ui/stream/other", change)) == (404, "NotFound")
                for bad in ({"open": {}}, {"open": [{"topic": "apps"}]}, {"close": ["x"]}, {"opened": []}, [],
                            {"open": [{"id": 1.5, "topic": "apps"}]}):  # fmt: skip
                    answer = await admin("POST", f"/ui/stream/{stream.id}", bad)
                    assert error_of(answer) == (400, "BadRequest"), bad


async def test_a_stream_ends_with_its_session(tmp_path: Path) -> None:
    async with served_page(tmp_path) as page, page.browser(page.world.viewer) as browser:
        async with browser.stream({"id": 1, "topic": "apps"}) as stream:
            await stream.until(lambda: 1 in stream.rows)
            async with page.world.databases.fleet.transaction() as tx:
                await tx.session.execute(update(Session).values(ended_at=1))
            with pytest.raises(EOFError):
                await stream.until(lambda: False)
            assert stream.ended is not None and "log in again" in stream.ended["message"]


async def test_the_streams_of_a_session_are_limited(tmp_path: Path) -> None:
    async with served_page(tmp_path) as page, page.browser(page.world.viewer) as browser:
        open_ones = [browser.stream() for _ in range(32)]
        for each in open_ones:
            reader = await each.__aenter__()
            await reader.until(lambda reader=reader: bool(reader.id))  # type: ignore[misc]
        answer = await browser("GET", "/ui/stream")
        assert error_of(answer) == (429, "TooManyRequests")
        for each in open_ones:
            await each.__aexit__(None, None, None)


async def test_pages_that_see_the_same_share_what_is_computed(tmp_path: Path) -> None:
    async with served_page(tmp_path) as page:
        await page.world.put_app()
        browsers = [page.browser(user) for user in (page.world.admin, page.world.editor, page.world.viewer)]
        opened = [await each.__aenter__() for each in browsers]
        streams = [each.stream({"id": 1, "topic": "apps"}) for each in opened]
        readers = [await each.__aenter__() for each in streams]
        for reader in readers:
            await reader.until(lambda reader=reader: 1 in reader.rows)  # type: ignore[misc]
        shown = page.metrics.render().decode()
        assert 'shoal_page_feeds{topic="apps"} 2.0' in shown, "the administrator's rights are others"
        await page.world.put_app(image="shop/web:2")
        for reader in readers:
            await reader.until(
                lambda reader=reader: reader.rows[1]["app/shop/prod/web"]["revision"] == 2  # type: ignore[misc]
            )
        for each in (*streams, *browsers):
            await each.__aexit__(None, None, None)
        closed = b'shoal_page_streams{kind="page"} 0.0'
        await eventually(lambda: closed in page.metrics.render(), what="the lost pages are noticed")


async def test_a_page_that_reads_nothing_costs_what_it_shows(tmp_path: Path) -> None:
    """Hundreds of changes while the connection takes nothing: then the newest state comes, in few messages."""
    async with served_page(tmp_path) as page, page.browser(page.world.editor) as browser:
        await page.world.put_app()
        async with browser.stream({"id": 1, "topic": "apps"}, {"id": 2, "topic": "events"}) as stream:
            await stream.until(lambda: {1, 2} <= stream.rows.keys())
            for n in range(2, 40):
                await page.world.put_app(image=f"shop/web:{n}", env={"NOTE": "x" * 200})
            before = len(stream.messages)
            await stream.until(lambda: stream.rows[1]["app/shop/prod/web"]["revision"] == 39)
            assert len(stream.messages) - before < 2 * 38


async def test_a_control_plane_that_starts_again_is_asked_for_everything_again(tmp_path: Path) -> None:
    urls = {"main": f"sqlite:///{tmp_path}/fleet.db"}
    async with served_page(tmp_path, urls=urls) as page, page.browser(page.world.editor) as browser:
        await page.world.put_app()
        cookies, port = browser.http.cookies, page.port
        async with browser.stream({"id": 1, "topic": "apps"}) as stream:
            await stream.until(lambda: 1 in stream.rows)
            page.dashboard.page.end_streams()
            with pytest.raises(EOFError):
                await stream.until(lambda: False)
    async with served_page(tmp_path, urls=urls, prepare=False) as page, page.stranger() as browser:
        text = next(cookie.value for cookie in cookies.jar if cookie.name == f"shoal-session-{port}")
        browser.http.cookies.set(f"shoal-session-{page.port}", text or "", domain="127.0.0.1")
        assert error_of(await browser("POST", f"/ui/stream/{stream.id}", {})) == (404, "NotFound")
        async with browser.stream({"id": 1, "topic": "apps"}) as again:
            await again.until(lambda: 1 in again.rows)
            assert again.rows[1].keys() == stream.rows[1].keys()


async def test_rows_on_the_page_equal_a_fresh_list_after_any_changes(tmp_path: Path) -> None:
    """The list is that of another control plane, which has followed nothing."""
    urls = {"main": f"sqlite:///{tmp_path}/fleet.db"}
    topics = [{"id": 1, "topic": "apps"}, {"id": 2, "topic": "fleet"}, {"id": 3, "topic": "traffic"}]
    async with served_page(tmp_path, urls=urls) as page, page.browser(page.world.editor) as browser:
        async with browser.stream(*topics) as stream:
            await stream.until(lambda: {1, 2, 3} <= stream.rows.keys())
            await changes(page, browser)
            async with (
                served_page(tmp_path, urls=urls, prepare=False) as fresh,
                fresh.browser(page.world.viewer) as other,
                other.stream(*topics) as list_,
            ):
                await list_.until(lambda: {1, 2, 3} <= list_.rows.keys())
                wrong = {key for key in list_.rows[2] if key.startswith("problem/")}
                assert {"problem/Agent/eu1/default", "problem/Agent/us1/default"} <= wrong
                assert {"route/shop/prod/shop", "host/shop.example"} <= list_.rows[3].keys()
                await stream.until(lambda: stream.rows == list_.rows)


async def changes(page: PageWorld, browser: Browser) -> None:
    for n in range(4):
        await page.world.put_app(f"app-{n % 3}", image=f"shop/web:{n}")
    await page.world.join("eu1")
    await page.world.join("us1", state={"deployments": {"connection": "watching", "brake": {"held": True, "count": 3}}})
    assert (await browser("DELETE", f"{ENV}/apps/app-1")).status_code == 200
    route = {"spec": {"host": "shop.example", "app": "app-0"}}
    assert (await browser("PUT", f"{ENV}/routes/shop", route)).status_code == 201
    async with page.world.databases.fleet.transaction() as tx:
        await tx.session.execute(update(tables.Agent).where(tables.Agent.agent == "eu1-agent").values(lost=True))
