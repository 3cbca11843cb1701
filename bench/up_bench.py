"""What ``shoal up`` costs with its demo: the start, the memory of all its processes, a minute of idling, the stop.

    python bench/up_bench.py [--quick] [--runs N]

Starts it in a new folder, with a temporary directory of its own. Memory is the proportional set size (PSS) of the whole
tree, pods included: a page that processes share counts once. CPU seconds until it is ready say something on a busy
machine too. Ends with the first run that holds all bars; ``--quick`` watches the idle tree for a shorter time.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from clusters_bench import cpu_s

READY_BAR_S, PSS_BAR_MB, IDLE_BAR, STOP_BAR_S = 8.0, 500.0, 8.0, 3.0  # the third in percent of a core
SETTLE_S, IDLE_S, QUICK_S = 20.0, 60.0, 15.0
_PROXY = "shoal.node.proxy.serve"
_NETWORKS = "shoal-networks-"  # the list of all clusters' networks, one per user: it stays
_READY_TIMEOUT_S, _STOP_TIMEOUT_S = 180.0, 60.0


@dataclass(slots=True)
class Figures:
    """Of one run."""

    phases: list[tuple[float, str]] = field(
        default_factory=list
    )  # seconds from the start, and the line that was printed
    ready_s: float = 0.0
    ready_cpu_s: float = 0.0
    pss_mb: float = 0.0
    rss_mb: float = 0.0
    processes: int = 0
    idle_percent: float = 0.0
    stop_s: float = 0.0
    left: list[str] = field(default_factory=list)  # in the temporary directory after the stop

    @property
    def good(self) -> bool:
        short = self.ready_s > READY_BAR_S or self.pss_mb > PSS_BAR_MB or self.stop_s > STOP_BAR_S
        return not (short or self.idle_percent > IDLE_BAR or self.left)


def tree(root: int, state: str) -> list[int]:
    """A process and everything below it, and the service proxies of its state directory, which outlive it."""
    parents: dict[int, list[int]] = {}
    found = [root]
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            command = (folder / "cmdline").read_text()
        except OSError:  # it has ended
            continue
        parents.setdefault(int(fields[1]), []).append(int(folder.name))
        if _PROXY in command and state in command:
            found.append(int(folder.name))
    for pid in found:
        found += parents.get(pid, ())
    return found


def memory_mb(pid: int) -> tuple[float, float]:
    """PSS and RSS."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0, 0.0
    sizes = {key: int(rest.split()[0]) / 1024 for key, _, rest in (line.partition(":") for line in lines[1:])}
    return sizes.get("Pss", 0.0), sizes.get("Rss", 0.0)


def cpu_of_tree(root: int, state: str) -> float:
    """CPU seconds of the tree; those of processes that have ended are with the ones that waited for them."""
    total = 0.0
    for pid in tree(root, state):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += cpu_s(pid) + (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")
    return total


@contextmanager
def started(folder: Path, figures: Figures) -> Iterator[subprocess.Popen[str]]:
    """``shoal up``, once it is ready."""
    temporary = folder / "tmp"
    temporary.mkdir()
    command = [sys.executable, "-m", "shoal", "up", "--dir", str(folder / "state"), "--port", "0"]
    began = time.perf_counter()
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": str(temporary)}
    )  # fmt: skip
    try:
        assert process.stdout is not None
        for line in process.stdout:
            elapsed = time.perf_counter() - began
            if line.startswith("starting") or "is ready after" in line:
                figures.phases.append((elapsed, line.strip()))
            if line.strip() == "ready" or elapsed > _READY_TIMEOUT_S:
                break
        figures.ready_s, figures.ready_cpu_s = time.perf_counter() - began, cpu_of_tree(process.pid, str(folder))
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.wait(_STOP_TIMEOUT_S)


def measure(idle_s: float) -> Figures:
    """One run from start to stop."""
    figures = Figures()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with started(folder, figures) as process:
            time.sleep(SETTLE_S)
            sizes = [memory_mb(pid) for pid in tree(process.pid, str(folder))]
            figures.processes = len(sizes)
            figures.pss_mb, figures.rss_mb = sum(pss for pss, _ in sizes), sum(rss for _, rss in sizes)
            before, since = cpu_of_tree(process.pid, str(folder)), time.perf_counter()
            time.sleep(idle_s)
            figures.idle_percent = (
                100 * (cpu_of_tree(process.pid, str(folder)) - before) / (time.perf_counter() - since)
            )
            asked = time.perf_counter()
            process.send_signal(signal.SIGINT)
            process.wait(_STOP_TIMEOUT_S)
            figures.stop_s = time.perf_counter() - asked
        left = sorted(each.name for each in (folder / "tmp").iterdir())
        figures.left = [each for each in left if not each.startswith(_NETWORKS)]
    return figures


def show(figures: Figures) -> None:
    def line(name: str, value: float, bar: float, unit: str) -> None:
        print(f"{name:34} {value:8.1f} {unit:2} (bar: {bar:g}){'' if value <= bar else '  MISSED'}", flush=True)

    for at, said in figures.phases:
        print(f"  after {at:5.1f} s: {said}")
    line("ready", figures.ready_s, READY_BAR_S, "s")
    print(f"{'CPU until then':34} {figures.ready_cpu_s:8.1f} s")
    line(f"memory (PSS) of {figures.processes} processes", figures.pss_mb, PSS_BAR_MB, "MB")
    print(f"{'resident (RSS), for comparison':34} {figures.rss_mb:8.1f} MB")
    line("idle, of a core", figures.idle_percent, IDLE_BAR, "%")
    line("Ctrl-C", figures.stop_s, STOP_BAR_S, "s")
    print(
        f"left in the temporary directory: {', '.join(figures.left) or 'nothing'}{'  MISSED' if figures.left else ''}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    for _ in range(options.runs):
        figures = measure(QUICK_S if options.quick else IDLE_S)
        show(figures)
        if figures.good:
            return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
