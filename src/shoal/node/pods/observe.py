"""The state of pods in the runtime: shared listings, and termination messages."""

from __future__ import annotations

import asyncio

from shoal.base.tasks import OwnedTasks
from shoal.kube.objects import Obj
from shoal.node.runtime.model import Container, Inventory, LogOptions, NoSuchContainer, Runtime, Sandbox
from shoal.node.volumes.service import Volumes

_MESSAGE_BYTES = 4096
_LOG_BYTES = 2048
_LOG_LINES = 80


class Lister:
    """Lists the containers of a runtime. Every caller gets a listing that started after its call."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._lock = asyncio.Lock()
        self._tasks = OwnedTasks()
        self._next: asyncio.Task[Inventory] | None = None

    async def fresh(self) -> Inventory:
        if self._next is None:
            self._next = self._tasks.start(self._list(), name="runtime/list", awaited=True)
        return await asyncio.shield(self._next)

    async def _list(self) -> Inventory:
        async with self._lock:
            self._next = None  # later callers need a later listing
            return await self._runtime.list()


def of_pod(inventory: Inventory, uid: str) -> tuple[Sandbox | None, tuple[Container, ...]]:
    """The newest sandbox of a pod, and its containers of all sandboxes."""
    sandboxes = [each for each in inventory.sandboxes if each.pod_uid == uid]
    newest = max(sandboxes, key=lambda each: (each.attempt, each.created_at), default=None)
    return newest, tuple(each for each in inventory.containers if each.pod_uid == uid)


async def termination_message(runtime: Runtime, volumes: Volumes, spec: Obj, container: Container) -> str:
    """The termination message of an exited container: its file, or the end of its log if the pod asks for that."""
    path = volumes.message_file(container.pod_uid, container.name, container.attempt)
    try:
        with path.open("rb") as file:
            text = file.read(_MESSAGE_BYTES).decode(errors="replace")
    except OSError:
        text = ""
    fallback = spec.get("terminationMessagePolicy") == "FallbackToLogsOnError"
    if text or not fallback or not container.exit_code:
        return text
    data = b""
    try:
        async for batch in runtime.logs(container.id, LogOptions(tail=_LOG_LINES)):
            data += b"".join(record.data for record in batch)
    except NoSuchContainer:
        return ""
    return data[-_LOG_BYTES:].decode(errors="replace")
