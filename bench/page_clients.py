"""Who looks at the page in its bench: light pages that only hold the stream, one that reads it, and real browsers."""

from __future__ import annotations

import asyncio
import gzip
import json
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlsplit

import orjson
from page_fleet import PageFleet

FIRST_VIEW = ("fleet", "apps", "rollouts")
FLAGS = (
    "--no-sandbox --disable-gpu --disable-background-networking --disable-component-update --disable-sync "
    "--enable-precise-memory-info"
).split()
_LINE = 1 << 26
# Runs before the page's own scripts: long tasks, when the first view was drawn, and each text that a watched cell had.
_NOTES = """
window.__notes = {long: [], drawn: 0, seen: []};
new PerformanceObserver(found => {
  for (const each of found.getEntries()) __notes.long.push([each.startTime, each.duration]);
}).observe({type: 'longtask', buffered: true});
new MutationObserver(() => {
  const drawn = document.querySelector('.region') && document.querySelector('main tbody tr');
  if (!__notes.drawn && drawn) __notes.drawn = performance.now();
}).observe(document, {childList: true, subtree: true});
window.__watch = name => {
  const rows = () => [...document.querySelectorAll('main tbody tr')];
  const read = () => rows().find(each => each.innerText.includes(name))?.innerText ?? '';
  let last = '';
  new MutationObserver(() => {
    const now = read();
    if (now !== last) { last = now; __notes.seen.push([now, Date.now()]); }
  }).observe(document.querySelector('main'), {childList: true, subtree: true, characterData: true});
};
"""


async def cookie(fleet: PageFleet) -> str:
    """Of a new session."""
    code = await asyncio.to_thread(fleet.code)
    parts = urlsplit(fleet.page_url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    body = orjson.dumps({"code": code})
    head = f"POST /ui/login HTTP/1.1\r\nHost: {parts.netloc}\r\nX-Shoal-Page: 1\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    answer = (await reader.readuntil(b"\r\n\r\n")).decode()
    writer.close()
    lines = dict(line.split(": ", 1) for line in answer.split("\r\n")[1:] if ": " in line)
    given = {name.lower(): value for name, value in lines.items()}
    return given["set-cookie"].split(";")[0]


async def hold(fleet: PageFleet, session: str, topics: tuple[dict[str, Any], ...]) -> AsyncIterator[bytes]:
    """The events of one stream, as they come."""
    asked = quote(json.dumps([{"id": n, **topic} for n, topic in enumerate(topics, 1)]))
    parts = urlsplit(fleet.page_url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port, limit=_LINE)
    try:
        head = f"GET /ui/stream?open={asked} HTTP/1.1\r\nHost: {parts.netloc}\r\nCookie: {session}\r\n\r\n"
        writer.write(head.encode())
        status = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")[0]
        if b" 200 " not in status:
            raise RuntimeError(f"the stream is refused: {status.decode()}")
        while line := await reader.readuntil(b"\n"):
            if line.startswith(b"data:"):
                yield line[5:]
    finally:
        writer.close()


class LightPages:
    """Many pages with the topics of the first view, each with a session and a stream of its own."""

    def __init__(self, fleet: PageFleet) -> None:
        self._fleet = fleet
        self._tasks: list[asyncio.Task[None]] = []
        self.events = self.bytes = 0

    async def open(self, count: int) -> None:
        for number in range(count):
            session = await cookie(self._fleet)
            self._tasks.append(asyncio.create_task(self._page(session), name=f"page/{number}"))
        await asyncio.sleep(2)
        for task in self._tasks:
            if task.done():
                task.result()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)
        self._tasks.clear()

    async def _page(self, session: str) -> None:
        async for event in hold(self._fleet, session, tuple({"topic": name} for name in FIRST_VIEW)):
            self.events += 1
            self.bytes += len(event)


@dataclass
class Reader:
    """A page that looks at what its stream says: for each app's requests, when their number rose by a burst."""

    rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    bursts: list[float] = field(default_factory=list)
    replicas: list[tuple[str, int, float]] = field(default_factory=list)
    is_ready: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self, fleet: PageFleet) -> None:
        session = await cookie(fleet)
        async for event in hold(fleet, session, ({"topic": "apps"},)):
            told = orjson.loads(event)
            for message in told if isinstance(told, list) else [told]:
                self._take(message)

    def _take(self, message: dict[str, Any]) -> None:
        now = time.time()
        if "rows" in message:
            self.rows = message["rows"]
            self.is_ready.set()
        for key, fields in message.get("set", {}).items():
            before = self.rows.setdefault(key, {}).copy()
            self.rows[key].update(fields)
            if "replicas" in fields:
                self.replicas.append((key, fields["replicas"], now))
            if fields.get("rate", 0) > 3 * (before.get("rate") or 1e9):
                self.bursts.append(now)


@asynccontextmanager
async def chromium() -> AsyncIterator[Any]:
    """Debian's, as the tests have it."""
    from playwright.async_api import async_playwright

    path = shutil.which("chromium")
    if path is None:
        raise SystemExit("chromium is not installed: scripts/chromium.sh")
    async with async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=path, args=FLAGS)
        try:
            yield browser
        finally:
            await browser.close()


@dataclass
class View:
    """A real page. ``scripts``: bytes of JavaScript by URL, compressed."""

    page: Any
    context: Any
    scripts: dict[str, int] = field(default_factory=dict)

    async def notes(self) -> Any:
        return await self.page.evaluate("__notes")

    async def heap_mb(self) -> float:
        session = await self.context.new_cdp_session(self.page)
        await session.send("HeapProfiler.collectGarbage")
        found = await session.send("Runtime.getHeapUsage")
        return float(found["usedSize"]) / 1e6


@asynccontextmanager
async def view(browser: Any, fleet: PageFleet, path: str = "") -> AsyncIterator[View]:
    """A page in a browser that has cached nothing but knows its session."""
    context = await browser.new_context(viewport={"width": 1440, "height": 900})
    name, value = (await cookie(fleet)).split("=", 1)
    await context.add_cookies([{"name": name, "value": value, "url": fleet.page_url}])
    await context.add_init_script(_NOTES)
    found = View(await context.new_page(), context)
    waiting: set[asyncio.Task[None]] = set()

    async def take(answer: Any) -> None:
        with suppress(Exception):  # of an answer without a body
            found.scripts[answer.url] = len(gzip.compress(await answer.body()))

    def answered(answer: Any) -> None:
        if answer.url.endswith(".js"):
            task = asyncio.create_task(take(answer), name="script")
            waiting.add(task)
            task.add_done_callback(waiting.discard)

    context.on("response", answered)
    try:
        await found.page.goto(f"{fleet.page_url}/ui/{path}")
        await found.page.wait_for_function("() => __notes.drawn || location.pathname != '/ui/'", timeout=20_000)
        yield found
    finally:
        await context.close()
