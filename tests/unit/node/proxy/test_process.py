"""The proxy process: real processes and sockets. It serves on without its cluster's process, and is found again."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from itertools import count
from pathlib import Path

import pytest

from shoal.base.clock import RealClock
from shoal.base.files import holder_of
from shoal.base.metrics import Metrics
from shoal.base.tasks import cancel_all
from shoal.node.proxy import process, wire
from shoal.node.proxy.metrics import ProxyMetrics
from shoal.node.proxy.model import ListenAddress, ProxyBackend, ProxyListener
from shoal.node.proxy.process import ProxyProcess, end_proxy
from shoal.testing.fleets import metric_sum
from shoal.testing.waiting import eventually

CLOCK = RealClock()
_numbers = count(os.getpid() % 200 * 200)


def address() -> str:
    """One that no other test uses."""
    number = next(_numbers)
    return f"127.1.{number // 250 % 250}.{number % 250 + 1}"


@asynccontextmanager
async def a_pod(name: str) -> AsyncIterator[ProxyBackend]:
    """Says its name, then echoes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(f"{name}\n".encode())
        while line := await reader.readline():
            writer.write(line)
        writer.close()

    server = await asyncio.start_server(serve, address(), 0)
    try:
        yield ProxyBackend(*server.sockets[0].getsockname()[:2])
    finally:
        server.close()


@asynccontextmanager
async def a_proxy(folder: Path, metrics: Metrics | None = None) -> AsyncIterator[ProxyProcess]:
    """The relays as one cluster's process has them, which leaves the proxy process running."""
    relays = ProxyProcess(folder, clock=CLOCK, metrics=ProxyMetrics(metrics or Metrics()))
    running = asyncio.create_task(relays.run())
    try:
        yield relays
    finally:
        await cancel_all(running)
        await relays.release()


@pytest.fixture
async def folder(tmp_path: Path) -> AsyncIterator[Path]:
    """With a path that is too long for a socket's."""
    path = tmp_path / ("long" * 30) / "proxy"
    yield path
    await end_proxy(path, clock=CLOCK)


def a_listener(*backends: ProxyBackend, port: int = 18080) -> ProxyListener:
    return ProxyListener(place=ListenAddress("TCP", address(), port), backends=tuple(sorted(backends)))


async def said_by(listener: ProxyListener) -> str:
    reader, writer = await asyncio.open_connection(listener.place.address, listener.place.port)
    try:
        return (await reader.readline()).decode().strip()
    finally:
        writer.close()


async def is_refused(listener: ProxyListener) -> bool:
    try:
        await said_by(listener)
    except ConnectionRefusedError:
        return True
    return False


def pid_in(folder: Path) -> int:
    found = holder_of(folder / wire.LOCK)
    assert found is not None
    return found


async def test_it_serves_on_without_the_cluster_s_process_and_is_found_by_the_next_one(folder: Path) -> None:
    async with a_pod("one") as one, a_pod("two") as two:
        kept, gone = a_listener(one), a_listener(one)
        async with a_proxy(folder) as relays:
            assert await relays.open(kept) == await relays.open(gone) == 18080
            reader, writer = await asyncio.open_connection(kept.place.address, kept.place.port)
            assert await reader.readline() == b"one\n"
        pid = pid_in(folder)
        assert await said_by(kept) == await said_by(gone) == "one"
        changed = ProxyListener(place=kept.place, backends=(two,))
        async with a_proxy(folder) as relays:
            await relays.keep([kept.place])
            assert await is_refused(gone) and await said_by(kept) == "one"
            assert await relays.open(changed) == 18080
            assert pid_in(folder) == pid and await said_by(kept) == "two"
            assert await relays.open(kept) == 18080
            assert await said_by(kept) == "one"
            await relays.close(kept.place)
            assert await is_refused(kept)
        writer.write(b"still here\n")
        assert await reader.readline() == b"still here\n", "an open connection is not cut by any of this"
        writer.close()


