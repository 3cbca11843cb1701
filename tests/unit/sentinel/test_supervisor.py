"""A child that crashes is started again, more and more slowly; one that will not end is ended."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import orjson
import pytest

from shoal.base.clock import RealClock
from shoal.errors import ConfigError
from shoal.sentinel.bootstrap import Bootstrap
from shoal.sentinel.supervisor import Supervisor, find_envoy
from shoal.testing.waiting import eventually


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short enough for sockets, wherever tests run."""
    with tempfile.TemporaryDirectory(prefix="sv-", dir="/tmp") as made:
        yield Path(made)


def is_gone(pid: int | None) -> bool:
    return not Path(f"/proc/{pid}").exists()


def wanted(folder: Path) -> Bootstrap:
    return Bootstrap(
        node="gw-0", cluster="gw", region="eu", zone="", xds_socket=folder / "xds.sock",
        admin_socket=folder / "admin.sock", max_connections=10, max_heap_bytes=0,
    )  # fmt: skip


def program(folder: Path, text: str) -> Path:
    path = folder / "envoy"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o700)
    return path


@asynccontextmanager
async def supervised(folder: Path, text: str) -> AsyncIterator[Supervisor]:
    made = Supervisor(
        program(folder, text), folder, wanted(folder), clock=RealClock(), random=lambda: 0.05, drain_s=0.1
    )
    running = asyncio.create_task(made.run(), name="supervisor")
    try:
        yield made
    finally:
        made.stop()
        async with asyncio.timeout(20):
            await running


async def test_a_child_that_crashes_is_started_again(folder: Path) -> None:
    async with supervised(folder, "exit 1") as made:
        await eventually(lambda: made.starts >= 3)


async def test_a_child_gets_its_settings_and_ends_when_it_is_stopped(folder: Path) -> None:
    async with supervised(folder, f'echo "$@" > {folder}/flags; exec sleep 60') as made:
        await eventually(lambda: (folder / "flags").exists() and (folder / "flags").read_text().strip())
        pid = await eventually(lambda: made.pid)  # the child may run before its parent knows that it does
    assert is_gone(pid)
    assert made.starts == 1
    flags = (folder / "flags").read_text()
    assert f"--config-path {folder}/envoy.json" in flags
    assert orjson.loads((folder / "envoy.json").read_bytes())["admin"]["address"].keys() == {"pipe"}


async def test_a_cancelled_supervisor_leaves_no_child(folder: Path) -> None:
    made = Supervisor(program(folder, "exec sleep 60"), folder, wanted(folder), clock=RealClock(), random=lambda: 0.05)
    running = asyncio.create_task(made.run(), name="supervisor")
    await eventually(lambda: made.pid)
    pid = made.pid
    running.cancel()
    await asyncio.wait([running])
    assert is_gone(pid)


def test_a_folder_too_deep_for_sockets_is_refused(folder: Path) -> None:
    deep = folder / ("x" * 100)
    with pytest.raises(ConfigError, match="use a shorter one"):
        Supervisor(Path("/bin/true"), deep, wanted(deep), clock=RealClock(), random=lambda: 0.0)


def test_envoy_is_found_in_the_wheel_and_where_the_variable_says(folder: Path) -> None:
    assert find_envoy({}).name == "envoy"
    assert find_envoy({"SHOAL_ENVOY": "/bin/true"}) == Path("/bin/true")
    with pytest.raises(ConfigError, match="SHOAL_ENVOY"):
        find_envoy({"SHOAL_ENVOY": str(folder / "none")})
