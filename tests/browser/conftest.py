"""One ``shoal up`` for all tests of the page, and Debian's chromium.

Every test watches the browser: an error on the console, a script that fails or a request that is answered with an error
fails it, unless the test says that it expects one.

Playwright's event loop runs in this thread for as long as it is started. It ends with the last of these tests, since
asynchronous ones of other folders cannot run beside it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from browser_up import ROOT, STATIC, Up, Watched

WAIT_MS = 20_000
FLAGS = (
    "--no-sandbox --disable-gpu --disable-background-networking --disable-component-update --disable-sync".split()
)  # fmt: skip


@pytest.fixture(scope="package")
def browser() -> Iterator[Any]:
    driver = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("chromium is not installed: scripts/chromium.sh says why")
    with driver.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield running
        running.close()


@pytest.fixture(scope="package")
def up(browser: Any) -> Iterator[Up]:
    if not (STATIC / "index.html").exists():
        pytest.skip("the page is not built: make setup builds it where npm's registry can be reached")
    folder = Path(tempfile.mkdtemp(prefix="sp-"))
    (folder / "tmp").mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "shoal", "up", "--dir", str(folder / "s"), "--port", "0", "--regions", "eu,us"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, "TMPDIR": str(folder / "tmp")},
    )  # fmt: skip
    assert process.stdout
    try:
        said = []
        for line in process.stdout:
            said.append(line)
            if line == "ready\n":
                break
        assert said[-1:] == ["ready\n"], "".join(said)
        here = Up(folder / "s")
        here.shoal("apply", "-f", str(ROOT / "examples/hello.yaml"))
        here.shoal("status", "hello", "--wait-ready", "--timeout", "60s")
        yield here
    finally:
        process.terminate()
        process.wait(30)
        process.stdout.close()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def watched() -> Iterator[Watched]:
    here = Watched()
    yield here
    here.check()


@pytest.fixture(scope="package")
def signed_in(up: Up, browser: Any) -> tuple[str, Any]:
    """The page's address, and the cookies of an administrator."""
    url, code = up.link()
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{url}/ui/#code={code}")
    page.wait_for_selector(".shell", timeout=WAIT_MS)
    state = context.storage_state()
    context.close()
    return url, state


@pytest.fixture
def open_page(browser: Any, signed_in: tuple[str, Any], watched: Watched) -> Iterator[Callable[..., Any]]:
    """``open_page(path, width=…, theme=…)`` as an administrator; with ``nobody=True`` without a session."""
    contexts = []
    url, state = signed_in

    def opened(path: str = "", *, width: int = 1440, theme: str = "light", nobody: bool = False) -> Any:
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=theme, storage_state=None if nobody else state
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(WAIT_MS)
        watched.watch(page)
        page.goto(f"{url}/ui/{path}")
        return page

    yield opened
    for context in contexts:
        context.close()