async def test_it_runs_once_and_ends_when_it_is_told_to(folder: Path) -> None:
    async with a_pod("one") as one:
        listener = a_listener(one)
        async with a_proxy(folder) as relays, a_proxy(folder) as others:
            await asyncio.gather(relays.open(listener), others.open(a_listener(one)))
            pid = pid_in(folder)
        await end_proxy(folder, clock=CLOCK)
        assert holder_of(folder / wire.LOCK) is None and await is_refused(listener)
        await eventually(lambda: not Path(f"/proc/{pid}/exe").exists(), timeout_s=10)
        await end_proxy(folder, clock=CLOCK)  # nothing happens


async def test_one_that_is_killed_is_replaced_with_the_same_listeners(folder: Path) -> None:
    async with a_pod("one") as one:
        first, second = a_listener(one), a_listener(one)
        async with a_proxy(folder) as relays:
            await relays.open(first)
            pid = pid_in(folder)
            os.kill(pid, signal.SIGKILL)

            async def is_back() -> bool:
                return await said_by(first) == "one"

            await eventually(is_back, timeout_s=60, retry_on=(OSError,))
            await relays.open(second)
            assert pid_in(folder) != pid and await said_by(second) == "one"


async def test_an_address_that_is_taken_is_an_error_with_its_number(folder: Path) -> None:
    async with a_pod("one") as one, a_proxy(folder) as relays:
        taken = ProxyListener(place=ListenAddress("TCP", one.address, one.port), backends=(one,))
        with pytest.raises(OSError, match="in use") as error:
            await relays.open(taken)
        assert error.value.errno == 98


async def test_it_ends_when_its_folder_is_deleted(folder: Path) -> None:
    async with a_pod("one") as one:
        listener = a_listener(one)
        async with a_proxy(folder) as relays:
            await relays.open(listener)
        pid = pid_in(folder)
        shutil.rmtree(folder)
        await eventually(lambda: not Path(f"/proc/{pid}/exe").exists(), timeout_s=30)
        assert await is_refused(listener)


async def test_one_of_another_version_is_replaced(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with a_pod("one") as one:
        listener = a_listener(one)
        async with a_proxy(folder) as relays:
            await relays.open(listener)
        pid = pid_in(folder)
        seen: list[int] = []
        version = wire.VERSION

        async def replaced(path: Path, *, clock: RealClock) -> None:
            seen.append(pid_in(path))
            monkeypatch.setattr(wire, "VERSION", version)
            await end_proxy(path, clock=clock)

        monkeypatch.setattr(process, "end_proxy", replaced)
        monkeypatch.setattr(wire, "VERSION", version + 1)
        async with a_proxy(folder) as relays:
            await relays.open(listener)
            assert seen == [pid] and pid_in(folder) != pid and await said_by(listener) == "one"


async def test_one_that_hangs_is_killed_at_the_end(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_END_S", 0.3)
    async with a_pod("one") as one, a_proxy(folder) as relays:
        await relays.open(a_listener(one))
    pid = pid_in(folder)
    os.kill(pid, signal.SIGSTOP)
    await end_proxy(folder, clock=CLOCK)
    await eventually(lambda: holder_of(folder / wire.LOCK) is None, timeout_s=10)


async def test_its_counts_are_metrics_of_the_cluster_s_process_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "_COUNT_S", 0.05)
    listener = a_listener(ProxyBackend(address(), 1))  # nothing listens there
    metrics = Metrics()

    def value(name: str) -> float:
        return metric_sum(metrics.render().decode(), f"shoal_service_proxy_{name}")

    for starts, refused in ((1, 2), (1, 3)):  # the second cluster's process finds it
        async with a_proxy(folder, metrics) as relays:
            await relays.open(listener)
            while value("failed_total") < refused:
                before = value("failed_total")
                with suppress(OSError):
                    await said_by(listener)
                await eventually(lambda: value("failed_total") > before, timeout_s=10)  # noqa: B023
            assert value("accepted_total") == value("failed_total") == refused
            assert (value("listeners"), value("connections"), value("starts_total")) == (1, 0, starts)


async def test_it_is_small(folder: Path) -> None:
    async with a_pod("one") as one, a_proxy(folder) as relays:
        await relays.open(a_listener(one))
        pages = int(Path(f"/proc/{pid_in(folder)}/statm").read_text().split()[1])
        assert pages * os.sysconf("SC_PAGE_SIZE") < 40 << 20
