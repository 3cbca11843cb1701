"""What a watcher costs the API server in memory. ``bench/watchers_bench.py`` has 5000 of them."""

from __future__ import annotations

import ssl

import httpx
import pytest

from shoal.testing.servers import ServerProcess, server_process
from shoal.testing.watchers import idle_watchers, multiplexed_watchers, resident_mb

WATCHERS = 300
PATH = "/api/v1/namespaces/default/configmaps"


def fill(server: ServerProcess, count: int, size: int, name: str = "object") -> str:
    """The revision after ``count`` objects of ``size`` bytes."""
    version = ""
    context = ssl.create_default_context(cafile=server.ca_file)
    headers = {"Authorization": f"Bearer {server.token}"}
    with httpx.Client(base_url=server.url, verify=context, headers=headers) as http:
        for index in range(count):
            made = http.post(PATH, json={"metadata": {"name": f"{name}-{index}"}, "data": {"a": "x" * size}})
            version = made.raise_for_status().json()["metadata"]["resourceVersion"]
    return version


@pytest.mark.parametrize(("loaded", "limit_kb"), [(False, 100), (True, 250)])
def test_a_watcher_costs_little_also_after_it_has_received_many_objects(loaded: bool, limit_kb: int) -> None:
    """Before, each one that had received objects kept a TLS buffer as large as all of them."""
    with server_process() as server:
        pid = server.process.pid
        version = fill(server, 30, 40_000)
        path = PATH if loaded else f"{PATH}?resourceVersion={version}"
        before = resident_mb(pid)
        with idle_watchers(server, WATCHERS, path) as watchers:
            if loaded:
                watchers.read_until(b'"k8s.io/initial-events-end":"true"')
            each_kb = (resident_mb(pid) - before) * 1024 / WATCHERS
            assert each_kb < limit_kb


def test_watchers_on_connections_of_http2_cost_a_tenth() -> None:
    """A watch there is a stream; a hundred of them share one connection's TLS."""
    with server_process() as server:
        version = fill(server, 3, 40_000)
        before = resident_mb(server.process.pid)
        with multiplexed_watchers(server, WATCHERS, f"{PATH}?resourceVersion={version}") as watchers:
            assert (resident_mb(server.process.pid) - before) * 1024 / WATCHERS < 20
            fill(server, 1, 40_000, "seen")
            watchers.read_until(b'"name":"seen-0"')
