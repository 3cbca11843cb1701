"""What a watcher costs: 5000 idle ones over TLS on one API server, beside a bare TLS server of the same event loop.

    python bench/watchers_bench.py [WATCHERS]        prints one line per figure and fails when a bar is missed

Watches from a revision, as after a list, each on a connection of its own and a hundred on each connection of HTTP/2;
watches that first receive all objects, 1.3 MB each; and the floor, a server that accepts TLS connections and does
nothing else. At the end a write must reach all watchers.
"""

from __future__ import annotations

import json
import ssl
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from shoal.testing.servers import ServerProcess, server_process
from shoal.testing.watchers import idle_watchers, multiplexed_watchers, resident_mb

WATCHERS = 5000
TOTAL_MB, ABOVE_FLOOR = 600.0, 1.2  # the bar is the first, or the floor times the second where that is more
LOADED_KB = 200.0  # of a watcher that has received all objects
MULTIPLEXED_KB = 20.0  # of an idle watcher over HTTP/2
OBJECTS, OBJECT_BYTES = 600, 2000
PATH = "/api/v1/namespaces/default/configmaps"

FLOOR = """
import asyncio, resource, ssl, sys, uvloop
async def main():
    resource.setrlimit(resource.RLIMIT_NOFILE, (20000, 20000))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(sys.argv[1], sys.argv[2])
    class Bare(asyncio.Protocol):
        def connection_made(self, transport): self.transport = transport
        def data_received(self, data): self.transport.write(b"HTTP/1.1 200 OK\\r\\n\\r\\n")
    server = await asyncio.get_running_loop().create_server(Bare, "127.0.0.1", 0, ssl=context, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.Event().wait()
uvloop.run(main())
"""


def call(server: ServerProcess, method: str, path: str, body: object = None) -> dict[str, dict[str, str]]:
    context = ssl.create_default_context(cafile=server.ca_file)
    headers = {"Authorization": f"Bearer {server.token}", "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(server.url + path, data, headers, method=method)
    with urllib.request.urlopen(request, context=context) as answer:
        found: dict[str, dict[str, str]] = json.load(answer)
        return found


def configmap(name: str) -> dict[str, dict[str, str]]:
    return {"metadata": {"name": name}, "data": {"a": "x" * OBJECT_BYTES}}


def floor_mb(directory: Path, count: int) -> float:
    """Memory that connections add to the bare server; its certificate is that of the API server."""
    keys = [next(directory.rglob(name)) for name in ("server.crt", "server.key")]
    process = subprocess.Popen([sys.executable, "-c", FLOOR, *map(str, keys)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        port = int(process.stdout.readline())
        before = resident_mb(process.pid)
        with idle_watchers(ServerProcess(process, f"https://127.0.0.1:{port}", directory), count, "/"):
            return resident_mb(process.pid) - before
    finally:
        process.kill()
        process.wait()


def measure(server: ServerProcess, count: int, path: str, last: bytes) -> tuple[float, float, float]:
    """Memory before and with the watchers, and the time until all of them have seen a write."""
    before = resident_mb(server.process.pid)
    with idle_watchers(server, count, path) as watchers:
        if last:
            watchers.read_until(last)
        used = resident_mb(server.process.pid)
        started = time.perf_counter()
        call(server, "POST", PATH, configmap("seen-by-all"))
        watchers.read_until(b'"name":"seen-by-all"')
        return before, used, time.perf_counter() - started


def measure_http2(server: ServerProcess, count: int, path: str) -> tuple[float, float, float]:
    """As ``measure``, over HTTP/2."""
    before = resident_mb(server.process.pid)
    with multiplexed_watchers(server, count, path) as watchers:
        used = resident_mb(server.process.pid)
        started = time.perf_counter()
        call(server, "POST", PATH, configmap("seen-over-http2"))
        watchers.read_until(b'"name":"seen-over-http2"')
        return before, used, time.perf_counter() - started


def show(name: str, count: int, used_mb: float, added_mb: float, bar: str) -> None:
    each_kb = added_mb * 1024 / count
    print(f"{f'{name}, {count}':44} {used_mb:8.0f} MB {each_kb:8.1f} KB each" + (f"  ({bar})" if bar else ""))


def fill(server: ServerProcess) -> str:
    """The revision after all objects were written."""
    for index in range(OBJECTS):
        call(server, "POST", PATH, configmap(f"object-{index:04d}"))
    return call(server, "GET", f"{PATH}?limit=1")["metadata"]["resourceVersion"]


def main() -> int:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else WATCHERS
    few = count // 10  # each of these receives all objects
    short: list[str] = []
    with server_process() as server:
        floor = floor_mb(server.directory, count)
        show("bare TLS server", count, floor, floor, "")
        version = fill(server)
        before, used, seen_s = measure(server, count, f"{PATH}?resourceVersion={version}", b"")
        bar = max(TOTAL_MB, (before + floor) * ABOVE_FLOOR)
        show("idle watchers", count, used, used - before, f"bar {bar:.0f} MB in all")
        print(f"{'until a write has reached all of them':44} {seen_s:8.2f} s")
        if used > bar:
            short.append("idle watchers")
    with server_process() as server:
        before, used, seen_s = measure_http2(server, count, f"{PATH}?resourceVersion={fill(server)}")
        show("idle watchers over HTTP/2", count, used, used - before, f"bar {MULTIPLEXED_KB:.0f} KB")
        print(f"{'until a write has reached all of them':44} {seen_s:8.2f} s")
        if (used - before) * 1024 / count > MULTIPLEXED_KB:
            short.append("idle watchers over HTTP/2")
    with server_process() as server:
        fill(server)
        before, used, _ = measure(server, few, PATH, f'"name":"object-{OBJECTS - 1:04d}"'.encode())
        show("watchers that received all objects", few, used, used - before, f"bar {LOADED_KB:.0f} KB")
        if (used - before) * 1024 / few > LOADED_KB:
            short.append("watchers that received all objects")
    print("short of what is required: " + ", ".join(short) if short else "all bars hold")
    return bool(short)


if __name__ == "__main__":
    sys.exit(main())
