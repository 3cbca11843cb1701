"""What the page shows of the navigator: asked with grants that carry the user's rights, and passed on."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from answers_world import World, a_pod, an_object, the_world
from api_world import error_of
from page_world import KEY, Places, served_page

from shoal.app.grant_file import GrantFile
from shoal.app.navigator.manager import Callers
from shoal.app.ports import any_free
from shoal.base import grants
from shoal.base.access import EVERYTHING, Access
from shoal.base.asgi import serving
from shoal.base.clock import Clock, RealClock
from shoal.base.grants import Grant
from shoal.base.metrics import Metrics
from shoal.dashboard.navigator import NavigatorPlace
from shoal.navigator.answers.api import make_api

LABEL = "shoal.dev/workspace"


class NoTokens:
    async def authenticate(self, text: str) -> None:
        return None


class ApartClock(RealClock):
    """A machine whose clock is wrong by so much."""

    def __init__(self, apart_s: float) -> None:
        self._apart_s = apart_s

    def wall_s(self) -> float:
        return super().wall_s() + self._apart_s


@asynccontextmanager
async def a_navigator(
    folder: Path, *, key: bytes = KEY, clock: Clock | None = None, world: World | None = None
) -> AsyncIterator[tuple[World, Places]]:
    """A navigator on a port, with two pods of the workspace ``default`` among others."""
    world = world or the_world()
    world.view.put("eu-1", "pods", *(a_pod(f"mine-{n}", "mine", labels={LABEL: "default"}) for n in range(2)))
    world.view.put("eu-1", "namespaces", an_object("mine", "", metadata={"labels": {LABEL: "default"}}))
    (folder / "grant.key").write_text(key.hex())
    clock = clock or RealClock()
    callers = Callers(NoTokens(), GrantFile(folder / "grant.key", clock))  # type: ignore[arg-type]  # knows no token
    api = make_api(
        lambda: world.view, world.history, world.edges, world.fleet, authenticate=callers.authenticate,
        goes_on=callers.goes_on, clock=clock, changes=world.changes, admin=world.admin, options=world.options,
        metrics=Metrics(),
    )  # fmt: skip
    port = any_free("127.0.0.1")
    async with serving(api, host="127.0.0.1", port=port, clock=RealClock()):
        yield world, Places(NavigatorPlace(f"http://127.0.0.1:{port}"))
        api.end_streams()


async def test_users_see_what_their_workspace_has_and_administrators_of_the_fleet_everything(tmp_path: Path) -> None:
    async with a_navigator(tmp_path) as (_, places), served_page(tmp_path, places=places) as page:
        async with page.browser(page.world.viewer) as viewer, page.browser(page.world.admin) as admin:
            assert (await viewer("GET", "/ui/session")).json()["navigator"] is True
            mine = (await viewer("GET", "/ui/navigator/query?q=pods")).json()
            assert {each["name"] for each in mine["items"]} == {"mine-0", "mine-1"}
            everything = (await admin("GET", "/ui/navigator/query?q=pods")).json()
            assert everything["total"] > 5
            other = await admin("GET", "/ui/navigator/query?q=pods", X_Shoal_Workspace="default")
            assert other.json()["total"] == everything["total"], "it is their own"
            denied = await viewer("GET", "/ui/navigator/query?q=pods", X_Shoal_Workspace="other")
            assert error_of(denied) == (403, "Forbidden")
            for method, path in (("PUT", "checks/c"), ("DELETE", "clusters/eu-1"), ("PATCH", "edges")):
                refused = await viewer(method, f"/ui/navigator/{path}", {"query": "pods"})
                assert error_of(refused) == (403, "Forbidden"), path
            saved = await admin("PUT", "/ui/navigator/checks/c", {"query": "pods where not ready"})
            assert saved.status_code == 200 and saved.json()["name"] == "c"
            answer = await viewer("GET", "/ui/navigator/query?q=pods+where")
            assert error_of(answer) == (400, "BadRequest") and "^" in answer.json()["error"]["message"]


async def test_topics_of_the_navigator_are_of_what_the_user_may_see(tmp_path: Path) -> None:
    topics = [
        {"id": 1, "topic": "query", "text": "pods"}, {"id": 2, "topic": "clusters"}, {"id": 3, "topic": "services"},
        {"id": 4, "topic": "mistakes"}, {"id": 5, "topic": "checks"}, {"id": 6, "topic": "workloads"},
        {"id": 7, "topic": "query", "text": "pods where"}, {"id": 8, "topic": "service", "namespace": "shop", "name": "web"},
        {"id": 9, "topic": "why", "kind": "Pod", "cluster": "eu-1", "namespace": "shop", "name": "web-2"},
        {"id": 10, "topic": "shards"}, {"id": 11, "topic": "pods", "cluster": "eu-1", "exposed": False},
    ]  # fmt: skip
    async with a_navigator(tmp_path) as (world, places), served_page(tmp_path, places=places) as page:
        async with page.browser(page.world.viewer) as viewer, page.browser(page.world.admin) as admin:
            async with viewer.stream(*topics) as limited, admin.stream(*topics) as stream:
                await stream.until(lambda: stream.rows.keys() | stream.errors.keys() >= set(range(1, 12)))
                await limited.until(lambda: limited.rows.keys() | limited.errors.keys() >= set(range(1, 12)))
                assert stream.errors.keys() == {7} and "expected" in stream.errors[7]["message"]
                assert {"eu-1/mine/mine-0", "eu-1/mine/mine-1"} == limited.rows[1].keys() - {"#"}
                assert limited.errors.keys() >= {7, 8, 9} and limited.errors[9]["code"] == "NotFound"
                assert "shop/web" in stream.rows[3] and "shop/web" not in limited.rows[3]
                assert stream.rows[2]["us-2"]["freshness"] == "stale"
                assert stream.rows[1]["#"]["columns"][0] == {"name": "cluster", "type": "text"}
                assert isinstance(stream.rows[1]["eu-1/shop/web-1"]["age"], int), "a moment"
                assert [each for each in stream.rows[4].values() if each["code"] == "unknown-host"] or stream.rows[4]
                assert stream.rows[9]["#"]["level"] == "bad"
                world.view.put("eu-1", "pods", a_pod("mine-2", "mine", labels={LABEL: "default"}))
                world.view.put("eu-1", "pods", a_pod("theirs-9", "shop"))
                world.changes.notify()
                await limited.until(lambda: "eu-1/mine/mine-2" in limited.rows[1])
                await stream.until(lambda: "eu-1/shop/theirs-9" in stream.rows[1])
                assert "theirs-9" not in str(limited.messages)
                told = next(m for m in reversed(stream.messages) if m.get("id") == 1)
                assert told["set"].keys() <= {"#", "eu-1/shop/theirs-9", "eu-1/mine/mine-2"}, "ages do not travel"


async def test_the_fleet_has_what_the_navigator_knows_of_its_clusters(tmp_path: Path) -> None:
    world = the_world()
    world.view.known[0] = replace(world.view.known[0], name="eu1")
    async with a_navigator(tmp_path, world=world) as (_, places), served_page(tmp_path, places=places) as page:
        async with page.browser(page.world.admin) as admin, admin.stream({"id": 1, "topic": "fleet"}) as stream:
            await stream.until(lambda: "freshness" in stream.rows.get(1, {}).get("cluster/eu1", {}))
            assert stream.rows[1]["cluster/eu1"]["version"] == "v1.34.1"
            assert "freshness" not in stream.rows[1]["cluster/us1"]


async def test_logs_are_passed_on_as_they_come(tmp_path: Path) -> None:
    async with a_navigator(tmp_path) as (_, places), served_page(tmp_path, places=places) as page:
        path = "/ui/navigator/pods/eu-1/shop/web-1/logs?tail=2"
        async with page.browser(page.world.admin) as admin, page.browser(page.world.viewer) as viewer:
            answer = await admin("GET", path)
            assert answer.text == "web-1 line 1\nweb-1 line 2\n"
            assert answer.headers["content-type"].startswith("text/plain")
            assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
            assert error_of(await viewer("GET", path)) == (404, "NotFound")


async def test_without_a_navigator_the_rest_is_shown_and_the_fix_is_told(tmp_path: Path) -> None:
    topics = [{"id": 1, "topic": "fleet"}, {"id": 2, "topic": "query", "text": "pods"}]
    async with served_page(tmp_path) as page, page.browser(page.world.viewer) as viewer:
        assert error_of(await viewer("GET", "/ui/navigator/clusters")) == (503, "ServiceUnavailable")
        async with viewer.stream(*topics) as stream:
            await stream.until(lambda: 1 in stream.rows and 2 in stream.errors)
            assert "write the navigator's url" in stream.errors[2]["message"]
        page.places.known = NavigatorPlace("http://127.0.0.1:1")
        answer = await viewer("GET", "/ui/navigator/clusters")
        assert error_of(answer) == (503, "ServiceUnavailable") and "connection refused" in answer.text


async def test_a_navigator_that_does_not_know_the_key_or_the_time_says_so(tmp_path: Path) -> None:
    for key, apart_s, good in (
        (b"x" * 32, 0, False),
        (KEY, 80, True),
        (KEY, 120, False),
        (KEY, -20, True),
        (KEY, -60, False),
    ):
        folder = tmp_path / f"{key[:1].hex()}{apart_s}"
        folder.mkdir()
        async with a_navigator(folder, key=key, clock=ApartClock(apart_s)) as (_, places):
            async with served_page(folder, places=places) as page, page.browser(page.world.admin) as admin:
                answer = await admin("GET", "/ui/navigator/search?text=web")
                if good:
                    assert answer.status_code == 200, (apart_s, answer.text)
                    continue
                assert answer.status_code in (401, 503), (apart_s, answer.text)
                async with admin.stream({"id": 1, "topic": "query", "text": "pods"}) as stream:
                    await stream.until(lambda: 1 in stream.errors)
                    assert "grant.key" in stream.errors[1]["message"]


async def test_what_a_grant_has_begun_goes_on_and_nothing_new_begins_with_it(tmp_path: Path) -> None:
    (tmp_path / "grant.key").write_text(KEY.hex())
    callers = Callers(NoTokens(), GrantFile(tmp_path / "grant.key", RealClock()))  # type: ignore[arg-type]
    old = grants.sign(KEY, Grant(user="u", access=EVERYTHING), RealClock().wall_s() - 600)
    assert await callers.authenticate(old) is None
    going_on = await callers.goes_on(old)
    assert going_on is not None and not going_on.may_write
    assert await callers.goes_on(old[:-2] + "xx") is None


async def test_grants_cannot_be_made_or_changed_without_the_key(tmp_path: Path) -> None:
    now_s = 1000.0
    text = grants.sign(KEY, Grant(user="vic", access=Access.parse(["workspace=w1"])), now_s)
    found = grants.read(KEY, text, now_s)
    assert found == Grant(user="vic", access=Access.parse(["workspace=w1"]))
    assert grants.read(b"x" * 32, text, now_s) is None
    body, _, signature = text.removeprefix("shoal_grant_").partition(".")
    everything = grants.sign(KEY, Grant(user="vic", access=EVERYTHING, may_write=True), now_s)
    for forged in (
        f"{everything.partition('.')[0]}.{signature}", f"shoal_grant_{body}", f"shoal_grant_{body}.", f"shoal_grant_.{signature}",
        f"shoal_grant_{body}.{signature}x", "shoal_grant_é.é", "shoal_grant_" + "a" * 9000, text.upper(), "", "x",
    ):  # fmt: skip
        assert grants.read(KEY, forged, now_s) is None, forged[:40]
    assert grants.read(KEY, text, now_s + 91) is None and grants.read(KEY, text, now_s - 31) is None
    assert grants.read(KEY, text, now_s + 89) and grants.read(KEY, text, now_s - 29)


async def test_the_key_may_come_and_change_while_the_navigator_runs(tmp_path: Path) -> None:
    path = tmp_path / "grant.key"
    file = GrantFile(path, RealClock())
    text = grants.sign(KEY, Grant(user="u", access=EVERYTHING), RealClock().wall_s())
    times = iter(range(1, 10))
    assert file.read(text) is None and GrantFile(None, RealClock()).read(text) is None
    for written, works in (("short", False), (KEY.hex() + "\n", True), ((b"y" * 32).hex(), False), (KEY.hex(), True)):
        path.write_text(written)
        os.utime(path, ns=(0, next(times)))
        assert (file.read(text) is not None) == works, written
