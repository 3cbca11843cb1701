"""API servers for tests: in this process (ready in milliseconds, with a fake clock if given), or as a process with TLS.

async with local_server() as server:
    await server.post("/api/v1/namespaces/default/configmaps", {"metadata": {"name": "a"}})

with server_process() as cluster:          # cluster.kubeconfig is for kubectl and other clients
    subprocess.run(["kubectl", "--kubeconfig", cluster.kubeconfig, "get", "ns"])
"""

from __future__ import annotations

import asyncio
import base64
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from shoal.apiserver.context import ServerConfig
from shoal.apiserver.inprocess import InProcessReply, InProcessTransport
from shoal.apiserver.registry import Registry
from shoal.apiserver.server import ApiServer
from shoal.apiserver.user import User
from shoal.base.clock import Clock, RealClock
from shoal.base.files import write_private
from shoal.base.ids import Ids, token_digest
from shoal.store import Store, open_store

ADMIN_TOKEN = "test-admin-token"
ADMIN = User("admin", ("system:masters", "system:authenticated"))
_READY_S = 20.0


class ServerAnswer:
    """An answer with its body decoded on demand."""

    def __init__(self, reply: InProcessReply) -> None:
        self.status = reply.status
        self.headers = reply.headers
        self.body = reply.body

    @property
    def json(self) -> Any:
        return orjson.loads(self.body)

    def ok(self) -> Any:
        """The decoded body; fails with the Status if the request was not successful."""
        assert self.status < 300, f"{self.status}: {self.body.decode(errors='replace')}"
        return self.json


class LocalServer:
    """An API server in this process, and requests with its administrator's rights."""

    def __init__(self, server: ApiServer, store: Store) -> None:
        self.server = server
        self.store = store
        self.transport = InProcessTransport(server.handler, ADMIN_TOKEN, user_agent="test/1")

    async def call(
        self, method: str, target: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> ServerAnswer:
        sent = {"content-type": "application/json", **(headers or {})}
        data = b"" if body is None else body if isinstance(body, bytes) else orjson.dumps(body)
        return ServerAnswer(await self.transport.request(method, target, headers=sent, body=data))

    async def get(self, target: str, **headers: str) -> Any:
        return (await self.call("GET", target, headers=headers)).ok()

    async def post(self, target: str, body: Any) -> Any:
        return (await self.call("POST", target, body)).ok()

    async def put(self, target: str, body: Any) -> Any:
        return (await self.call("PUT", target, body)).ok()

    async def delete(self, target: str, body: Any = None) -> Any:
        return (await self.call("DELETE", target, body)).ok()

    async def patch(self, target: str, body: Any, kind: str = "merge") -> Any:
        return (await self.call("PATCH", target, body, {"content-type": PATCHES[kind]})).ok()

    @asynccontextmanager
    async def watch(self, target: str) -> AsyncIterator[AsyncIterator[Any]]:
        """The decoded events of a watch."""
        reply = await self.transport.stream("GET", target)
        try:
            yield _events(reply.chunks())
        finally:
            await reply.close()


PATCHES = {
    "json": "application/json-patch+json",
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}


async def _events(chunks: AsyncIterator[bytes]) -> AsyncIterator[Any]:
    rest = b""
    async for chunk in chunks:
        rest += chunk
        *lines, rest = rest.split(b"\n")
        for line in lines:
            yield orjson.loads(line)


async def take(events: AsyncIterator[Any], count: int, timeout_s: float = 30.0) -> list[Any]:
    """The next ``count`` events; fails if they do not come in time."""
    found: list[Any] = []
    async with asyncio.timeout(timeout_s):
        while len(found) < count:
            found.append(await anext(events))
    return found


@asynccontextmanager
async def local_server(
    store_url: str = "memory://",
    *,
    clock: Clock | None = None,
    config: ServerConfig | None = None,
    signing_key: bytes = b"",
    loopback_endpoints: bool = False,
) -> AsyncIterator[LocalServer]:
    """Start an API server in this process, with its boot objects. It issues no tokens without ``signing_key``.

    The store's history ages by ``clock`` too: with a fake one, a revision expires when the test has let the time pass.
    """
    clock = clock or RealClock()
    registry = Registry(loopback_endpoints=loopback_endpoints)
    store = open_store(store_url, attrs_of=registry.attrs_of, clock=clock.monotonic)
    await store.start()
    server = ApiServer(
        store,
        registry,
        clock=clock,
        ids=Ids(),
        config=config or ServerConfig(ca_certificate="test CA"),
        tokens={token_digest(ADMIN_TOKEN): ADMIN},
        signing_key=signing_key,
    )
    try:
        await server.start()
        yield LocalServer(server, store)
    finally:
        await server.stop()
        await store.stop()


@dataclass(frozen=True, slots=True)
class ServerProcess:
    """A running ``shoal cluster start``."""

    process: subprocess.Popen[bytes]
    url: str
    directory: Path

    @property
    def kubeconfig(self) -> str:
        return str(self.directory / "kubeconfig")

    @property
    def token(self) -> str:
        found: str = orjson.loads((self.directory / "kubeconfig").read_bytes())["users"][0]["user"]["token"]
        return found

    @property
    def ca_file(self) -> str:
        """The CA certificate of the kubeconfig: servers that share their keys have no pki folder."""
        path = self.directory / "kubeconfig-ca.crt"
        if not path.exists():
            cluster = orjson.loads((self.directory / "kubeconfig").read_bytes())["clusters"][0]["cluster"]
            write_private(path, base64.b64decode(cluster["certificate-authority-data"]))  # atomically: threads read it
        return str(path)

    def kill(self) -> None:
        """End it with SIGKILL."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


def start_server_process(
    directory: Path, *flags: str, program: Sequence[str] = ("-m", "shoal"), components: str = "apiserver"
) -> ServerProcess:
    """Start an API server in ``directory`` and return when it is ready; with empty ``components`` a whole cluster.
    ``program`` is what Python runs; see ``shoal.testing.faulty_process``."""
    parts = ["--components", components] if components else []
    command = [sys.executable, *program, "cluster", "start", "--dir", str(directory), *parts, *flags]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env=dict(os.environ))
    assert process.stdout is not None
    line = process.stdout.readline().decode()
    process.stdout.close()  # it prints nothing more
    if not line.startswith("ready "):
        process.kill()
        raise RuntimeError(f"the server did not start: it printed {line!r}")
    return ServerProcess(process, line.split()[1], directory)


@contextmanager
def server_process(directory: Path | None = None, *flags: str) -> Iterator[ServerProcess]:
    """Run an API server as a process, in a temporary directory unless one is given."""
    with tempfile.TemporaryDirectory() as temporary:
        with running_server(directory or Path(temporary), *(flags or ("--port", "0"))) as started:
            yield started


@contextmanager
def running_server(directory: Path, *flags: str, components: str = "apiserver") -> Iterator[ServerProcess]:
    """Run ``start_server_process`` and stop it at the end."""
    started = start_server_process(directory, *flags, components=components)
    try:
        yield started
    finally:
        started.process.terminate()
        try:
            started.process.wait(timeout=_READY_S)
        except subprocess.TimeoutExpired:
            started.process.kill()
            started.process.wait()
