"""The fixtures ``kube``, ``kubeconfig``, ``kube_namespace`` and ``kube_in_process``, and the setting ``kube``."""

from __future__ import annotations

import json
import ssl
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

if TYPE_CHECKING:
    from shoal.testing.servers import LocalServer, ServerProcess

_KINDS = {
    "api": ("apiserver", ("--port", "0")),
    "nodes": ("", ("--port", "0", "--runtime", "simulated", "--nodes", "3")),
}
_HELP = "what the fixture kube starts: api (the API server alone), or nodes (with controllers, scheduler and nodes)"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("kube", _HELP, default="api")
    parser.getgroup("shoal").addoption("--kube", choices=sorted(_KINDS), default=None, help=_HELP)


def pytest_configure(config: pytest.Config) -> None:
    if _kind(config) not in _KINDS:
        known = " or ".join(sorted(_KINDS))
        raise pytest.UsageError(f"kube is {_kind(config)!r} in {config.inipath}: use {known}")


def _kind(config: pytest.Config) -> str:
    return config.getoption("--kube") or str(config.getini("kube"))


@pytest.fixture(scope="session")
def kube(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A cluster for all tests of this run: ``url``, ``token``, ``ca_file``, ``kubeconfig``."""
    from shoal.testing.servers import running_server

    components, flags = _KINDS[_kind(request.config)]
    with running_server(tmp_path_factory.mktemp("kube"), *flags, components=components) as server:
        yield server


@pytest.fixture
def kubeconfig(kube: ServerProcess, monkeypatch: pytest.MonkeyPatch) -> str:
    """The path of an administrator's kubeconfig; ``$KUBECONFIG`` has it during the test."""
    monkeypatch.setenv("KUBECONFIG", kube.kubeconfig)
    return kube.kubeconfig


@pytest.fixture
def kube_namespace(kube: ServerProcess) -> Iterator[str]:
    """The name of a new namespace, which is deleted after the test."""
    name = f"test-{uuid4().hex[:10]}"
    _call(kube, "POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    yield name
    _call(kube, "DELETE", f"/api/v1/namespaces/{name}")


@pytest.fixture
def kube_in_process() -> Callable[..., AbstractAsyncContextManager[LocalServer]]:
    """``async with kube_in_process(clock=…) as server``: an API server in the loop of the test."""
    from shoal.testing.servers import local_server

    return local_server


def _call(server: ServerProcess, method: str, path: str, body: Any = None) -> None:
    headers = {"authorization": f"Bearer {server.token}", "content-type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(f"{server.url}{path}", data, headers, method=method)  # noqa: S310 - https
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}),  # the server is on this machine
        urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=server.ca_file)),
    )
    opener.open(asked, timeout=30).close()
