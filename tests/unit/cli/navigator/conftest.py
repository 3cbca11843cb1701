"""Serves a small fleet of clusters to commands, the one that the tests of the answers use."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "navigator" / "answers"))

from answers_world import TOKEN, Ran, Shoal, World, WorldClock, authenticate, the_world

from shoal.app.main import main
from shoal.base.asgi import AsgiListener, bind
from shoal.base.clock import RealClock
from shoal.base.metrics import Metrics
from shoal.navigator.answers.api import make_api

_LINE_S = 60.0  # longest wait for a line


class Served(NamedTuple):
    """The world behind a port, and a way to change it in the server's loop."""

    world: World
    url: str
    change: Callable[[Callable[[], object]], None]


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    """The world behind a real port, in a loop of its own."""
    world = the_world()
    listening = bind("127.0.0.1", 0)
    started = threading.Event()
    holder: list[tuple[asyncio.AbstractEventLoop, Callable[[], None]]] = []

    async def serve() -> None:
        api = make_api(
            lambda: world.view, world.history, world.edges, world.fleet, authenticate=authenticate,
            clock=WorldClock(), changes=world.changes, admin=world.admin, options=world.options, metrics=Metrics(),
        )  # fmt: skip
        listener = AsgiListener(api, listening, clock=RealClock())

        def stop() -> None:
            api.end_streams()
            listener.stop()

        holder.append((asyncio.get_running_loop(), stop))
        started.set()
        await listener.run()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), name="answers")
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    thread.start()
    assert started.wait(10)
    loop, stop = holder[0]

    def change(action: Callable[[], object]) -> None:
        def changed() -> None:
            action()
            world.changes.notify()

        loop.call_soon_threadsafe(changed)

    try:
        yield Served(world, url, change)
    finally:
        loop.call_soon_threadsafe(stop)
        thread.join(20)
        assert not thread.is_alive()


@pytest.fixture
def shoal(
    served: Served, private_state: None, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Shoal:  # fmt: skip
    """Runs a command against the world."""
    monkeypatch.setenv("SHOAL_NAVIGATOR_URL", served.url)
    monkeypatch.setenv("SHOAL_NAVIGATOR_TOKEN", TOKEN)

    def run(*words: str) -> Ran:
        capsys.readouterr()
        code = main(list(words))
        said = capsys.readouterr()
        return Ran(code, said.out, said.err)

    return run


@pytest.fixture
def spawned(served: Served, private_state: None) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a command that runs until it is stopped, as a process; it is killed after ``_LINE_S``."""
    started: list[tuple[subprocess.Popen[str], threading.Timer]] = []
    environment = {**os.environ, "SHOAL_NAVIGATOR_URL": served.url, "SHOAL_NAVIGATOR_TOKEN": TOKEN}

    def spawn(*words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "shoal", *words]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
        )
        timer = threading.Timer(_LINE_S, process.kill)
        timer.start()
        started.append((process, timer))
        return process

    yield spawn
    for process, timer in started:
        timer.cancel()
        timer.join()
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
