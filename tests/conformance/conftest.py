"""One real server for the whole run, an administrator's client of it, and a namespace for each test.

``api`` and ``namespace`` are of an API server alone: objects stay as they were written. ``live`` and ``space`` are of a
whole cluster, with controllers, a scheduler and three simulated nodes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.testing.servers import ServerProcess, server_process

sys.path.insert(0, str(Path(__file__).parent))

from conformance_api import Api, unique

from shoal.testing.waiting import eventually_blocking


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "conformance(name): the upstream conformance test that this test replays")


@pytest.fixture(scope="session")
def cluster() -> Iterator[ServerProcess]:
    with server_process() as process:
        yield process


@pytest.fixture(scope="session")
def api(cluster: ServerProcess) -> Iterator[Api]:
    client = Api(cluster.url, cluster.ca_file, cluster.token)
    yield client
    client.close()


@pytest.fixture
def namespace(api: Api) -> str:
    """A namespace of this test. It is not deleted, since the server ends with the run."""
    name = unique("test")
    api.of("v1", "namespaces").create({"metadata": {"name": name, "labels": {"conformance": "true"}}})
    return name


LIVE_FLAGS = (
    "--port", "0", "--store", "memory://", "--components", "apiserver,scheduler,controllers,nodes",
    "--nodes", "3", "--runtime", "simulated",
)  # fmt: skip


@pytest.fixture(scope="session")
def live_cluster() -> Iterator[ServerProcess]:
    with server_process(None, *LIVE_FLAGS) as process:
        yield process


@pytest.fixture(scope="session")
def live(live_cluster: ServerProcess) -> Iterator[Api]:
    client = Api(live_cluster.url, live_cluster.ca_file, live_cluster.token)
    eventually_blocking(lambda: len(client.of("v1", "nodes").items()) == 3, timeout_s=30)
    yield client
    client.close()


@pytest.fixture
def space(live: Api) -> Iterator[str]:
    """A namespace of this test on the cluster where pods run. It is deleted, since its pods take up room on the nodes."""
    name = unique("test")
    live.of("v1", "namespaces").create({"metadata": {"name": name, "labels": {"conformance": "true"}}})
    yield name
    live.of("v1", "namespaces").delete(name)
