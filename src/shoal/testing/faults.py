"""Fixtures that break things, for tests of what must survive it. Everything is drawn from one seed.

    pytest_plugins = ["shoal.testing.faults"]          # in conftest.py

    async def test_a_client_survives_a_cut(faults):
        async with TcpProxy(server_port) as link:
            await faults.cut(link, for_s=faults.between(0.1, 0.5))

| fixture | gives |
|---|---|
| ``faults`` | faults of processes and connections, and the choices of this test (`Faults`) |
| ``fault_seed`` | the seed: ``SHOAL_FAULT_SEED``, or 1; ``random`` draws one |
| ``faulty_process`` | the clock and the disk of a ``shoal`` process (`shoal.testing.faulty_process`) |
| ``skewed_clock`` | a clock for components in this process (`shoal.testing.clocks`) |
| ``full_disk`` | a file system of 8 MB (`shoal.testing.disks`); skips where it cannot be mounted |
| ``own_postgres``, ``own_redis`` | servers of this test alone, to kill, pause and empty (`shoal.testing.databases`) |
| ``lossy`` | makes a transport lose the events of watches (`shoal.testing.losses`) |

A test that fails shows its seed and its faults in order, and ``SHOAL_FAULT_SEED=<seed>`` repeats its choices. The seed
counts together with the test's name: choices of one test do not depend on which others run. At the end the run prints
what all tests injected and checked.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import pytest

from shoal.base.clock import FakeClock
from shoal.client.transport import Transport
from shoal.testing.clocks import SkewedClock
from shoal.testing.databases import PostgresServer, RedisServer, postgres_server, redis_server
from shoal.testing.disks import CannotMount, SmallDisk, small_disk
from shoal.testing.faulty_process import ProcessFaults
from shoal.testing.losses import LossyTransport
from shoal.testing.proxy import FaultProxy
from shoal.testing.tally import TALLY

_SEED = os.environ.get("SHOAL_FAULT_SEED", "1")  # read here: tests may run without the variables of the user
_DISK_MB = 8
_SLICE_S = 0.05
_Choice = TypeVar("_Choice")

LINK_FAULTS: dict[str, Callable[[FaultProxy], None]] = {
    "cut": FaultProxy.refuse,
    "no answers": FaultProxy.mute,
    "no requests": FaultProxy.deafen,
    "half-open": FaultProxy.half_open,
    "dropped": FaultProxy.drop,
    "duplicated": FaultProxy.duplicate,
}
"""What ``Faults.disturb`` draws from. Dropped and duplicated bytes need a protocol that notices them, such as TLS."""


class Faults:
    """The faults and choices of one test. Each fault is written into ``story``, which a failure shows."""

    def __init__(self, seed: str, test: str) -> None:
        self.seed = seed
        self.random = Random(f"{seed}/{test}")
        self.story: list[str] = []

    # choices

    def choose(self, among: Sequence[_Choice]) -> _Choice:
        return self.random.choice(among)

    def between(self, low: float, high: float) -> float:
        return self.random.uniform(low, high)

    def order(self, of: Sequence[_Choice]) -> list[_Choice]:
        """All of them, in an order that the seed decides."""
        return self.random.sample(list(of), len(of))

    def note(self, text: str) -> None:
        """Count a fault that the test injects by itself."""
        TALLY.faults += 1
        self.story.append(text)

    # processes

    def kill(self, pid: int) -> None:
        self.note(f"process {pid} killed")
        os.kill(pid, signal.SIGKILL)

    @contextmanager
    def stopped(self, pid: int) -> Iterator[None]:
        """A process that does not run inside the block, while its connections stay open."""
        self.note(f"process {pid} stopped")
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    async def slow(self, pid: int, *, for_s: float, share: float = 0.2) -> None:
        """Let a process run for only this share of the time, as on a machine that has too much to do."""
        self.note(f"process {pid} slow for {for_s:.1f} s")
        for _ in range(max(1, round(for_s / _SLICE_S))):
            os.kill(pid, signal.SIGSTOP)
            try:
                await asyncio.sleep(_SLICE_S * (1 - share))
            finally:
                os.kill(pid, signal.SIGCONT)
            await asyncio.sleep(_SLICE_S * share)

    # connections

    async def cut(self, *links: FaultProxy, for_s: float) -> None:
        """Break the connections through these proxies, and refuse new ones for a time."""
        await self._during("cut", FaultProxy.refuse, links, for_s)

    async def delay(self, *links: FaultProxy, by_s: float, for_s: float) -> None:
        def slow(link: FaultProxy) -> None:
            TALLY.faults += 1
            link.delay_s = by_s

        await self._during(f"delayed by {by_s:.2f} s", slow, links, for_s)

    async def disturb(self, *links: FaultProxy, for_s: float) -> str:
        """Do to the links one of ``LINK_FAULTS``, which the seed decides; break what is left of it at the end."""
        name = self.choose(sorted(LINK_FAULTS))
        await self._during(name, LINK_FAULTS[name], links, for_s)
        for link in links:
            link.cut()
        return name

    async def _during(
        self, name: str, begin: Callable[[FaultProxy], None], links: Sequence[FaultProxy], for_s: float
    ) -> None:
        self.story.append(f"{len(links)} links: {name} for {for_s:.1f} s")  # proxies count by themselves
        for link in links:
            begin(link)
        try:
            await asyncio.sleep(for_s)
        finally:
            for link in links:
                link.heal()


# fixtures


@pytest.fixture(scope="session")
def fault_seed() -> str:
    return _SEED if _SEED != "random" else str(random.SystemRandom().randrange(10**6))


@pytest.fixture
def faults(fault_seed: str, request: pytest.FixtureRequest) -> Iterator[Faults]:
    TALLY.seeds.add(fault_seed)
    made = Faults(fault_seed, request.node.nodeid.partition("@")[0])
    yield made
    print(f"SHOAL_FAULT_SEED={fault_seed}", *made.story, sep="\n  ")


@pytest.fixture
def faulty_process(tmp_path: Path) -> ProcessFaults:
    return ProcessFaults(tmp_path / "faults")


@pytest.fixture
def skewed_clock() -> SkewedClock:
    return SkewedClock(FakeClock())


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    try:
        with small_disk(tmp_path / "disk", size_mb=_DISK_MB) as disk:
            yield disk
    except CannotMount as error:
        pytest.skip(f"a small file system cannot be mounted here: {error}")


@pytest.fixture
def own_postgres() -> Iterator[PostgresServer]:
    with postgres_server() as server:
        yield server


@pytest.fixture
def own_redis() -> Iterator[RedisServer]:
    with redis_server() as server:
        yield server


@pytest.fixture
def lossy() -> Callable[[Transport], LossyTransport]:
    return LossyTransport


# what a run prints at its end


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Count the seeds of tests that are parametrized with some."""
    known = getattr(item, "callspec", None)
    if known is not None and "seed" in known.params:
        TALLY.seeds.add(str(known.params["seed"]))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker of pytest-xdist hands over what it has counted."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["shoal_tally"] = TALLY.as_json()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    TALLY.add(getattr(node, "workeroutput", {}).get("shoal_tally") or type(TALLY)().as_json())


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if TALLY.empty:
        return
    terminalreporter.section("faults")
    terminalreporter.write_line(str(TALLY))
    if path := os.environ.get("SHOAL_TALLY_FILE"):
        with Path(path).open("a") as file:
            file.write(json.dumps(TALLY.as_json()) + "\n")
