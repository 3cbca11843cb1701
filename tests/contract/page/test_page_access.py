"""Logging in to the page, and what a session may do: over a port, as browsers do it."""

from __future__ import annotations

from pathlib import Path

from api_world import ENV, an_app, error_of
from page_world import PAGE, served_page

from shoal.testing.waiting import eventually


async def test_a_link_logs_in_once_and_the_session_is_a_cookie_of_this_port(tmp_path: Path) -> None:
    async with served_page(tmp_path) as page, page.stranger() as browser:
        made = await page.world.ok(page.world.editor("POST", "/api/v1/login-codes", {}))
        assert set(made) == {"code", "expiresAt", "page"}
        assert (await browser("GET", "/ui/session")).status_code == 401
        answer = await browser("POST", "/ui/login", {"code": made["code"]})
        assert (answer.status_code, answer.content) == (204, b"")
        cookie = answer.headers["set-cookie"]
        assert cookie.startswith(f"shoal-session-{page.port}=shoal_session_")
        assert all(part in cookie for part in ("HttpOnly", "SameSite=Strict", "Path=/", "Max-Age=604800"))
        shown = (await browser("GET", "/ui/session")).json()
        assert {name: shown[name] for name in ("user", "role", "workspace", "workspaces", "operator", "version")} == {
            "user": "eve", "role": "editor", "workspace": "default", "workspaces": ["default"], "operator": False,
            "version": "1.2.3",
        }  # fmt: skip
        assert "apply" in shown["may"] and "manage" not in shown["may"]
        assert shown["now"] < shown["expiresAt"] and shown["navigator"] is False
        async with page.stranger() as other:
            again = await other("POST", "/ui/login", {"code": made["code"]})
            assert error_of(again) == (401, "Unauthorized") and "used already" in again.text
            assert "set-cookie" not in again.headers


async def test_rest_works_with_a_session_with_the_rights_of_its_token(tmp_path: Path) -> None:
    async with served_page(tmp_path) as page:
        async with page.browser(page.world.editor) as editor:
            made = await editor("PUT", f"{ENV}/apps/web", an_app())
            assert made.status_code == 201, made.text
            assert (await editor("GET", "/api/v1")).json()["you"]["name"] == "eve"
            assert error_of(await editor("GET", "/api/v1/tokens")) == (403, "Forbidden")
        async with page.browser(page.world.viewer) as viewer:
            assert (await viewer("GET", f"{ENV}/apps/web")).status_code == 200
            for method, path in (
                ("DELETE", f"{ENV}/apps/web"), ("POST", f"{ENV}/apps/web/restart"), ("PUT", f"{ENV}/apps/web"),
                ("POST", f"{ENV}/apps/web/rollout/abort"), ("PUT", "/ui/navigator/checks/x"),
            ):  # fmt: skip
                refused = await viewer(method, path, an_app() if method == "PUT" else {})
                assert error_of(refused) == (403, "Forbidden"), (method, path)


async def test_requests_that_another_site_may_have_made_do_nothing(tmp_path: Path) -> None:
    async with served_page(tmp_path) as page, page.browser(page.world.editor) as browser:
        good = {"Origin": page.url, "Sec_Fetch_Site": "same-origin"}
        for bad in (
            {"X_Shoal_Page": "", **good},
            {"Origin": "https://evil.example"},
            {"Origin": "null"},
            {"Sec_Fetch_Site": "cross-site"},
            {"Host": f"evil.example:{page.port}"},
            {"Host": f"127.0.0.1.evil.example:{page.port}", "Origin": f"http://127.0.0.1.evil.example:{page.port}"},
        ):
            for path in (f"{ENV}/apps/web", "/ui/logout", "/ui/stream/x"):
                method = "PUT" if path.startswith("/api") else "POST"
                assert error_of(await browser(method, path, an_app(), **bad)) == (403, "Forbidden"), (bad, path)
            if "X_Shoal_Page" not in bad:
                for path in ("/api/v1", "/ui/session", "/ui/stream", "/ui/navigator/clusters"):
                    assert error_of(await browser("GET", path, **bad)) == (403, "Forbidden"), (bad, path)
        assert (await browser("GET", f"{ENV}/apps/web")).status_code == 404, "nothing was made"
        assert (await browser("PUT", f"{ENV}/apps/web", an_app(), **good)).status_code == 201


