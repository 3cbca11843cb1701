"""The program of the image shoal/echo."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from shoal.node.runtime.model import Container, ContainerSpec, Security
from shoal.testing.waiting import eventually

Run = Callable[..., AbstractAsyncContextManager[Any]]


async def run_nginx(node: Any, **more: Any) -> Container:
    image = await node.runtime.image("nginx")
    made = await node.runtime.create(
        node.sandbox_id, ContainerSpec(name="web", attempt=0, image=image, image_reference="nginx", **more)
    )
    found: Container = await node.runtime.start(made.id)
    return found


async def test_the_nginx_image_listens_on_80_where_that_is_permitted_and_else_says_why_not(
    on_process_node: Run,
) -> None:
    permitted = os.geteuid() == 0 or int(Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text()) <= 80
    async with on_process_node() as node:
        made = await run_nginx(node)
        await node.says(made, f"listening on {node.address}:{80 if permitted else 8080}")
        await eventually(lambda: permitted or node.notices)
        assert [each.reason for each in node.notices] == ([] if permitted else ["PortNotPermitted"])
        await node.runtime.stop(made.id, grace_s=10)


async def test_an_nginx_of_another_user_gets_a_warning_that_names_both_ports(on_process_node: Run) -> None:
    open_from = int(Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text())
    async with on_process_node(namespaces="off") as node:
        image = await node.runtime.image("nginx")
        spec = ContainerSpec(
            name="web", attempt=0, image=image, image_reference="nginx", security=Security(user=65534)
        )  # fmt: skip
        await node.runtime.create(node.sandbox_id, spec)
        if open_from > 80:
            await eventually(lambda: "PortNotPermitted" in [each.reason for each in node.notices])
            (notice,) = (each for each in node.notices if each.reason == "PortNotPermitted")
            assert "port 8080, not on 80" in notice.message and f"below {open_from}" in notice.message


async def test_an_nginx_listens_on_the_port_that_its_pod_declares(on_process_node: Run) -> None:
    async with on_process_node() as node:
        made = await run_nginx(node, ports=(18081,))
        await node.says(made, f"listening on {node.address}:18081")
        await node.runtime.stop(made.id, grace_s=10)


async def test_the_echo_image_answers_http(on_process_node: Run) -> None:
    async with on_process_node() as node:
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
