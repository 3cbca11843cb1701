"""What the store alone can do, without HTTP or Kubernetes on top.

    PYTHONPATH=src python bench/store_bench.py [--quick] [--only sqlite|memory|postgres]

Prints single-op commits per second with 32 writers (memory, SQLite, PostgreSQL with fsync, with and without Redis), the
time on the loop thread per commit, the file and memory left by 300 000 updates of one Lease, the cost of a create among
500 and among 50 000 objects, list costs, and the time to load 50 000 objects. For PostgreSQL also what several servers
on one database do together, how soon a server sees what another one wrote, and what a fresh read costs.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import uvloop

from shoal.store import Attrs, Delete, Key, LogStore, Put, open_store
from shoal.testing.databases import PostgresServer, postgres_server, redis_server

HEAD = b'{"metadata":{"resourceVersion":"'
FILES_MB, MEMORY_MB = 50.0, 250.0
LEASE = Key("leases.coordination.k8s.io", "kube-node-lease", "node-1")


def body(size: int) -> bytes:
    return HEAD + b'"},"spec":"' + b"x" * size + b'"}'


POD = body(1500)


def attrs_of(key: Key, value: bytes) -> Attrs:
    return Attrs(
        labels={"app": "web"},
        fields={"metadata.name": key.name},
        indexed=("app=web", f"@spec.nodeName=n{len(key.name)}", f"bucket={key.name[-2:]}"),
    )


def pod(i: int) -> Put:
    key = Key("pods", f"ns{i % 10}", f"pod-{i:06d}")
    return Put(key, POD, len(HEAD), attrs_of(key, POD))


def pod_from(first: int, i: int) -> Put:
    return pod(first + i)


def rss_mb() -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def disk_mb(folder: Path) -> float:
    return sum(file.stat().st_size for file in folder.iterdir()) / 1e6


async def writers(store: LogStore, concurrency: int, count: int, op: Callable[[int], Put | Delete]) -> float:
    """Seconds for ``count`` single-op commits by ``concurrency`` writers, each waiting for its own."""
    numbers = iter(range(count))

    async def one() -> None:
        for i in numbers:
            await store.commit((op(i),))

    start = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(concurrency)))
    return time.perf_counter() - start


async def throughput(store: LogStore, count: int) -> None:
    for concurrency in (1, 32):
        thread = time.thread_time()
        first = concurrency * 1_000_000
        spent_s = await writers(store, concurrency, count, partial(pod_from, first))
        loop_s = time.thread_time() - thread
        print(
            f"  create, {concurrency:>2} writers: {count / spent_s:>8.0f}/s, "
            f"{loop_s / count * 1e6:5.1f} µs of loop thread each"
        )


async def lease_churn(folder: Path, count: int, store: LogStore) -> None:
    value = body(300)
    before_mb = rss_mb()
    spent_s = await writers(store, 4, count, lambda i: Put(LEASE, value, len(HEAD)))
    print(
        f"  {count} updates of one Lease: {count / spent_s:.0f}/s, files {disk_mb(folder):.1f} MB, "
        f"RSS {before_mb:.0f} -> {rss_mb():.0f} MB  (bars {FILES_MB:.0f} and {MEMORY_MB:.0f} MB)"
    )
    if disk_mb(folder) > FILES_MB or rss_mb() > MEMORY_MB:
        raise SystemExit("short of what is required: history of a busy Lease is not kept small enough")


async def growth(store: LogStore) -> None:
    """Loop time of a create and a delete with few and with many objects around, in batches of 32."""
    filled = 0
    for population in (500, 50_000):
        while filled < population:
            await store.commit([pod(i) for i in range(filled, filled + 500)])
            filled += 500
        thread = time.thread_time()
        await writers(store, 32, 2000, lambda i: pod(5_000_000 + i * 7919 % 2000))
        created_us = (time.thread_time() - thread) / 2000 * 1e6
        await writers(store, 32, 2000, lambda i: Delete(pod(5_000_000 + i * 7919 % 2000).key))
        print(f"  among {population}: create {created_us:.1f} µs")
        timed("    whole list", lambda: store.range("pods"))
        timed("    page of 500", lambda: store.range("pods", limit=500, after=("ns5", "")))
        timed("    one namespace", lambda: store.range("pods", "ns3", limit=100))
        timed("    by index (1 %)", lambda: store.range("pods", index="bucket=07"))
        timed("    page of an index of all", lambda: store.range("pods", index="app=web", limit=500))


def timed(what: str, call: Callable[[], object]) -> None:
    start = time.perf_counter()
    call()
    first = time.perf_counter()
    call()
    again = time.perf_counter()
    print(f"{what}: {(first - start) * 1e3:.2f} ms, again {(again - first) * 1e3:.2f} ms")


async def several(url: str, events: str, count: int) -> None:
    """Two servers of this process write to one database at the same time, then one waits for the other."""
    stores = [open_store(url, attrs_of=attrs_of, events=events) for _ in range(2)]
    for store in stores:
        await store.start()
    start = time.perf_counter()
    await asyncio.gather(
        *(writers(store, 16, count // 2, partial(pod_from, (n + 70) * 1_000_000)) for n, store in enumerate(stores))
    )
    for store in stores:
        await store.fresh()
    spent_s = time.perf_counter() - start
    print(f"  create, 2 servers with 16 writers each: {count / spent_s:>8.0f}/s until both show everything")
    seen_ms, fresh_ms = [], []
    for i in range(300):
        (entry,) = await stores[0].commit((pod(80_000_000 + i),))
        start = time.perf_counter()
        await stores[1].reached(entry.revision, 10)
        seen_ms.append((time.perf_counter() - start) * 1e3)
        start = time.perf_counter()
        await stores[1].fresh()
        fresh_ms.append((time.perf_counter() - start) * 1e3)
    for what, took in ("the other server sees a write after", seen_ms), ("fresh read", fresh_ms):
        took.sort()
        print(f"  {what}: median {took[150]:.2f} ms, 99 % {took[297]:.2f} ms")
    for store in stores:
        await store.stop()


def tables_mb(server: PostgresServer, url: str) -> float:
    database = url.split("@/")[1].split("?")[0]
    return int(server.sql("SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE relkind = 'r' AND "
                          "relnamespace = 'shoal'::regnamespace", database)) / 1e6  # fmt: skip


async def postgres(commits: int, updates: int) -> None:
    with postgres_server(durable=True, settings={"shared_buffers": "256MB"}) as server, redis_server() as redis:
        for events in ("", redis.url):
            print(f"postgres, fsync on{', with redis' if events else ''}")
            url = server.create_database()
            await with_store(url, lambda store: throughput(store, commits), events)
            await several(url, events, commits)
        print("postgres, growth and load")
        url = server.create_database()
        await with_store(url, growth)
        await with_store(url, lambda store: asyncio.sleep(0))
        print("postgres, one Lease")
        url = server.create_database()
        await with_store(url, partial(postgres_churn, server, url, updates))


async def postgres_churn(server: PostgresServer, url: str, count: int, store: LogStore) -> None:
    value = body(300)
    largest_mb = 0.0
    spent_s = 0.0
    for _ in range(10):
        spent_s += await writers(store, 32, count // 10, lambda i: Put(LEASE, value, len(HEAD)))
        largest_mb = max(largest_mb, tables_mb(server, url))
    print(f"  {count} updates of one Lease: {count / spent_s:.0f}/s, tables at most {largest_mb:.1f} MB")
    if largest_mb > FILES_MB:
        raise SystemExit("short of what is required: history of a busy Lease is not kept small enough")


async def with_store(url: str, work: Callable[[LogStore], Awaitable[None]], events: str = "") -> None:
    store = open_store(url, attrs_of=attrs_of, events=events)
    start = time.perf_counter()
    await store.start()
    print(f"  started in {time.perf_counter() - start:.2f} s with {store.count('pods')} pods")
    await work(store)
    await store.stop()


async def main(quick: bool, only: str) -> None:
    commits, updates = (5_000, 20_000) if quick else (20_000, 300_000)
    if only in ("", "sqlite"):
        await sqlite_churn(updates)
    if only in ("", "memory"):
        print("memory")
        await with_store("memory://", lambda store: throughput(store, commits))
        await with_store("memory://", growth)
    if only in ("", "sqlite"):
        await sqlite(commits)
    if only in ("", "postgres"):
        await postgres(commits, updates)


async def sqlite_churn(updates: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        print("sqlite, one Lease")
        await with_store(f"sqlite:///{folder}/store.db", partial(lease_churn, Path(folder), updates))
        print(f"  after stop: {disk_mb(Path(folder)):.1f} MB")


async def sqlite(commits: int) -> None:
    for interval_s in (sys.getswitchinterval(), 0.0005):
        sys.setswitchinterval(interval_s)
        with tempfile.TemporaryDirectory() as folder:
            print(f"sqlite, switch interval {interval_s * 1e3:g} ms")
            await with_store(f"sqlite:///{folder}/store.db", lambda store: throughput(store, commits))
    with tempfile.TemporaryDirectory() as folder:
        print("sqlite, growth and load")
        await with_store(f"sqlite:///{folder}/store.db", growth)
        print(f"  {disk_mb(Path(folder)):.1f} MB on disk")
        await with_store(f"sqlite:///{folder}/store.db", lambda store: asyncio.sleep(0))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the work")
    parser.add_argument("--only", default="", choices=("memory", "sqlite", "postgres"), help="one kind of store")
    asked = parser.parse_args()
    uvloop.run(main(asked.quick, asked.only))
