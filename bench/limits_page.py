"""Write docs/operations/limits.md and its pictures from the results of the soak.

python bench/limits_page.py            write the page
python bench/limits_page.py --check    fail when page or pictures are not what the results say
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from curves import Chart, Line, number, svg
from soak_model import HOLD_PART, SIZES_PART, Recording, read_all, summary

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs" / "operations" / "soak"
PAGE = ROOT / "docs" / "operations" / "limits.md"
PICTURES, SUMMARY = "limits", "soak/summary.txt"  # beside the page


@dataclass(frozen=True, slots=True)
class Curve:
    """A picture: lines over the sizes of a scene. ``lines`` maps a figure to the name of its line."""

    file: str
    title: str
    unit: str
    lines: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Section:
    """A scene on the page. ``columns`` maps a figure to the heading of its column, with the unit."""

    title: str
    size: str  # what grows
    reading: str  # what the figures include
    columns: Mapping[str, str]
    curves: Sequence[Curve]


SECTIONS = {
    "pods": Section(
        "Pods of a cluster",
        "pods",
        "A list is read in pages of 500 and decoded by a Python client on the same cores: nine tenths of its time are "
        "the client's decoding. A pod that is created here stays unscheduled. CPU is measured half a minute after the "
        "last pod was created. A process that gets all pods at once keeps the memory of that peak: the median while "
        "they were held, below, is larger than the memory in the table. About every ten minutes the components compare "
        "their caches with the API server: at 50 000 pods a request then waited up to 22 s, beside other work.",
        {
            "memory_mb": "memory, MB", "pods_per_s": "created to ready, pods/s", "list_s": "list and decode all, s",
            "list_1000_ms": "list 1000 by label, ms", "create_p50_ms": "create a pod p50, ms",
            "create_p99_ms": "create a pod p99, ms", "watch_p50_ms": "change until watched p50, ms",
            "watch_p99_ms": "change until watched p99, ms", "idle_cpu_percent": "CPU without changes, % of a core",
        },
        [
            Curve("pods-memory", "Memory of a cluster's process", "MB", {"memory_mb": "memory"}),
            Curve("pods-list", "A list of all pods, decoded by a Python client", "seconds", {"list_s": "list"}),
            Curve("pods-create", "Creating a pod", "ms", {"create_p50_ms": "p50", "create_p99_ms": "p99"}),
            Curve("pods-watch", "A change until a watch has it", "ms", {"watch_p50_ms": "p50", "watch_p99_ms": "p99"}),
        ],
    ),
    "watchers": Section(
        "Watchers of an API server",
        "watchers",
        "The fan-out includes the client that reads all watches, a Python process on the same cores. Over HTTP/2, with "
        "a hundred watches on a connection, a watcher takes less than 20 KB (`bench/watchers_bench.py`).",
        {
            "memory_mb": "memory, MB", "fan_out_ms": "a write until all have it, ms", "fan_out_max_ms": "slowest, ms",
            "events_per_s": "events/s",
        },
        [
            Curve("watchers-memory", "Memory of an API server", "MB", {"memory_mb": "memory"}),
            Curve(
                "watchers-fan-out", "A write until all watchers have it", "ms",
                {"fan_out_ms": "median", "fan_out_max_ms": "slowest"},
            ),
        ],
    ),
    "agents": Section(
        "Agents of a control plane",
        "agents",
        "The agents are one Python process on the same cores, which decodes what it receives. Memory without agents is "
        "that of a control plane with the desired state of all of them.",
        {
            "memory_mb": "memory, MB", "each_kb": "of it per agent, KB", "sync_s": "first sync of the new ones, s",
            "change_p50_ms": "a change p50, ms", "change_p99_ms": "a change p99, ms", "changes_per_s": "changes/s",
            "all_s": "a change for all, s",
        },
        [
            Curve("agents-memory", "Memory of a control plane", "MB", {"memory_mb": "memory"}),
            Curve(
                "agents-change", "A change until its agent has it", "ms",
                {"change_p50_ms": "p50", "change_p99_ms": "p99"},
            ),
        ],
    ),
    "clusters": Section(
        "Clusters in one process",
        "clusters",
        "Memory per cluster is what the process takes beyond its size without a cluster. The clients are in the same "
        "process. While the clusters are held, their audit logs are off: they would grow to 1 GB each. Even without "
        "work each writes Leases: its write-ahead log grows to 8 MB before the first checkpoint, after about a quarter "
        "of an hour, and its history for five minutes. A hold of ten minutes does not see the end of that.",
        {
            "memory_mb": "memory, MB", "each_mb": "of it per cluster, MB", "start_s": "start of one, s",
            "idle_cpu_percent": "CPU without changes, % of a core",
        },
        [
            Curve("clusters-memory", "Memory of all clusters", "MB", {"memory_mb": "memory"}),
            Curve("clusters-cpu", "CPU without changes", "% of a core", {"idle_cpu_percent": "CPU"}),
        ],
    ),
    "navigator": Section(
        "Objects of a navigator",
        "pods",
        "Edges and clients are one Python process on the same cores. Every 2000 pods come with 640 other objects, "
        "which are in the memory, too.",
        {
            "memory_mb": "memory, MB", "objects_per_s": "first sync, objects/s",
            "indexed_p99_ms": "slowest indexed query p99, ms", "scan_p99_ms": "slowest scan p99, ms",
            "change_p50_ms": "a change until stored p50, ms", "change_p99_ms": "a change until stored p99, ms",
        },
        [
            Curve("navigator-memory", "Memory of a navigator", "MB", {"memory_mb": "memory"}),
            Curve(
                "navigator-queries", "The slowest query, p99", "ms",
                {"indexed_p99_ms": "indexed", "scan_p99_ms": "scan"},
            ),
        ],
    ),
}  # fmt: skip
HOURS = {"real": ("Ordinary work in real time", "minutes", 60.0), "virtual": ("A virtual day", "hours", 3600.0)}
REMARKS = {
    "real": "The latency is of requests about one object. Where other work ran beside it, read its trend, not its "
    "level. A request is refused when its object, chosen by chance, exists already or does not exist.",
    "virtual": "What the memory still gains are caches with a fixed number of entries (paths, queries, events that may "
    "repeat), which take about a day to fill with the names of new pods.",
}
FIGURES = {
    "memory_mb": "memory, MB", "files_mb": "files, MB", "descriptors": "open descriptors", "tasks": "asyncio tasks",
    "p99_ms": "latency p99, ms",
}  # fmt: skip

_HEAD = """# Limits

