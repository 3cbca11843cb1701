"""A small HTTP proxy for tests: CONNECT only, with names that exist nowhere else.

async with HttpProxy({"kube.example": "127.0.0.1"}) as proxy:
    environ["HTTPS_PROXY"] = proxy.url
    ...
    assert proxy.asked == ["kube.example:6443"]
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Self

from shoal.base.tasks import OwnedTasks

HOST = "127.0.0.1"


class HttpProxy:
    """``hosts`` are the addresses of names; others are refused with 403. ``asked`` has each request's host and port."""

    def __init__(self, hosts: Mapping[str, str]) -> None:
        self._hosts = hosts
        self._server: asyncio.Server | None = None
        self._tasks = OwnedTasks()
        self.asked: list[str] = []

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"http://{HOST}:{self._server.sockets[0].getsockname()[1]}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, HOST, 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        await self._tasks.close()

    def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._tasks.start(self._tunnel(reader, writer), name="http-proxy")

    async def _tunnel(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            method, target, _ = (await reader.readuntil(b"\r\n\r\n")).decode().split(" ", 2)
            self.asked.append(target)
            name, _, port = target.rpartition(":")
            if method != "CONNECT" or name not in self._hosts:
                writer.write(b"HTTP/1.1 403 Forbidden\r\n\r\n")
                return
            far_reader, far_writer = await asyncio.open_connection(self._hosts[name], int(port))
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            async with asyncio.TaskGroup() as group:
                group.create_task(_pump(reader, far_writer), name="http-proxy/up")
                group.create_task(_pump(far_reader, writer), name="http-proxy/down")
        except (OSError, asyncio.IncompleteReadError):
            return
        finally:
            writer.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while piece := await reader.read(65536):
            writer.write(piece)
            await writer.drain()
    writer.close()
