"""Several API servers on one PostgreSQL: what they cost against one server, and against one on SQLite.

    python bench/servers_bench.py          prints one line per figure and fails when a bar is missed

Needs kload (bench/kload/bench builds it). PostgreSQL runs with fsync, as it would for real. Rates are the best of three
runs, CPU the median; delays are over all samples.
"""

from __future__ import annotations

import json
import os
import queue
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from api_bench import Connection, configmap

from shoal.testing.databases import postgres_server, redis_server
from shoal.testing.servers import ServerProcess, start_server_process

RUNS, SAMPLES = 3, 2000
CREATE_RATE = 0.5  # of SQLite's
SAME_CPU = 1.1  # of a lone server's
DELAY_MS = 50.0
KLOAD = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "kload" / "kload"

Figures = dict[str, dict[str, float]]  # scenario -> what kload says of it


@contextmanager
def server(folder: Path, *flags: str) -> Iterator[ServerProcess]:
    started = start_server_process(folder, "--port", "0", *flags)
    try:
        yield started
    finally:
        started.process.terminate()
        started.process.wait()


def kload(target: ServerProcess) -> Figures:
    command = [
        str(KLOAD), "-url", target.url, "-token", target.token, "-ns", f"kload-{time.time_ns()}", "-n", "5000",
        "-watchers", "50", "-wn", "2000", "-lists", "1", "-pids", str(target.process.pid),
    ]  # fmt: skip
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    return {line["scenario"]: line for line in map(json.loads, lines)}


def create_rate(runs: list[Figures]) -> float:
    return max(run["create"]["per_s"] for run in runs)


def cpu_ms(runs: list[Figures]) -> tuple[float, float]:
    """Of a read and of a watch event."""
    read, event = (
        statistics.median(run[scenario]["server_cpu_ms_per_op"] for run in runs) for scenario in ("get", "watch_fanout")
    )
    return read, event


def delays(writer: ServerProcess, watcher: ServerProcess) -> list[float]:
    """Milliseconds from sending a write to one server until its event arrives from the other."""
    arrived: queue.SimpleQueue[tuple[str, float]] = queue.SimpleQueue()
    version = Connection(watcher).call("GET", "/api/v1/namespaces/default/configmaps")["metadata"]["resourceVersion"]
    stream = Connection(watcher).open(f"/api/v1/namespaces/default/configmaps?watch=1&resourceVersion={version}")

    def read() -> None:
        for line in stream:
            arrived.put((json.loads(line)["object"]["metadata"]["name"], time.perf_counter()))

    threading.Thread(target=read, daemon=True).start()
    connection, taken = Connection(writer), []
    for number in range(SAMPLES):
        name = f"delay-{number}"
        sent = time.perf_counter()
        connection.call("POST", "/api/v1/namespaces/default/configmaps", configmap(name, number))
        seen, at = arrived.get(timeout=10)
        assert seen == name
        taken.append((at - sent) * 1e3)
    return sorted(taken)


def show(name: str, value: float, bar: float, good: bool) -> bool:
    print(f"{name:62} {value:9.3f}   needs {bar:g}{'' if good else '   <- short'}")
    return good


def main() -> int:
    good = True
    with tempfile.TemporaryDirectory() as temporary, postgres_server(durable=True) as postgres, redis_server() as redis:
        folder = Path(temporary)
        with server(folder / "sqlite") as alone:
            sqlite_rate = create_rate([kload(alone) for _ in range(RUNS)])
        shared = ("--store", postgres.create_database(), "--events", redis.url)
        with server(folder / "one", *shared) as one:
            lone = [kload(one) for _ in range(RUNS)]
            rate = create_rate(lone)
            good &= show(
                f"create rate on PostgreSQL ({rate:.0f}/s) to SQLite ({sqlite_rate:.0f}/s)", rate / sqlite_rate,
                CREATE_RATE, rate >= CREATE_RATE * sqlite_rate,
            )  # fmt: skip
            with server(folder / "two", *shared, "--credentials", str(folder / "one")) as two:
                both = {"first": [kload(one) for _ in range(RUNS)], "second": [kload(two) for _ in range(RUNS)]}
                taken = delays(one, two)
            lone += [kload(one) for _ in range(RUNS)]  # before and after: what else the machine does changes with time
            for name, runs in both.items():
                for what, cost, alone_ms in zip(("read", "watch event"), cpu_ms(runs), cpu_ms(lone), strict=True):
                    ratio = cost / alone_ms
                    good &= show(f"CPU of a {what} on the {name} of two", ratio, SAME_CPU, ratio <= SAME_CPU)
            p99 = taken[len(taken) * 99 // 100]
            print(f"write on one, event on the other: median {taken[len(taken) // 2]:.2f} ms")
            good &= show("write on one, event on the other, p99 ms", p99, DELAY_MS, p99 <= DELAY_MS)
    print("several servers: all bars hold" if good else "several servers: short of what is required")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
