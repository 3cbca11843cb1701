"""Make the pictures of the page that README and the guides show: `make screenshots`.

A fleet of `shoal up` with an app under traffic, whose next version fails now and then: its rollout goes back. The
pictures are taken of the real page, in docs/images, none of them larger than 150 KB. Nothing but the time differs from
one run to the next.

python scripts/screenshots.py [--only fleet,app,rollout]
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
WIDTH, HEIGHT = 1280, 800
MOST_BYTES = 150_000
_LINK = re.compile(r"(\S+)/ui/#code=(\S+)")
_BROWSER = "--no-sandbox --disable-gpu --hide-scrollbars --force-color-profile=srgb".split()
_TRAFFIC = 40  # requests a second, before it is judged
VIEWS = {
    "fleet": "",
    "app": "app/orders/production/api",
    "rollout": "rollout/orders/production/api",
}
_APP_S, _WENT_BACK_S = 25, 150


def main() -> int:
    arguments = argparse.ArgumentParser(description="Make the pictures of the page in docs/images.")
    arguments.add_argument("--only", default=",".join(VIEWS), help="which ones")
    only = arguments.parse_args().only.split(",")
    chromium = shutil.which("chromium")
    if chromium is None:
        print("chromium is not installed: scripts/chromium.sh installs it", file=sys.stderr)
        return 1
    IMAGES.mkdir(parents=True, exist_ok=True)
    from playwright.sync_api import sync_playwright

    with running() as shoal, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=_BROWSER)
        page = signed_in(browser, shoal)
        shoal("apply", "-f", str(ROOT / "examples/canary.yaml"))
        shoal("status", "api", "-p", "orders", "-e", "production", "--wait-ready", "--timeout", "90s")
        with traffic(shoal):
            time.sleep(_APP_S)
            shoal("apply", "-f", str(ROOT / "examples/canary-bad.yaml"))
            until_phase(shoal, "goingBack", "ended")
            time.sleep(2)
            for name in only:
                take(page, name)
        browser.close()
    return 0


@contextmanager
def running() -> Iterator[Any]:
    """`shoal up` in a folder of its own; gives what runs `shoal` with it."""
    folder = Path(tempfile.mkdtemp(prefix="ss-"))
    (folder / "tmp").mkdir()
    command = [sys.executable, "-m", "shoal", "up", "--dir", str(folder / "s"), "--port", "0", "--regions", "eu,us"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env={**os.environ, "TMPDIR": str(folder / "tmp")},
    )  # fmt: skip
    assert process.stdout

    def shoal(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "shoal", *arguments], env={**os.environ, "SHOAL_HOME": str(folder / "s")},
            capture_output=True, text=True, timeout=200,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"shoal {' '.join(arguments)}: {done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    try:
        for line in process.stdout:
            if line == "ready\n":
                break
        else:
            raise RuntimeError("shoal up did not start")
        yield shoal
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)
        process.stdout.close()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def traffic(shoal: Any) -> Iterator[None]:
    """Users of the app, at the gateways of all regions."""
    addresses = [line.split()[6] for line in shoal("get", "sentinels", "-p", "orders").splitlines()[1:]]
    load = str(Path(sys.executable).parent / "shoal-load")
    command = [load, "--host", "orders.localhost", "--rate", str(_TRAFFIC), *addresses]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait(10)


def until_phase(shoal: Any, *phases: str) -> None:
    """Wait until the newest rollout is in one of these."""
    end = time.monotonic() + _WENT_BACK_S
    command = ("rollout", "status", "api", "-p", "orders", "-e", "production", "-o", "json")
    while not any(f'"phase": "{each}"' in shoal(*command) for each in phases):
        if time.monotonic() > end:
            raise RuntimeError(f"the rollout did not get to {phases}: {shoal(*command)}")
        time.sleep(0.5)


def signed_in(browser: Any, shoal: Any) -> Any:
    found = _LINK.search(shoal("open"))
    assert found, "shoal open prints no link"
    page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light", reduced_motion="reduce")
    page.goto(f"{found[1]}/ui/#code={found[2]}")
    page.wait_for_selector(".shell")
    return page


def take(page: Any, name: str) -> None:
    page.goto(page.url.split("/ui/")[0] + f"/ui/{VIEWS[name]}")
    page.wait_for_selector("main h1")
    page.wait_for_timeout(2500)  # charts have their first samples
    path = IMAGES / f"page-{name}.png"
    page.screenshot(path=path)
    size = path.stat().st_size
    print(f"{path.relative_to(ROOT)}: {size // 1000} KB")
    if size > MOST_BYTES:
        raise RuntimeError(f"{path} has {size} bytes: at most {MOST_BYTES} belong into the repository")


if __name__ == "__main__":
    sys.exit(main())
