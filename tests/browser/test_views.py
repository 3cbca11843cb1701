"""Every view against a running fleet: nothing fails, nothing is blank or cut off, and assistive technology can use it."""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Callable
from struct import unpack
from typing import Any

import pytest
from browser_up import AXE, STATIC

pytestmark = pytest.mark.xdist_group("browser")

WEB = "app/welcome/production/web"
VIEWS = {
    "fleet": "",
    "apps": "apps",
    "app": WEB,
    "instances": f"{WEB}?tab=instances",
    "revisions": f"{WEB}?tab=revisions",
    "events": f"{WEB}?tab=events",
    "configuration": f"{WEB}?tab=configuration",
    "rollouts": "rollouts",
    "rollout": "rollout/welcome/production/web",
    "traffic": "traffic",
    "clusters": "clusters",
    "services": "clusters?tab=services",
    "mistakes": "clusters?tab=mistakes",
    "cluster": "cluster/eu-1",
    "pods": "cluster/eu-1?tab=pods",
    "query": "query?q=pods+where+region+%3D+'eu'",
    "time": "time",
    "shards": "shards",
    "why": "why/App/web?project=welcome&environment=production",
    "tokens": "settings",
    "audit": "settings?tab=audit",
    "edges": "settings?tab=edges",
}
LOADED = "() => document.querySelector('main h1') && !/Loading |Asking…/.test(document.querySelector('main').innerText)"
SERIOUS = """async () => (await axe.run(document, {resultTypes: ['violations']})).violations
  .filter(each => ['serious', 'critical'].includes(each.impact))
  .map(each => each.id + ': ' + each.nodes.slice(0, 3).map(node => node.target + ' ' + (node.any[0]?.message ?? '')).join('; '))"""


def pixels(png: bytes) -> bytes:
    """The bytes of an image's rows, of three or four bytes per pixel."""
    at, width, depth, data = 8, 0, 3, b""
    while at < len(png):
        (length,) = unpack(">I", png[at : at + 4])
        kind, body = png[at + 4 : at + 8], png[at + 8 : at + 8 + length]
        if kind == b"IHDR":
            width, depth = unpack(">I", body[:4])[0], {2: 3, 6: 4}[body[9]]
        elif kind == b"IDAT":
            data += body
        at += 12 + length
    raw, stride = zlib.decompress(data), width * depth
    before, rows = bytearray(stride), bytearray()
    for start in range(0, len(raw), stride + 1):
        how, line = raw[start], bytearray(raw[start + 1 : start + 1 + stride])
        for i in range(stride):
            left, up = line[i - depth] if i >= depth else 0, before[i]
            corner = before[i - depth] if i >= depth else 0
            guess = left + up - corner
            nearest = min((left, up, corner), key=lambda each: abs(guess - each))
            line[i] = (line[i] + (0, left, up, (left + up) // 2, nearest)[how]) & 255
        rows += line
        before = line
    return bytes(rows)


def variance(png: bytes) -> float:
    values = pixels(png)
    mean = sum(values) / len(values)
    return sum((value - mean) ** 2 for value in values) / len(values)


WIDE, NARROW = (1440, "light"), (390, "dark")
TABS = ("revisions", "events", "services", "mistakes", "pods", "audit", "edges")
CASES = [(view, *how) for view in VIEWS for how in (WIDE, NARROW) if how == NARROW or view not in TABS]


@pytest.mark.parametrize(("view", "width", "theme"), CASES)
def test_a_view_shows_something_and_nothing_fails(
    view: str, width: int, theme: str, open_page: Callable[..., Any], watched: Any
) -> None:
    page = open_page(VIEWS[view], width=width, theme=theme)
    page.wait_for_function(LOADED)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert len(page.inner_text("main")) > 30
    assert page.inner_text(".link-state") in ("Live", "")
    box = page.locator("main").bounding_box()
    assert variance(page.screenshot(clip={"x": box["x"], "y": 48, "width": 240, "height": 150})) > 20
    page.evaluate(AXE.read_text())
    assert page.evaluate(SERIOUS) == []
    watched.check()


def test_the_first_view_is_small(up: object) -> None:
    """What the first view loads is far below 200 KB, compressed."""

    def closure(name: str, found: set[str]) -> set[str]:
        if name in found:
            return found
        found.add(name)
        text = (STATIC / "assets" / name).read_text()
        for other in re.findall(r'(?:from|import)\s*"\./([\w.-]+\.js)"', text):
            closure(other, found)
        return found

    entry = re.findall(r'/ui/assets/([\w.-]+\.js)"', (STATIC / "index.html").read_text())
    loaded: set[str] = set()
    for name in [
        *entry,
        *(path.name for path in STATIC.glob("assets/fleet-*.js")),
        *(path.name for path in STATIC.glob("assets/worker-*.js") if path.stat().st_size < 50_000),
    ]:
        closure(name, loaded)
    size = sum(len(gzip.compress((STATIC / "assets" / name).read_bytes())) for name in loaded)
    assert 10_000 < size < 80_000, f"{size} bytes of JavaScript for the first view: {sorted(loaded)}"
