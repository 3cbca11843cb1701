"""The page as a whole: logging in, rights, texts from outside, a stream that breaks, objects that go."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable
from typing import Any

import pytest
from browser_up import Up, applied

pytestmark = pytest.mark.xdist_group("browser")

MARKUP = "<img src=x onerror=alert(1)>"
APP = f"""
apiVersion: shoal.dev/v1
kind: App
metadata: {{name: texts, project: demo, environment: production, annotations: {{note: "{MARKUP}"}}}}
spec:
  image: shoal/echo
  port: 8080
  env: {{GREETING: "{MARKUP}"}}
  topology: [{{region: eu, replicas: 1}}]
"""


def test_a_code_logs_in_once(open_page: Callable[..., Any], up: Up, watched: Any) -> None:
    watched.expected += ["401"]
    _, code = up.link()
    page = open_page(f"#code={code}", nobody=True)
    page.wait_for_selector(".shell")
    assert code not in page.url
    again = open_page(f"#code={code}", nobody=True)
    assert "used" in again.locator("[role=alert]").inner_text()
    wrong = open_page("#code=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", nobody=True)
    assert "shoal open" in wrong.locator("[role=alert]").inner_text()
    assert not wrong.locator(".shell").count()


def test_a_token_logs_in_and_out(open_page: Callable[..., Any], up: Up, watched: Any) -> None:
    watched.expected += ["401"]
    page = open_page("apps", nobody=True)
    page.fill("input[type=password]", "shoal_user_wrong")
    page.click("button[type=submit]")
    page.wait_for_selector("[role=alert]")
    page.fill("input[type=password]", (up.state / "control" / "admin.token").read_text().strip())
    page.click("button[type=submit]")
    page.wait_for_selector("main h1:has-text('Apps')")
    page.click("text=Sign out")
    page.wait_for_selector("text=Sign in to Shoal")


def test_a_viewer_is_offered_nothing_that_would_be_refused(open_page: Callable[..., Any], up: Up, watched: Any) -> None:
    watched.expected += ["401", "403"]
    said = up.shoal("token", "create", "--kind", "user", "--name", "ana", "--role", "viewer")
    token = re.search(r"shoal_user_[\w-]+", said)
    assert token
    page = open_page("app/demo/production/hello", nobody=True)
    page.fill("input[type=password]", token[0])
    page.click("button[type=submit]")
    page.wait_for_selector(".tabs")
    assert page.locator(".head .button").all_inner_texts() == ["Why?"]
    status = page.evaluate(
        """async () => (await fetch('/api/v1/projects/demo/environments/production/apps/hello/restart',
             {method: 'POST', headers: {'X-Shoal-Page': '1'}})).status"""
    )
    assert status == 403
    page.click("nav.tabs >> text=Revisions")
    page.wait_for_selector("table")
    assert not page.locator("text=Go back to it").count()
    page.goto(page.url.split("/ui/")[0] + "/ui/settings")
    page.wait_for_selector("text=Not for your role")


def test_texts_from_outside_stay_text(open_page: Callable[..., Any], up: Up) -> None:
    dialogs: list[str] = []
    with applied(up, APP):
        page = open_page("app/demo/production/texts?tab=configuration")
        page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
        page.wait_for_selector(f"dd:has-text('{MARKUP}')")
        page.goto(page.url.split("?")[0] + "?tab=events")
        page.wait_for_selector("table")
        page.goto(page.url.split("/ui/")[0] + f"/ui/query?q={MARKUP}")
        page.wait_for_selector("[role=alert]")
        page.goto(
            page.url.split("/ui/")[0] + f"/ui/app/demo/production/{MARKUP.replace('<', '%3C').replace(' ', '%20')}"
        )
        page.wait_for_selector("main >> text=/does not exist|not available/")
        assert page.locator("h1").inner_text() == MARKUP
        page.keyboard.press("Control+k")
        page.keyboard.type(MARKUP)
        page.wait_for_selector(f'text=has a name with "{MARKUP}"')
    assert page.locator("img").count() == 0
    assert dialogs == []


def test_logs_are_followed(open_page: Callable[..., Any]) -> None:
    page = open_page("app/welcome/production/web?tab=instances")
    page.locator("button:has-text('Log')").first.click()
    page.wait_for_function("() => document.querySelector('pre.log')?.textContent.length > 10")


def test_a_change_is_tried_out_then_made_and_seen(open_page: Callable[..., Any], up: Up) -> None:
    page = open_page("app/demo/production/hello")
    page.click("button:has-text('Scale')")
    page.select_option("dialog select", "us")
    page.fill("dialog input[type=number]", "2")
    page.wait_for_selector("dialog >> text=replicas: 1 → 2")
    assert page.inner_text("dialog .command code") == "shoal scale hello -p demo -e production --region us --replicas 2"
    page.click("dialog button[type=submit]")
    page.wait_for_selector("text=hello is scaled")
    page.wait_for_selector("tr:has-text('us') >> td:has-text('2/2')")
    assert (
        json.loads(up.shoal("get", "app", "hello", "-p", "demo", "-e", "production", "-o", "json"))["spec"]["topology"][
            1
        ]["replicas"]
        == 2
    )


def test_keys_and_search_find_every_object(open_page: Callable[..., Any]) -> None:
    page = open_page()
    page.wait_for_selector(".region")
    page.keyboard.press("g")
    page.keyboard.press("c")
    page.wait_for_selector("main h1:has-text('Clusters')")
    page.keyboard.press("Control+k")
    page.keyboard.type("hello")
    page.wait_for_selector("[role=option]:has-text('pods')")
    page.keyboard.press("Enter")
    page.wait_for_selector("main h1:has-text('hello')")


def test_a_view_of_an_object_that_is_deleted_says_so(open_page: Callable[..., Any], up: Up) -> None:
    with applied(up, APP):
        page = open_page("app/demo/production/texts")
        page.wait_for_selector(".tabs")
    page.wait_for_selector("text=This app does not exist")


def test_a_query_is_completed_and_answered(open_page: Callable[..., Any]) -> None:
    page = open_page("query")
    page.fill("input[aria-label=Query]", "pods where exp")
    page.wait_for_selector("[role=option]:has-text('exposed')")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert page.input_value("input[aria-label=Query]") == "pods where exposed "
    page.keyboard.press("Enter")
    page.wait_for_selector("table[aria-label=Answer]")
    with page.expect_download() as download:
        page.click("button:has-text('CSV')")
    assert download.value.suggested_filename == "query.csv"


def test_a_broken_stream_is_said_and_comes_back(open_page: Callable[..., Any], up: Up, watched: Any) -> None:
    """Last of all: the control plane is killed, and `up` starts it again."""
    watched.expected += ["ERR_", "503", "502", "401"]
    page = open_page("apps")
    page.wait_for_selector("td:has-text('hello')")
    assert page.inner_text(".link-state") == "Live"
    pid = json.loads((up.state / "endpoints.json").read_text())["control"]["pid"]
    os.kill(pid, signal.SIGKILL)
    page.wait_for_selector(".banner:has-text('is broken')")
    assert re.search(r"What you see is \d+ s old", page.inner_text(".banner"))
    assert page.locator("td:has-text('hello')").count()
    page.wait_for_selector(".link-state >> text=/^Live$/", timeout=30_000)
    page.wait_for_selector(".banner", state="detached")
    up.shoal("stop", "hello", "-p", "demo", "-e", "production")
    page.wait_for_selector("tr:has-text('hello') >> text=Stopped", timeout=30_000)
