"""A cluster whose components are separate processes, which tests kill and pause; and its audit log."""

from __future__ import annotations

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from pathlib import Path

import orjson

from shoal.app.cluster import identity_of
from shoal.app.ports import any_free
from shoal.base.clock import RealClock
from shoal.base.ids import Ids
from shoal.client import Client, PatchType, Scope, TransportError, builtin, load
from shoal.client.http import HttpTransport
from shoal.errors import ApiError
from shoal.kube.objects import Obj
from shoal.testing.waiting import eventually

NAMESPACE = "default"
LEASES = {"controllers": "kube-controller-manager", "scheduler": "kube-scheduler"}
NODES = ("--nodes", "3", "--runtime", "simulated")
_PAUSE_S = 0.05
_READY_S, _STOP_S = 60.0, 20.0
_LOWEST_PORT = 15_000


class Part:
    """One process, a ``shoal cluster start`` with some of the components."""

    def __init__(self, folder: Path, components: str, *flags: str) -> None:
        self.folder = folder
        self.command = [
            sys.executable, "-m", "shoal", "cluster", "start", "--dir", str(folder), "--components", components, *flags,
        ]  # fmt: skip
        self._process: Process | None = None

    @property
    def identity(self) -> str:
        """Its identity as a holder of leases."""
        return identity_of(self.folder, Ids())

    async def start(self) -> None:
        """Start it; return when it is ready."""
        self._process = await asyncio.create_subprocess_exec(*self.command, stdout=PIPE)
        assert self._process.stdout is not None
        async with asyncio.timeout(_READY_S):
            line = await self._process.stdout.readline()
        assert line.startswith(b"ready "), f"it did not start: it printed {line!r}"

    async def kill(self) -> None:
        """End it with SIGKILL."""
        assert self._process is not None
        self._process.kill()
        await self._process.wait()

    def send(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    async def stop(self) -> None:
        """End it in order, if it runs."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.send_signal(signal.SIGCONT)  # a paused process does not get SIGTERM
        process.terminate()
        try:
            async with asyncio.timeout(_STOP_S):
                await process.wait()
        except TimeoutError:
            await self.kill()


class Cluster:
    """The API server's process, a client of it, and the other parts."""

    def __init__(self, folder: Path, client: Client, server: Part, port: int) -> None:
        self.folder = folder
        self.client = client
        self.server = server
        self.port = port
        self.parts: list[Part] = [server]
        self._marks = count(1)

    def part(self, name: str, components: str, *flags: str) -> Part:
        """A part that finds the API server by its kubeconfig, unless the flags have another; not yet started."""
        kubeconfig = str(self.server.folder / "kubeconfig")
        part = Part(self.folder / name, components, "--port", "0", "--kubeconfig", kubeconfig, *flags)
        self.parts.append(part)
        return part

    async def add(self, name: str, components: str, *flags: str) -> Part:
        part = self.part(name, components, *flags)
        await part.start()
        return part

    async def add_all(self) -> dict[str, Part]:
        """The other components, each in a process of its own."""
        parts = {
            "controllers": self.part("controllers", "controllers"),
            "scheduler": self.part("scheduler", "scheduler"),
            "nodes": self.part("nodes", "nodes", *NODES),
        }
        await asyncio.gather(*(part.start() for part in parts.values()))
        return parts

    # objects

    async def get(self, plural: str, name: str, group: str = "", namespace: str = NAMESPACE) -> Obj:
        return await self.client.of(builtin(plural, group)).get(name, namespace)

    async def create(self, obj: Obj) -> None:
        group = obj["apiVersion"].rpartition("/")[0]
        await self.client.of(builtin(obj["kind"], group)).create(obj, NAMESPACE)

    async def patch(self, plural: str, name: str, patch: Obj, group: str = "apps") -> None:
        await self.client.of(builtin(plural, group)).patch(name, patch, NAMESPACE, type=PatchType.MERGE)

    async def pods(self, selector: str) -> list[Obj]:
        scope = Scope(namespace=NAMESPACE, label_selector=selector)
        return list((await self.client.of(builtin("pods")).list(scope)).items)

    async def version(self) -> str:
        """The cluster's current resourceVersion."""
        return (await self.client.of(builtin("pods")).list()).resource_version

    async def made_since(self, version: str, selector: str) -> list[str]:
        """The pods that were made after ``version``, also those that are gone."""
        scope = Scope(namespace=NAMESPACE, label_selector=selector)
        watch = await self.client.of(builtin("pods")).watch(scope, resource_version=version, timeout_s=1)
        async with watch:
            return [event.object["metadata"]["name"] async for event in watch if event.type == "ADDED"]

    async def holder(self, components: str) -> str:
        """The holder of the lease of these components."""
        lease = await self.get("leases", LEASES[components], "coordination.k8s.io", "kube-system")
        return str(lease["spec"].get("holderIdentity") or "")

    async def rolled_out(self, name: str, timeout_s: float = 60.0) -> None:
        """All pods of a Deployment are there, of its newest template and available, and no others."""

        async def check() -> bool:
            found = await self.get("deployments", name, "apps")
            status, wanted = found.get("status") or {}, found["spec"]["replicas"]
            counts = {status.get(key, 0) for key in ("replicas", "updatedReplicas", "availableReplicas")}
            seen = status.get("observedGeneration") == found["metadata"]["generation"]
            assert seen and counts == {wanted}, status
            pods = await self.pods(f"app={name}")
            assert len(pods) == wanted, len(pods)
            return True

        await eventually_despite_outages(check, timeout_s=timeout_s)

    # the audit log

    async def audit(self) -> list[Obj]:
        """The entries of all requests until now. The log comes a moment later, so the last of them is one of ours."""
        name = f"mark-{next(self._marks)}"
        await self.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
        entries: list[Obj] = []

        async def check() -> bool:
            entries[:] = await asyncio.to_thread(_entries, self.server.folder)
            return any((entry.get("objectRef") or {}).get("name") == name for entry in reversed(entries))

        await eventually_despite_outages(check)
        return entries

    async def bindings(self) -> Counter[str]:
        """How often each pod was bound."""
        return Counter(
            entry["objectRef"]["name"]
            for entry in await self.audit()
            if entry.get("objectRef", {}).get("subresource") == "binding" and entry["responseStatus"]["code"] == 201
        )

    async def fenced_off(self) -> set[str]:
        """The users whose writes were refused since they did not lead any more."""
        return {
            (entry.get("impersonatedUser") or entry["user"])["username"]
            for entry in await self.audit()
            if entry["responseStatus"]["code"] == 409 and "fenced off" in entry["responseStatus"].get("message", "")
        }


def _entries(folder: Path) -> list[Obj]:
    """The entries of the logs; an incomplete line, as a killed server leaves it, is skipped."""
    entries = []
    for path in sorted(folder.glob("audit*.log")):
        for line in path.read_bytes().splitlines():
            try:
                entries.append(orjson.loads(line))
            except ValueError:
                continue
    return entries


@asynccontextmanager
async def cluster(folder: Path, components: str = "apiserver", *flags: str) -> AsyncIterator[Cluster]:
    port = any_free("127.0.0.1")
    server = Part(folder / "server", components, "--port", str(port), *flags)
    await server.start()
    transport = HttpTransport(load(server.folder / "kubeconfig"), clock=RealClock(), user_agent="test/1")
    made = Cluster(folder, Client(transport, clock=RealClock(), field_manager="test"), server, port)
    try:
        yield made
    finally:
        await transport.close()
        # components before the server, which they give their leases back to
        await asyncio.gather(*(part.stop() for part in made.parts[1:]))
        await server.stop()


eventually_despite_outages = partial(
    eventually, timeout_s=60.0, every_s=_PAUSE_S, retry_on=(ApiError, TransportError, TimeoutError, OSError)
)
"""``eventually`` while the server is killed and started again: its errors mean "not yet"."""
