"""Children that hang are restarted."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from functools import partial
from pathlib import Path

from shoal.app.children import HANG_S, LOOK_S, Children, is_answering
from shoal.app.pki import Pki, server_context
from shoal.app.ports import any_free
from shoal.base.clock import FakeClock, RealClock
from shoal.base.tasks import cancel_all
from shoal.testing.waiting import eventually

PROGRAM = "import sys; print('ready https://127.0.0.1:1', flush=True); sys.stdin.read()"
SERVER = """
import asyncio, ssl, sys
async def serve():
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(sys.argv[1], sys.argv[2])
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0, ssl=tls)
    print(f"ready https://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await asyncio.to_thread(sys.stdin.read)
asyncio.run(serve())
"""


async def test_a_child_that_does_not_answer_for_half_a_minute_is_killed_and_started_again(tmp_path: Path) -> None:
    clock, stop, answering = FakeClock(), asyncio.Event(), True
    said: list[str] = []

    async def answers(url: str) -> bool:
        return answering

    children = Children(stop, clock, answers)
    child = await children.start("cluster", [sys.executable, "-c", PROGRAM], tmp_path / "log")
    first = child.process.pid
    keeping = asyncio.create_task(children.keep(said.append, lambda: None))
    try:
        await clock.advance(HANG_S * 2)
        assert child.process.pid == first
        answering = False
        await clock.advance(HANG_S - LOOK_S)
        assert said == [], "it may be busy"
        await clock.advance(LOOK_S)
        await eventually(lambda: len(said) == 2 and child.process.pid != first)
        assert said[0] == "the cluster has not answered for 30 s; killing it"
        assert said[1] == "the cluster exited with code -9; restarting it"
    finally:
        await cancel_all(keeping)
        await children.end()


async def test_a_suspended_child_is_noticed_and_started_again(tmp_path: Path) -> None:
    keys, clock = Pki(tmp_path, now=RealClock().now()), FakeClock()
    pair = keys.ensure_server(("127.0.0.1",), "test")
    children = Children(asyncio.Event(), clock, partial(is_answering, within_s=0.2))
    command = [sys.executable, "-c", SERVER, str(pair.cert), str(pair.key)]
    child = await children.start("cluster", command, tmp_path / "log")
    first, changed = child.process.pid, asyncio.Event()
    keeping = asyncio.create_task(children.keep(lambda line: None, changed.set))
    try:
        os.kill(first, signal.SIGSTOP)

        async def restarted() -> bool:
            await clock.advance(LOOK_S)
            return changed.is_set()

        await eventually(restarted)
        assert child.process.pid != first
        assert await is_answering(child.url)
    finally:
        await cancel_all(keeping)
        await children.end()


async def test_a_server_answers_unless_it_accepts_connections_and_says_nothing(tmp_path: Path) -> None:
    keys = Pki(tmp_path, now=RealClock().now())
    tls = server_context(keys.ensure_server(("127.0.0.1",), "test"), keys.ca_cert)
    good = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0, ssl=tls)
    held: list[asyncio.StreamWriter] = []
    mute = await asyncio.start_server(lambda reader, writer: held.append(writer), "127.0.0.1", 0)
    async with good, mute:
        assert await is_answering(f"https://127.0.0.1:{good.sockets[0].getsockname()[1]}")
        assert not await is_answering(f"https://127.0.0.1:{mute.sockets[0].getsockname()[1]}", 0.2)
        for writer in held:
            writer.transport.abort()
    assert await is_answering(f"https://127.0.0.1:{any_free('127.0.0.1')}"), "it does not hang, it has ended"
