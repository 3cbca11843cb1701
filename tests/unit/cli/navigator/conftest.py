"""Serves a small fleet of clusters to commands, the one that the tests of the answers use."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "navigator" / "answers"))

from answers_world import TOKEN, Ran, Shoal, World, WorldClock, authenticate, the_world

from shoal.app.main import main
from shoal.base.asgi import AsgiListener, bind
from shoal.base.metrics import Metrics
from shoal.navigator.answers.api import make_api


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[World, str]]:
    """The world behind a real port, in a loop of its own."""
    world = the_world()
    listening = bind("127.0.0.1", 0)
    started = threading.Event()
    holder: list[tuple[asyncio.AbstractEventLoop, Callable[[], None]]] = []

    async def serve() -> None:
        api = make_api(
            lambda: world.view, world.history, world.edges, world.fleet, authenticate=authenticate,
            clock=WorldClock(), metrics=Metrics(),
        )  # fmt: skip
        listener = AsgiListener(api, listening)

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
    try:
        yield world, url
    finally:
        loop, stop = holder[0]
        loop.call_soon_threadsafe(stop)
        thread.join(20)
        assert not thread.is_alive()


@pytest.fixture
def shoal(
    served: tuple[World, str], private_state: None, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Shoal:  # fmt: skip
    """Runs a command against the world."""
    monkeypatch.setenv("SHOAL_NAVIGATOR_URL", served[1])
    monkeypatch.setenv("SHOAL_NAVIGATOR_TOKEN", TOKEN)

    def run(*words: str) -> Ran:
        capsys.readouterr()
        code = main(list(words))
        said = capsys.readouterr()
        return Ran(code, said.out, said.err)

    return run
