"""The page over 100 clusters with 50 000 pods and 200 apps: how soon it shows what it should, and what it costs.

    PYTHONPATH=src python bench/page_bench.py [--parts first,visible,cost,memory] [--minutes 1] [--quick]

Control plane and navigator are processes; agents and edges are simulated in this one and speak the real protocol;
the browser is Debian's chromium. Pages that are only counted hold the stream of the first view, each with its session.

first    from a cold cache until the first view is drawn and the main thread is free; JavaScript of it, compressed
visible  from the request that changes an app until its row in the browser has changed, and until the stream says so,
         at 20 changes a second; tasks of the browser's main thread meanwhile; how old traffic figures get
cost     CPU of the control plane with 50 pages, beyond what it uses without any: while nothing changes, and at 20
         changes a second
memory   of the control plane and of the browser while changes go on: the slope over ``--minutes`` (ten for the whole)

Fails when a bar is not held in one of three attempts.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from page_clients import LightPages, Reader, chromium, view
from page_fleet import COUNTED_S, PageFleet, Size, page_fleet

from shoal.base import logs

FIRST_BAR_MS, SCRIPT_BAR_KB, VISIBLE_BAR_MS, TRAFFIC_BAR_S, TASK_BAR_MS = 1000.0, 200.0, 500.0, 8.0, 50.0
QUIET_BAR, BUSY_BAR, GROWTH_BAR = 10.0, 40.0, 3.0
PAGES, RATE = 50, 20
ATTEMPTS = 3
PARTS = ("first", "visible", "cost", "memory")


class Bars:
    def __init__(self) -> None:
        self.missed: list[str] = []

    def show(self, what: str, value: float, unit: str, bar: float | None = None, note: str = "") -> None:
        good = bar is None or value <= bar
        if not good:
            self.missed.append(what)
        limit = "" if bar is None else f"(bar {bar:g}){'' if good else '  TOO MUCH'}"
        print(f"  {what:<62}{value:>9.2f} {unit:<5}{limit}  {note}", flush=True)


def p99(values: list[float]) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * 0.99))] if values else float("inf")


class Changes:
    """``RATE`` times a second an app is scaled in one of its regions, from 1 to 2 or back."""

    def __init__(self, fleet: PageFleet) -> None:
        self._fleet = fleet
        self._replicas: dict[tuple[int, str], int] = {}
        self.made: list[tuple[str, str, int, float]] = []
        """App, region, replicas, and when the request was sent."""
        self._random = random.Random(7)

    async def run(self, rate: float, seconds: float, *, only: int | None = None) -> None:
        begun, turns = time.monotonic(), 0
        waiting: set[asyncio.Task[None]] = set()
        while (due := begun + turns / rate) < begun + seconds:
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            number = self._random.randrange(self._fleet.size.apps) if only is None else only
            await self._one(number)
            turns += 1
        await asyncio.gather(*waiting)

    async def _one(self, number: int) -> None:
        region = self._random.choice(self._fleet.size.regions_of(number))
        replicas = 3 - self._replicas.get((number, region), 2)
        self._replicas[number, region] = replicas
        sent = time.time()
        await asyncio.to_thread(self._fleet.scale, number, region, replicas)
        self.made.append((self._fleet.size.app(number)[2], region, replicas, sent))


# parts


async def first(browser: Any, fleet: PageFleet, bars: Bars, _: argparse.Namespace) -> None:
    async with view(browser, fleet) as warm:  # of the control plane: its topics are read for the first time
        await warm.page.wait_for_timeout(1000)
    times, scripts = [], {}
    for _round in range(5):
        async with view(browser, fleet) as found:
            await found.page.wait_for_timeout(2000)
            notes = await found.notes()
            busy = [begin + took for begin, took in notes["long"] if begin < notes["drawn"] + 500]
            times.append(max([notes["drawn"], *busy]))
            scripts = found.scripts
    bars.show(
        "first view can be used, from a cold cache",
        statistics.median(times),
        "ms",
        FIRST_BAR_MS,
        f"of 5; worst {max(times):.0f}",
    )
    note = f"{len(scripts)} files"
    bars.show("JavaScript of the first view, gzip", sum(scripts.values()) / 1000, "KB", SCRIPT_BAR_KB, note)


async def visible(browser: Any, fleet: PageFleet, bars: Bars, options: argparse.Namespace) -> None:
    """One app changes twice a second and is watched in the browser; the others make up the rest of the rate."""
    reader, lags = Reader(), list[float]()
    reading = asyncio.create_task(reader.run(fleet), name="reader")
    lagging = asyncio.create_task(_notice_lag(lags), name="lag")
    project, environment, name = fleet.size.app(0)
    async with view(browser, fleet) as overview, view(browser, fleet, f"app/{project}/{environment}/{name}") as detail:
        await detail.page.wait_for_selector("main tbody tr")
        await detail.page.evaluate("__watch('r0')")
        await reader.is_ready.wait()
        fleet.count(True)
        await asyncio.sleep(2 * COUNTED_S)
        before = len((await overview.notes())["long"]), len((await detail.notes())["long"])
        others, one = Changes(fleet), Changes(fleet)
        seconds = 15.0 if options.quick else 30.0
        bursts = asyncio.create_task(_burst(fleet, seconds), name="bursts")
        await asyncio.gather(others.run(RATE - 2, seconds), one.run(2, seconds, only=0))
        await bursts
        await asyncio.sleep(2)
        notes, more = await detail.notes(), await overview.notes()
        reading.cancel()
        lagging.cancel()
        fleet.count(False)
    said = [1000 * each for each in _said(others.made + one.made, reader.replicas)]
    drawn = _drawn([each for each in one.made if each[1] == "r0"], notes["seen"])
    lag = f"{len(said)} of {len(others.made + one.made)} changes; own lag p99 {1000 * p99(lags):.0f} ms"
    bars.show("change of an app until the stream says so, p50", statistics.median(said), "ms", None, lag)
    bars.show("change of an app until the stream says so, p99", p99(said), "ms", VISIBLE_BAR_MS)
    note = f"p50 {statistics.median(drawn):.0f} ms; {len(drawn)} changes" if drawn else ""
    bars.show("change of an app until the browser shows it, p99", p99(drawn), "ms", VISIBLE_BAR_MS, note)
    tasks = [took for _, took in more["long"][before[0] :]] + [took for _, took in notes["long"][before[1] :]]
    bars.show(
        f"longest task of the page at {RATE} changes/s",
        max(tasks, default=0),
        "ms",
        TASK_BAR_MS,
        f"{len(tasks)} over 50 ms",
    )
    counted = sorted(at for agent in fleet.agents.values() for at in agent.counted_at)
    late = [
        shown - max(at for at in counted if at <= shown)
        for shown in reader.bursts
        if any(at <= shown for at in counted)
    ]
    note = f"shown {1000 * statistics.median(late):.0f} ms after the report, p50" if late else "no burst was seen"
    bars.show("age of traffic figures at their oldest, p99", p99(late) + COUNTED_S, "s", TRAFFIC_BAR_S, note)


async def _burst(fleet: PageFleet, seconds: float) -> None:
    """Now and then the gateways of one cluster count far more requests than before."""
    agents = [agent for agent in fleet.agents.values() if agent.has_gateway]
    for number in range(int(seconds)):
        agents[number % len(agents)].burst = 20_000 * 4 ** (number // len(agents))
        await asyncio.sleep(1)


def _said(made: list[tuple[str, str, int, float]], told: list[tuple[str, int, float]]) -> list[float]:
    found = []
    for app, region, replicas, sent in made:
        later = (
            at - sent
            for key, count, at in told
            if at >= sent and count == replicas and f"/{app}/" in key and f"/{region}/" in key
        )
        first_ = next(later, None)
        if first_ is not None and first_ < 5:
            found.append(first_)
    return found


def _drawn(made: list[tuple[str, str, int, float]], seen: list[tuple[str, float]]) -> list[float]:
    """Milliseconds until the row of the region had another text: the first one after each request."""
    found = []
    for _, _, _, sent in made:
        later = next((at - 1000 * sent for _, at in seen if at >= 1000 * sent), None)
        if later is not None:
            found.append(later)
    return found


async def _notice_lag(lags: list[float]) -> None:
    """How late this process does what is due: part of the latencies that it measures."""
    while True:
        due = time.monotonic() + 0.01
        await asyncio.sleep(0.01)
        lags.append(time.monotonic() - due)


async def cost(browser: Any, fleet: PageFleet, bars: Bars, options: argparse.Namespace) -> None:
    seconds = 10.0 if options.quick else 20.0
    changes = Changes(fleet)

    async def percent(work: Callable[[], Awaitable[None]]) -> float:
        before, begun = fleet.control.cpu_s, time.monotonic()
        await work()
        return 100 * (fleet.control.cpu_s - before) / (time.monotonic() - begun)

    async def quiet() -> None:
        await asyncio.sleep(seconds)

    async def busy() -> None:
        await changes.run(RATE, seconds)

    alone = await percent(quiet), await percent(busy)
    await asyncio.sleep(3)
    pages = LightPages(fleet)
    await pages.open(PAGES)
    await asyncio.sleep(3)
    with_pages = await percent(quiet), await percent(busy)
    kb = pages.bytes / 1000 / PAGES
    await pages.close()
    note = f"{{:.1f}} % with them, {{:.1f}} % without; {kb:.0f} KB per page in all"
    for what, before, after, bar in (
        (f"CPU of {PAGES} pages, nothing changes", alone[0], with_pages[0], QUIET_BAR),
        (f"CPU of {PAGES} pages, {RATE} changes/s", alone[1], with_pages[1], BUSY_BAR),
    ):
        bars.show(what, after - before, "%", bar, note.format(after, before))


async def memory(browser: Any, fleet: PageFleet, bars: Bars, options: argparse.Namespace) -> None:
    """Both halves of the time are compared: what grows without end is larger in the second."""
    pages = LightPages(fleet)
    await pages.open(10)
    fleet.count(True)
    seconds = 60 * options.minutes
    async with view(browser, fleet) as found:
        changing = asyncio.create_task(Changes(fleet).run(RATE, seconds), name="changes")
        server, heap = list[float](), list[float]()
        while not changing.done():
            await asyncio.sleep(seconds / 20)
            server.append(fleet.control.memory_mib)
            heap.append(await found.heap_mb())
        await changing
    fleet.count(False)
    await pages.close()
    for what, samples, unit in (("the control plane", server, "MiB"), ("the page's scripts", heap, "MB")):
        later = samples[len(samples) // 5 :]  # the first changes fill caches
        half = len(later) // 2
        before, after = statistics.median(later[:half]), statistics.median(later[half:])
        percent = 100 * (after - before) / before
        note = f"{before:.1f} {unit}, then {after:.1f}"
        bars.show(f"growth of {what} over {options.minutes:g} minutes", percent, "%", GROWTH_BAR, note)


async def attempt(folder: Path, size: Size, parts: list[str], options: argparse.Namespace) -> list[str]:
    """The parts that miss a bar."""
    missed = []
    begun = time.monotonic()
    async with page_fleet(folder, size) as fleet, chromium() as browser:
        print(f"  the fleet is ready after {time.monotonic() - begun:.0f} s", flush=True)
        for part in parts:
            bars = Bars()
            await PART[part](browser, fleet, bars, options)
            if bars.missed:
                missed.append(part)
    return missed


PART: dict[str, Any] = {"first": first, "visible": visible, "cost": cost, "memory": memory}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clusters", type=int, default=100)
    parser.add_argument("--apps", type=int, default=200)
    parser.add_argument("--pods", type=int, default=50_000)
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--minutes", type=float, default=1.0, help="of the part memory; 10 for the whole")
    parser.add_argument("--attempts", type=int, default=ATTEMPTS)
    parser.add_argument("--quick", action="store_true", help="shorter, once")
    options = parser.parse_args()
    logs.configure(level="warning")
    size = Size(options.clusters, options.apps, options.pods)
    parts = options.parts.split(",")
    for number in range(1, (1 if options.quick else options.attempts) + 1):
        print(f"attempt {number}: {size.clusters} clusters with {size.pods} pods, {size.apps} apps")
        with tempfile.TemporaryDirectory(prefix="page-bench-") as folder:
            parts = asyncio.run(attempt(Path(folder), size, parts, options))
        if not parts:
            return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
