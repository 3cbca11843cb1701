"""The program of the image shoal/echo."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

Run = Callable[..., AbstractAsyncContextManager[Any]]


async def test_the_echo_image_answers_http(on_process_node: Run) -> None:
    async with on_process_node() as node:
        from shoal.node.runtime.model import ContainerSpec

        image = await node.runtime.image("shoal/echo")
        spec = ContainerSpec(name="main", attempt=0, image=image, image_reference="shoal/echo", ports=(18080,))
        made = await node.runtime.create(node.sandbox_id, spec)
        await node.runtime.start(made.id)
        await node.says(made, f"listening on {node.address}:18080")
        connection = await node.runtime.connect(node.sandbox_id, 18080)
        await connection.write(b"GET /hello HTTP/1.1\r\nConnection: close\r\n\r\n")
        answer = b""
        while data := await connection.read():
            answer += data
        await connection.close()
        assert answer.startswith(b"HTTP/1.1 200") and b"GET /hello" in answer
        assert (await node.runtime.stop(made.id, grace_s=10)).exit_code == 0
