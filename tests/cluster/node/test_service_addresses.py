"""Service addresses of a real cluster under traffic while its process is killed, stopped and started again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from shoal.base.files import holder_of
from shoal.client import Client, builtin
from shoal.kube.objects import Obj
from shoal.testing.fleets import FleetCluster
from shoal.testing.waiting import eventually

pytestmark = pytest.mark.timeout(300)  # enough for a busy machine

PORT = 18080
WAIT_S = 60.0
REQUESTS = 60  # in each phase
EVERY_S = 0.02
LABELS = {"app": "web"}
DEPLOYMENT: Obj = {
    "metadata": {"name": "web"},
    "spec": {
        "replicas": 2,
        "selector": {"matchLabels": LABELS},
        "template": {
            "metadata": {"labels": LABELS},
            "spec": {"containers": [{"name": "echo", "image": "shoal/echo", "ports": [{"containerPort": 8080}]}]},
        },
    },
}
SERVICE: Obj = {
    "metadata": {"name": "web"},
    "spec": {"selector": LABELS, "ports": [{"port": PORT, "targetPort": 8080}]},
}


async def ask(address: str) -> bytes:
    """The first line of the answer to a request over a new connection."""
    reader, writer = await asyncio.open_connection(address, PORT)
    try:
        writer.write(b"GET / HTTP/1.0\r\nHost: web\r\n\r\n")
        return await reader.readline()
    finally:
        writer.close()


class Traffic:
    """Requests at a steady rate, each over its own connection."""

    def __init__(self, address: str) -> None:
        self._address = address
        self.answered = 0
        self.failures: list[str] = []

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                group.create_task(self._request())
                await asyncio.sleep(EVERY_S)

    async def _request(self) -> None:
        try:
            line = await ask(self._address)
        except OSError as error:
            self.failures.append(f"{type(error).__name__}: {error}")
            return
        if b" 200 " not in line:
            self.failures.append(f"answer {line!r}")
        self.answered += 1

    async def more(self) -> None:
        """Return once many further requests have been answered, or one has failed."""
        wanted = self.answered + REQUESTS
        await eventually(lambda: self.answered >= wanted or self.failures, timeout_s=WAIT_S, every_s=EVERY_S)
        assert not self.failures, self.failures[:5]


@asynccontextmanager
async def traffic_to(address: str) -> AsyncIterator[Traffic]:
    traffic = Traffic(address)
    running = asyncio.create_task(traffic.run())
    try:
        yield traffic
    finally:
        running.cancel()
        await asyncio.wait([running])


@asynccontextmanager
async def a_cluster(folder: Path) -> AsyncIterator[FleetCluster]:
    cluster = FleetCluster("c", "eu", folder, "--nodes", "1", "--runtime", "process")
    await asyncio.to_thread(cluster.process.start)
    try:
        yield cluster
    finally:
        await asyncio.to_thread(cluster.process.stop)  # if killed, it would leave its pods running


async def scale(client: Client, replicas: int) -> None:
    await client.of(builtin("deployments", "apps")).patch("web", {"spec": {"replicas": replicas}}, "default")


async def test_a_service_answers_while_its_cluster_s_process_is_killed_stopped_and_started_again(
    tmp_path: Path,
) -> None:
    async with a_cluster(tmp_path / "cluster") as cluster:
        async with cluster.client() as client:
            await client.of(builtin("deployments", "apps")).create(DEPLOYMENT, "default")
            made = await client.of(builtin("services")).create(SERVICE, "default")
        address = made["spec"]["clusterIP"]
        await eventually(lambda: ask(address), timeout_s=WAIT_S, retry_on=(OSError,))
        reader, writer = await asyncio.open_connection(address, PORT)  # stays open over all of this
        async with traffic_to(address) as traffic:
            await traffic.more()
            proxy = holder_of(tmp_path / "cluster" / "proxy" / "proxy.lock")
            cluster.process.pause()
            await traffic.more()
            cluster.process.resume()
            await traffic.more()
            for _ in range(2):
                await asyncio.to_thread(cluster.process.kill)
                await traffic.more()
                await asyncio.to_thread(cluster.process.start)
                await traffic.more()
            async with cluster.client() as client:
                await scale(client, 3)
                await traffic.more()
        writer.write(b"GET / HTTP/1.0\r\nHost: web\r\n\r\n")
        assert b" 200 " in await reader.readline()
        writer.close()
        assert holder_of(tmp_path / "cluster" / "proxy" / "proxy.lock") == proxy is not None, "one process for all"
        async with cluster.client() as client:  # what changes reaches the proxy again
            await scale(client, 0)
            await eventually(lambda: is_refused(address), timeout_s=WAIT_S)
            await scale(client, 1)
            await eventually(lambda: ask(address), timeout_s=WAIT_S, retry_on=(OSError,))
    assert await is_refused(address)
    assert holder_of(tmp_path / "cluster" / "proxy" / "proxy.lock") is None, "it ends with its cluster"


async def is_refused(address: str) -> bool:
    try:
        await ask(address)
    except ConnectionRefusedError:
        return True
    except OSError:
        pass
    return False
