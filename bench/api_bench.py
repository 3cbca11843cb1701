"""Figures that kload does not measure: apply with several managers, no-op writes, many objects, time to ready.

    python bench/api_bench.py            prints one line per figure and fails when a bar is missed

Runs a real server process with TLS on SQLite. Latencies are the median and p99 of single requests on one
connection, so they hold on a busy machine better than rates do; compare runs, not machines.
"""

from __future__ import annotations

import http.client
import json
import ssl
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from shoal.testing.servers import ServerProcess, start_server_process

SAMPLES = 1000
FEW, MANY = 500, 50_000
READY_S, MEMORY_MB = 1.5, 250.0
SAME_COST = 1.5  # how much more a request may cost with 100 times the objects; noise included
JSON = "application/json"
APPLY = "application/apply-patch+yaml"


class Connection:
    """One keep-alive TLS connection."""

    def __init__(self, server: ServerProcess) -> None:
        parts = urlsplit(server.url)
        context = ssl.create_default_context(cafile=server.ca_file)
        self._http = http.client.HTTPSConnection(parts.hostname or "", parts.port, context=context)
        self._headers = {"Authorization": f"Bearer {server.token}"}

    def call(self, method: str, path: str, body: Any = None, content_type: str = JSON) -> Any:
        data = None if body is None else json.dumps(body).encode()
        self._http.request(method, path, data, {**self._headers, "Content-Type": content_type})
        answer = self._http.getresponse()
        content = answer.read()
        if answer.status >= 300:
            raise SystemExit(f"{method} {path}: {answer.status} {content[:300]!r}")
        return json.loads(content)

    def open(self, path: str) -> http.client.HTTPResponse:
        """A stream, to be read line by line."""
        self._http.request("GET", path, headers=self._headers)
        return self._http.getresponse()


def timed(work: Callable[[int], object], count: int = SAMPLES) -> tuple[float, float]:
    """Median and p99 in milliseconds."""
    taken = []
    for index in range(count):
        started = time.perf_counter()
        work(index)
        taken.append((time.perf_counter() - started) * 1000)
    taken.sort()
    return statistics.median(taken), taken[int(len(taken) * 0.99)]


def show(name: str, median: float, p99: float) -> None:
    print(f"{name:44} {median:8.2f} ms median {p99:8.2f} ms p99")


def memory_mb(server: ServerProcess) -> float:
    pages = int(Path(f"/proc/{server.process.pid}/statm").read_text().split()[1])
    return pages * 4096 / 1e6


@contextmanager
def running(directory: Path) -> Iterator[tuple[ServerProcess, float]]:
    started = time.perf_counter()
    server = start_server_process(directory, "--port", "0")
    ready_s = time.perf_counter() - started
    try:
        yield server, ready_s
    finally:
        server.process.terminate()
        server.process.wait()


def deployment(name: str) -> dict[str, Any]:
    labels = {"app": name}
    container = {"name": "c", "image": "example.com/app:1", "ports": [{"containerPort": 80}]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


def apply_figures(connection: Connection) -> None:
    """Three managers own parts of one Deployment; one of them applies again and again."""
    path = "/apis/apps/v1/namespaces/default/deployments/web"
    base = deployment("web")
    connection.call("PATCH", f"{path}?fieldManager=one", base, APPLY)
    scaled = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {"replicas": 3}}
    connection.call("PATCH", f"{path}?fieldManager=two&force=true", scaled, APPLY)
    connection.call(
        "PATCH", f"{path}?fieldManager=three", {"metadata": {"labels": {"a": "b"}}}, "application/merge-patch+json"
    )

    def again(index: int) -> None:
        base["metadata"]["annotations"] = {"round": str(index)}
        connection.call("PATCH", f"{path}?fieldManager=one", base, APPLY)

    show("re-apply a Deployment with three managers", *timed(again))
    show(
        "apply that changes nothing",
        *timed(lambda _: connection.call("PATCH", f"{path}?fieldManager=one", base, APPLY)),
    )


def configmap(name: str, group: int) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": {"group": f"g{group}"}}, "data": {"k": "v"}}


def fill(server: ServerProcess, have: int, want: int) -> None:
    """Objects by many connections at once."""
    from concurrent.futures import ThreadPoolExecutor

    def work(start: int) -> None:
        connection = Connection(server)
        for index in range(start, want, 16):
            connection.call("POST", "/api/v1/namespaces/fill/configmaps", configmap(f"o-{index:06d}", index // 50))

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(work, range(have, have + 16)))


def watch_delays(server: ServerProcess, connection: Connection, tag: str) -> tuple[float, float]:
    """From sending a write to reading its event on a watch of the whole namespace."""
    path = "/api/v1/namespaces/fill/configmaps"
    version = connection.call("GET", f"{path}?limit=1")["metadata"]["resourceVersion"]
    stream = Connection(server).open(f"{path}?watch=true&resourceVersion={version}")

    def write_and_see(index: int) -> None:
        connection.call("POST", path, configmap(f"y-{tag}-{index}", 9999))
        stream.readline()

    return timed(write_and_see)


def cost_with(server: ServerProcess, connection: Connection, tag: str) -> dict[str, float]:
    path = "/api/v1/namespaces/fill/configmaps"
    figures = {
        "create": timed(lambda i: connection.call("POST", path, configmap(f"x-{tag}-{i}", 9999))),
        "get": timed(lambda i: connection.call("GET", f"{path}/x-{tag}-{i}")),
        "list 50 by label": timed(lambda i: connection.call("GET", f"{path}?labelSelector=group%3Dg{i % 8}"), 200),
        "page of 50": timed(lambda i: connection.call("GET", f"{path}?limit=50"), 200),
        "write and watch event": watch_delays(server, connection, tag),
    }
    for name, (median, p99) in figures.items():
        show(f"{name}, {tag} objects", median, p99)
    return {name: median for name, (median, _) in figures.items()}


def main() -> int:
    short: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        readies = []
        for attempt in range(3):
            with running(Path(folder) / f"r{attempt}") as (server, ready_s):
                readies.append(ready_s)
        best = min(readies)
        print(f"{'time to ready, best of 3':44} {best:8.2f} s  (bar {READY_S})")
        if best > READY_S:
            short.append("time to ready")
        with running(Path(folder) / "main") as (server, _):
            connection = Connection(server)
            apply_figures(connection)
            connection.call("POST", "/api/v1/namespaces", {"metadata": {"name": "fill"}})
            fill(server, 0, FEW)
            few = cost_with(server, connection, str(FEW))
            fill(server, FEW, MANY)
            many = cost_with(server, connection, str(MANY))
            print(f"{f'memory with {MANY} config maps':44} {memory_mb(server):8.0f} MB")
            for name, cost in many.items():
                ratio = cost / few[name]
                print(f"{f'{name}: {MANY} against {FEW} objects':44} {ratio:8.2f} x  (bar {SAME_COST})")
                if ratio > SAME_COST:
                    short.append(f"{name} with many objects")
    print("short of what is required: " + ", ".join(short) if short else "all bars hold")
    return bool(short)


if __name__ == "__main__":
    sys.exit(main())
