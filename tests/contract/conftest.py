"""Backends for the contract suites: each suite runs once per implementation of its seam."""

from __future__ import annotations

import asyncio
import itertools
import json
import sqlite3
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from shoal.base.clock import Clock, RealClock
from shoal.client import Client, Scope, builtin, load
from shoal.client.http import HttpTransport
from shoal.client.transport import Transport
from shoal.store import Attrs, Key, LogStore, Put, open_store
from shoal.testing.databases import shared_postgres, shared_redis
from shoal.testing.servers import ServerProcess, local_server, server_process

HEAD = b'{"metadata":{"resourceVersion":"'


def attrs_of(key: Key, value: bytes) -> Attrs:
    """Attributes from the value alone, so that they survive a restart."""
    body = json.loads(value)
    return Attrs(labels=body["labels"], indexed=tuple(body["indexed"]), fence=body["fence"])


@dataclass(frozen=True)
class StoreBackend:
    """How a test opens stores of one kind; opening the same backend again means the same data, where it is durable."""

    name: str
    url: str
    durable: bool
    events: str = ""

    def open(self, **options: Any) -> LogStore:
        return open_store(self.url, attrs_of=attrs_of, events=self.events, **options)

    attrs_of = staticmethod(attrs_of)

    def rows(self) -> int:
        """How many rows the log has on disk, history included."""
        if self.url.startswith("sqlite"):
            connection = sqlite3.connect(self.url.removeprefix("sqlite:///"))
            (count,) = connection.execute("SELECT count(*) FROM log").fetchone()
            connection.close()
            return int(count)
        return int(shared_postgres().sql("SELECT count(*) FROM shoal.log", _DATABASE))

    @asynccontextmanager
    async def opened(self, **options: Any) -> AsyncIterator[LogStore]:
        async with asyncio.timeout(60):
            store = self.open(**options)
            await store.start()
            try:
                yield store
            finally:
                await store.stop()

    @staticmethod
    def put(
        name: str,
        *,
        namespace: str = "default",
        resource: str = "pods",
        labels: Mapping[str, str] | None = None,
        indexed: Iterable[str] = (),
        fence: str = "",
        spec: str = "",
    ) -> Put:
        body = {"labels": dict(labels or {}), "indexed": list(indexed), "fence": fence, "spec": spec}
        value = HEAD + b'"},' + json.dumps(body).encode()[1:]
        key = Key(resource, namespace, name)
        return Put(key, value, len(HEAD), attrs_of(key, value))


_DATABASE = "contract"


@cache
def _postgres_url() -> str:
    return shared_postgres().create_database(_DATABASE)


def _store_backend(name: str, folder: Path) -> StoreBackend:
    if name == "memory":
        return StoreBackend(name, "memory://", durable=False)
    if name == "sqlite":
        return StoreBackend(name, f"sqlite:///{folder}/store.db", durable=True)
    url = _postgres_url()
    # One database for all tests, emptied for each: that takes a tenth of the time of making one.
    shared_postgres().sql("DROP SCHEMA IF EXISTS shoal CASCADE", _DATABASE)
    return StoreBackend(name, url, durable=True, events=shared_redis().url if "redis" in name else "")


@pytest.fixture(params=["memory", "sqlite", "postgres", "postgres and redis"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> StoreBackend:
    """Every kind of store."""
    return _store_backend(request.param, tmp_path)


@pytest.fixture(params=["sqlite", "postgres", "postgres and redis"])
def durable(request: pytest.FixtureRequest, tmp_path: Path) -> StoreBackend:
    """Every kind of store that keeps its data."""
    return _store_backend(request.param, tmp_path)


@pytest.fixture(params=["postgres", "postgres and redis"])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> StoreBackend:
    """Every kind of store that several servers can share."""
    return _store_backend(request.param, tmp_path)


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def lonely(request: pytest.FixtureRequest, tmp_path: Path) -> StoreBackend:
    """Every kind of store, for what does not depend on how servers tell each other."""
    return _store_backend(request.param, tmp_path)


@pytest.fixture
def shared_url() -> str:
    """An empty database."""
    return _store_backend("postgres", Path()).url


@pytest.fixture
def kind() -> StoreBackend:
    """No store: what makes values, for a test that opens its own."""
    return StoreBackend("none", "", durable=False)


@pytest.fixture(params=["memory", "sqlite"])
def lone(request: pytest.FixtureRequest, tmp_path: Path) -> StoreBackend:
    """Every kind of store whose process is its only writer."""
    return _store_backend(request.param, tmp_path)


@pytest.fixture
def filed(tmp_path: Path) -> StoreBackend:
    """The kind of store that is a file of this process."""
    return _store_backend("sqlite", tmp_path)


@dataclass(frozen=True)
class Api:
    """A server to talk to, and a namespace of the test's own in it."""

    transport: Transport
    clock: Clock
    namespace: str

    def client(self, transport: Transport | None = None, **options: Any) -> Client:
        return Client(transport or self.transport, clock=self.clock, field_manager="contract", **options)


_numbers = itertools.count()


@dataclass(frozen=True)
class ApiBackend:
    """How a test reaches an API server: in process, or over TLS at the process that the session shares."""

    name: str
    process: ServerProcess | None

    @asynccontextmanager
    async def opened(self, *, clock: Clock | None = None) -> AsyncIterator[Api]:
        """A server and a new namespace in it. ``clock`` is the client's; the server has the real one."""
        async with asyncio.timeout(60):
            own = clock or RealClock()
            if self.process is None:
                async with local_server() as server:
                    yield Api(server.transport, own, await self._namespace(server.transport))
            else:
                transport = HttpTransport(load(self.process.kubeconfig), clock=RealClock(), user_agent="contract/1")
                try:
                    yield Api(transport, own, await self._namespace(transport))
                finally:
                    await transport.close()

    @staticmethod
    async def _namespace(transport: Transport) -> str:
        namespace = f"test-{next(_numbers)}"
        client = Client(transport, clock=RealClock())
        await client.of(builtin("namespaces")).create({"metadata": {"name": namespace}})
        # the server fills a new namespace by itself: wait for it, so that no test sees that happen
        async with await client.of(builtin("configmaps")).watch(Scope(namespace=namespace)) as watch:
            async for event in watch:
                if event.object["metadata"].get("name") == "kube-root-ca.crt":
                    break
        return namespace


@pytest.fixture(scope="session")
def api_process() -> Iterator[ServerProcess]:
    with server_process() as process:
        yield process


@pytest.fixture(params=["in process", "tls"])
def api(request: pytest.FixtureRequest) -> ApiBackend:
    """Every way in which clients reach a server."""
    process = request.getfixturevalue("api_process") if request.param == "tls" else None
    return ApiBackend(request.param, process)