async def test_nobody_is_logged_in_to_an_account_of_somebody_else(tmp_path: Path) -> None:
    async with served_page(tmp_path) as page, page.stranger() as browser:
        body = {"token": page.world.viewer.token}
        for bad in ({"X_Shoal_Page": ""}, {"Origin": "https://evil.example"}, {"Sec_Fetch_Site": "cross-site"}):
            answer = await browser("POST", "/ui/login", body, **bad)
            assert error_of(answer) == (403, "Forbidden") and "set-cookie" not in answer.headers


WRONG: list[tuple[object, int, str]] = [
    ({"code": "x"}, 401, "not known"),
    ({"token": "x"}, 401, "unknown"),
    ({}, 400, "code or token"),
    ({"code": ""}, 400, "code or token"),
    ({"code": 7}, 400, "code or token"),
    ({"code": "x", "token": "y"}, 400, "code or token"),
    ({"password": "x"}, 400, "code or token"),
    ([], 400, "code or token"),
    ("x" * 20_000, 413, "larger"),
]


async def test_what_does_not_log_in_says_why(tmp_path: Path) -> None:
    async with served_page(tmp_path) as page, page.stranger() as browser:
        for body, status, text in WRONG:
            answer = await browser("POST", "/ui/login", body)
            assert (answer.status_code, text in answer.text) == (status, True), (body, answer.text)


async def test_attempts_that_fail_wait_after_some_and_codes_still_work_for_others(tmp_path: Path) -> None:
    async with served_page(tmp_path) as page, page.stranger() as browser:
        statuses = [(await browser("POST", "/ui/login", {"code": f"guess {n}"})).status_code for n in range(30)]
        assert set(statuses[:20]) == {401} and statuses[-1] == 429
        answer = await browser("POST", "/ui/login", {"code": "guess"})
        assert error_of(answer) == (429, "TooManyRequests") and int(answer.headers["retry-after"]) >= 1


async def test_sessions_end_by_logging_out_by_an_administrator_and_with_their_token(tmp_path: Path) -> None:
    async with served_page(tmp_path) as page, page.browser(page.world.admin) as admin:
        async with page.browser(page.world.viewer) as viewer:
            cookie = viewer.http.cookies
            out = await viewer("POST", "/ui/logout")
            assert out.status_code == 204 and "Max-Age=0" in out.headers["set-cookie"]
            viewer.http.cookies = cookie
            assert (await viewer("GET", "/ui/session")).status_code == 401
        async with page.browser(page.world.viewer) as viewer:
            own = (await viewer("GET", "/api/v1/sessions")).json()["items"]
            assert [(each["user"], each["current"]) for each in own] == [("vic", True)]
            listed = (await admin("GET", "/api/v1/sessions")).json()["items"]
            assert {each["user"] for each in listed} == {"ann", "vic"}
            mine = next(each for each in listed if each["user"] == "ann")
            assert error_of(await viewer("DELETE", f"/api/v1/sessions/{mine['id']}")) == (404, "NotFound")
            assert (await admin("DELETE", f"/api/v1/sessions/{own[0]['id']}")).status_code == 200
            assert (await viewer("GET", "/ui/session")).status_code == 401
        async with page.browser(page.world.editor) as editor:
            row = await page.world.tokens.find("user", "eve", workspace_id="default")
            assert (await admin("DELETE", f"/api/v1/tokens/{row.id}")).status_code == 200

            async def is_out() -> bool:
                return (await editor("GET", "/ui/session")).status_code == 401

            await eventually(is_out, timeout_s=5, what="the session ends with its token")
        audit = (await admin("GET", "/api/v1/audit")).json()["items"]
        kinds = [(each["action"], each["name"]) for each in audit if each["kind"] == "Session"]
        assert ("login", "user/eve") in kinds and ("logout", "user/vic") in kinds


