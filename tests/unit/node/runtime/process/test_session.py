"""Sessions of exec and attach with containers that are processes: terminals, slow readers, abandoned commands."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

from shoal.node.runtime.model import (
    OutputStream,
    SessionOptions,
)
from shoal.testing.waiting import eventually

Run = Callable[..., AbstractAsyncContextManager[Any]]


async def test_a_terminal_has_a_size_that_can_be_changed(on_process_node: Run) -> None:
    async with on_process_node() as node:
        container = await node.sh("sleep 1000")
        session = await node.runtime.exec(
            container.id, ("sh", "-c", "read line; stty size; exit 3"), SessionOptions(stdin=True, tty=True)
        )
        await session.resize(132, 43)
        await session.write(b"go\n")
        found = b"".join([data async for _, data in session.output()])
        assert b"43 132" in found
        assert await session.wait() == 3
        await session.close()


async def test_two_clients_can_attach_to_a_container_with_a_terminal(on_process_node: Run) -> None:
    async with on_process_node() as node:
        container = await node.sh(
            "stty -echo; printf 'name? '; read name; stty size; echo hello $name", tty=True, stdin=True
        )
        await asyncio.sleep(0)
        sessions = [await node.runtime.attach(container.id, SessionOptions(stdin=True, tty=True)) for _ in range(2)]
        await sessions[0].resize(99, 22)
        await sessions[1].write(b"you\n")
        for session in sessions:
            found = b"".join([data async for _, data in session.output()])
            assert b"22 99" in found and b"hello you" in found
            assert await session.wait() == 0
            await session.close()


async def test_a_client_that_does_not_read_blocks_the_container_until_it_leaves(
    on_process_node: Run,
) -> None:
    async with on_process_node() as node:
        container = await node.sh(
            "read line; head -c 3000000 /dev/zero | tr '\\0' x; echo; echo done; sleep 1000", stdin=True
        )
        session = await node.runtime.attach(container.id, SessionOptions(stdin=True))
        await session.write(b"go\n")
        output = session.output()
        first = await asyncio.wait_for(anext(output), 10)
        assert len(first[1]) <= 65536
        assert "done" not in await node.output(container)
        await output.aclose()
        await session.close()
        await node.says(container, "done")
        assert len(await node.output(container)) == 3000000 + len("\ndone\n")


async def test_closing_a_session_ends_all_processes_of_its_command(on_process_node: Run) -> None:
    async with on_process_node() as node:
        container = await node.sh("exec sleep 1000")  # one process from the beginning

        async def count() -> int:
            (stats,) = await node.runtime.stats()
            return int(stats.processes)

        before = await count()
        session = await node.runtime.exec(
            container.id, ("sh", "-c", "sleep 1000 & sleep 1000 & echo up; wait"), SessionOptions()
        )
        assert await anext(session.output()) == (OutputStream.STDOUT, b"up\n")

        async def all_there() -> bool:
            return await count() == before + 3

        async def gone() -> bool:
            return await count() == before

        await eventually(all_there)
        await session.close()
        await eventually(gone)
