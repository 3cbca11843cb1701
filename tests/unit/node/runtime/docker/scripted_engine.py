"""A container engine that answers from a table."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import orjson

from shoal.base.clock import RealClock
from shoal.node.runtime.docker.engine import Engine

ScriptedAnswer = Callable[[str, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def reply(body: object, status: int = 200) -> bytes:
    data = orjson.dumps(body)
    return f"HTTP/1.1 {status} X\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data


class ScriptedEngine:
    """Answers by the start of the request line, and records the requests."""

    def __init__(self, answers: dict[str, bytes | ScriptedAnswer]) -> None:
        self.answers = answers
        self.requests: list[str] = []
        self.bodies: list[bytes] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            line = head.partition(" HTTP/")[0]
            self.requests.append(line)
            lengths = [each.split(":")[1] for each in head.lower().splitlines() if each.startswith("content-length:")]
            self.bodies.append(await reader.readexactly(int(lengths[0])) if lengths else b"")
            answer = next(found for key, found in self.answers.items() if line.startswith(key))
            if isinstance(answer, bytes):
                writer.write(answer)
            else:
                await answer(line, reader, writer)
        finally:
            writer.close()


@asynccontextmanager
async def engine_with(answers: dict[str, bytes | ScriptedAnswer]) -> AsyncIterator[tuple[Engine, ScriptedEngine]]:
    with TemporaryDirectory() as folder:
        server = ScriptedEngine(answers)
        path = str(Path(folder) / "e.sock")
        listening = await asyncio.start_unix_server(server.serve, path)
        engine = Engine(path, clock=RealClock(), request_s=10)
        try:
            yield engine, server
        finally:
            engine.close()
            listening.close()
            await listening.wait_closed()