async def test_a_session_cannot_make_another_one(tmp_path: Path) -> None:
    async with served_page(tmp_path) as page, page.browser(page.world.admin) as admin:
        assert error_of(await admin("POST", "/api/v1/login-codes", {})) == (403, "Forbidden")


async def test_without_tls_tokens_are_not_taken(tmp_path: Path) -> None:
    async with served_page(tmp_path) as page, page.stranger() as browser:
        token = {"Authorization": f"Bearer {page.world.admin.token}"}
        for path in ("/api/v1", "/ui/session", "/ui/stream"):
            answer = await browser("GET", path, **token)
            assert error_of(answer) == (400, "BadRequest"), path
            assert page.world.admin.token not in answer.text


async def test_a_session_works_in_every_control_plane_on_the_database(tmp_path: Path) -> None:
    urls = {"main": f"sqlite:///{tmp_path}/fleet.db"}
    async with served_page(tmp_path, urls=urls) as first, served_page(tmp_path, urls=urls, prepare=False) as second:
        async with first.browser(first.world.viewer) as browser, second.stranger() as other:
            text = browser.http.cookies[f"shoal-session-{first.port}"]
            other.http.cookies.set(f"shoal-session-{second.port}", text, domain="127.0.0.1")
            assert (await other("GET", "/ui/session")).json()["user"] == "vic"
            await browser("POST", "/ui/logout")

            async def is_out() -> bool:
                return (await other("GET", "/ui/session")).status_code == 401

            await eventually(is_out, timeout_s=5, what="it ends in both")


async def test_every_answer_of_the_page_has_a_strict_policy(tmp_path: Path) -> None:
    files = tmp_path / "static"
    (files / "assets").mkdir(parents=True)
    (files / "index.html").write_text("<!doctype html><title>Shoal</title>" + " " * 600)
    (files / "assets" / "app-1a2b.js").write_text("export {}" * 200)
    (files / "assets" / "app-1a2b.js.br").write_bytes(b"brotli")
    async with served_page(tmp_path, files=files) as page, page.stranger() as browser:
        for path in ("/ui/", "/ui/app/shop/prod/web", "/ui/assets/app-1a2b.js", "/ui/session", "/ui/nothing.js", "/"):
            answer = await browser.http.get(path)
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy and "unsafe" not in policy
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["referrer-policy"] == "no-referrer"
        home = await browser.http.get("/")
        assert (home.status_code, home.headers["location"]) == (307, "/ui/")
        view = await browser.http.get("/ui/app/shop/prod/web")
        assert view.text.startswith("<!doctype html>") and view.headers["cache-control"] == "no-cache"
        assert view.headers["content-encoding"] == "gzip"
        kept = await browser.http.get("/ui/", headers={"If-None-Match": view.headers["etag"]})
        assert (kept.status_code, kept.content) == (304, b"")
        script = await browser.http.get("/ui/assets/app-1a2b.js", headers={"Accept-Encoding": "gzip"})
        assert "immutable" in script.headers["cache-control"] and script.text == "export {}" * 200
        request = browser.http.build_request("GET", "/ui/assets/app-1a2b.js", headers={"Accept-Encoding": "br, gzip"})
        raw = await browser.http.send(request, stream=True)
        assert raw.headers["content-encoding"] == "br"
        await raw.aclose()
        for path in ("/ui/../fleet.db", "/ui/%2e%2e/fleet.db", "/ui/assets/..%2f..%2ffleet.db", "/ui/.hidden.js",
                     "/ui/assets/none.js"):  # fmt: skip
            assert (await browser.http.get(path)).status_code in (401, 404), path
        (files / "index.html").write_text("another")
        assert (await browser.http.get("/ui/")).text == "another", "a build while it runs"


async def test_without_a_build_the_page_says_how_to_make_one(tmp_path: Path) -> None:
    async with served_page(tmp_path, files=tmp_path / "none") as page, page.stranger() as browser:
        answer = await browser.http.get("/ui/")
        assert answer.status_code == 503 and "make setup" in answer.text
        assert (await browser("POST", "/ui/login", {"token": page.world.viewer.token}, **PAGE)).status_code == 204