How large an installation can be on one machine, and what each size costs. `make limits` writes this page from the
[results](soak/summary.txt) of the soak; `make soak` measures them again.

These are sizes that were run. Shoal does not refuse larger ones. Server and clients shared the cores of one machine, so
times are shorter on a larger machine, or where clients run elsewhere. Pods and agents are simulated: they cost what the
API costs, and nothing for containers.

Latency that was measured beside other work follows that work: there, only a trend over a long time says something.

A figure is *flat* when it grows by no more than its tolerance after the warm-up, the first 30 % of the time. Its growth
is the median of the slopes between all pairs of samples, times the duration. Tolerances: memory and files 5 % + 10 MB,
descriptors and tasks 10, p99 50 % + 20 ms.
"""


def render(recordings: Sequence[Recording]) -> dict[str, str]:
    """The page, its pictures and the results as text, by their paths from docs/operations."""
    files: dict[str, str] = {}
    parts = [_HEAD, *_overview(recordings)]
    for one in recordings:
        title = SECTIONS[one.scene].title if one.scene in SECTIONS else HOURS[one.scene][0]
        parts += [f"## {title}", "", _capital(one.about) + ".", ""]
        if one.sizes:
            parts += _sizes(one, SECTIONS[one.scene], files)
        if one.scene in HOURS:
            parts += _over_time(one, files)
        parts += _verdicts(one)
        parts += [f"- {_capital(note)}." for note in one.notes]
        parts += [""] if one.notes else []
    return {PAGE.name: "\n".join(parts).rstrip("\n") + "\n", SUMMARY: summary(recordings), **files}


def _overview(recordings: Sequence[Recording]) -> list[str]:
    lines = ["| scene | largest size | memory, MB | measured | flat |", "|---|---|---|---|---|"]
    for one in recordings:
        if one.sizes:
            title, size = SECTIONS[one.scene].title, f"{number(one.sizes[-1]['size'])} {SECTIONS[one.scene].size}"
            memory = one.sizes[-1]["memory_mb"]
        else:
            title, unit, per = HOURS[one.scene]
            size, memory = f"{number(one.samples[-1].at_s / per)} {unit}", one.samples[-1].memory_mb
        flat = "not judged" if not one.verdicts else "yes" if one.flat else f"no: {', '.join(_growing(one))}"
        date = max(run.date for run in one.runs.values())[:10]
        lines.append(f"| {title} | {size} | {number(memory)} | {date} | {flat} |")
    return [*lines, ""]


def _growing(one: Recording) -> list[str]:
    return [FIGURES[each.figure].partition(",")[0] for each in one.verdicts if not each.flat]


def _sizes(one: Recording, section: Section, files: dict[str, str]) -> list[str]:
    lines = [
        f"Measured {one.runs[SIZES_PART]}.", "", f"| {section.size} | {' | '.join(section.columns.values())} |",
        "|---" * (len(section.columns) + 1) + "|",
    ]  # fmt: skip
    for size in one.sizes:
        cells = [number(size["size"]), *(number(size[figure]) for figure in section.columns)]
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", section.reading, ""]
    for curve in section.curves:
        drawn = [
            Line(name, [(size["size"], size[figure]) for size in one.sizes]) for figure, name in curve.lines.items()
        ]
        lines += _picture(files, curve.file, Chart(
            title=curve.title, x_label=section.size, y_label=curve.unit, lines=drawn
        ))  # fmt: skip
    return lines


def _over_time(one: Recording, files: dict[str, str]) -> list[str]:
    _, unit, per = HOURS[one.scene]
    lines = [REMARKS[one.scene], ""]
    for figure, title, y_label in (("memory_mb", "Memory", "MB"), ("p99_ms", "Latency, p99", "ms")):
        points = [(at_s / per, value) for at_s, value in one.series(figure)]
        chart = Chart(
            title=f"{title} over time", x_label=unit, y_label=y_label, lines=[Line(title.partition(",")[0], points)]
        )
        lines += _picture(files, f"{one.scene}-{figure.partition('_')[0]}", chart)
    return lines


def _picture(files: dict[str, str], file: str, chart: Chart) -> list[str]:
    path = f"{PICTURES}/{file}.svg"
    files[path] = svg(chart)
    return [f"![{chart.description}]({path})", ""]


def _verdicts(one: Recording) -> list[str]:
    if not one.verdicts:
        return []
    seconds = one.verdicts[0].seconds
    length = f"{seconds / 3600:.0f} hours" if seconds >= 7200 else f"{seconds / 60:.0f} minutes"
    lines = [
        f"Held for {length} after the warm-up ({one.verdicts[0].samples} samples), {one.runs[HOLD_PART]}.", "",
        "| figure | median | growth | allowed | |", "|---|---|---|---|---|",
    ]  # fmt: skip
    for each in one.verdicts:
        cells = (FIGURES[each.figure], f"{each.median:.1f}", f"{each.growth:+.1f}", f"{each.allowed:.1f}")
        lines.append(f"| {' | '.join(cells)} | {'flat' if each.flat else '**grows**'} |")
    return [*lines, ""]


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:].rstrip(".")


def results(folder: Path = RESULTS) -> list[Recording]:
    return read_all(folder, (*SECTIONS, *HOURS))


def stale(files: Mapping[str, str]) -> list[Path]:
    """Files that are missing or different, and pictures that are no longer on the page."""
    found = [PAGE.parent / name for name, text in files.items()
             if not (PAGE.parent / name).exists() or (PAGE.parent / name).read_text() != text]  # fmt: skip
    old = [path for path in (PAGE.parent / PICTURES).glob("*.svg") if f"{PICTURES}/{path.name}" not in files]
    return found + old


def main(arguments: list[str]) -> int:
    files = render(results())
    wrong = stale(files)
    if "--check" in arguments:
        for path in wrong:
            print(f"stale: {path.relative_to(ROOT)}; run: make limits", file=sys.stderr)
        return int(bool(wrong))
    for path in wrong:
        path.unlink(missing_ok=True)
    (PAGE.parent / PICTURES).mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (PAGE.parent / name).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
