"""One real server for the whole run, an administrator's client of it, and a namespace for each test."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.testing.servers import ServerProcess, server_process

sys.path.insert(0, str(Path(__file__).parent))

from conformance_api import Api, unique


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
    """A namespace of this test alone. It stays: the server ends with the run, and so does all that is in it."""
    name = unique("test")
    api.of("v1", "namespaces").create({"metadata": {"name": name, "labels": {"conformance": "true"}}})
    return name
