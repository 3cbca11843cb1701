"""A cache of the node's containers and sandboxes in the engine, and events when they change.

A refresh lists all containers and inspects those whose state differs from the cache. Events of the engine cause a
refresh of single containers; everything is refreshed every few seconds and after each gap in the event stream. Each
start and each exit is published once, and only after the cache shows it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace

from shoal.base.clock import Clock
from shoal.base.logs import get_logger
from shoal.base.supervision import SupervisedLoops
from shoal.node.runtime.docker import bodies
from shoal.node.runtime.docker.config import DockerConfig
from shoal.node.runtime.docker.engine import Engine, EngineError
from shoal.node.runtime.docker.frames import BadFrame, JsonLines
from shoal.node.runtime.docker.views import Answer, Found, found_of
from shoal.node.runtime.model import (
    Container,
    ContainerPhase,
    Inventory,
    NoSuchContainer,
    RuntimeEvent,
    RuntimeEventKind,
    RuntimeFailure,
    Sandbox,
)
from shoal.node.runtime.streams import EventStreams

log = get_logger("node.docker")

_AT_ONCE = 8  # concurrent inspections
_ENDS = frozenset({"die", "died"})
_ACTIONS = _ENDS | {"start", "oom", "destroy", "remove", "cleanup", "stop", "kill", "restart"}
_SETTLE_S = 0.02
_SETTLE_TRIES = 50  # an engine may send the event of an exit just before the container shows it
_AGAIN_S = 1.0
_LIST_TRIES = 5


class ContainerCache:
    """The containers of one node, as of their last refresh."""

    def __init__(self, engine: Engine, config: DockerConfig, *, clock: Clock) -> None:
        self._engine = engine
        self._config = config
        self._clock = clock
        self._known: dict[str, Found] = {}
        self._settled: dict[str, Container] = {}  # exits that the engine does not know of, see ``record_exit``
        self._events = EventStreams()
        self._loops = SupervisedLoops(clock)
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def open(self) -> None:
        """Load the existing containers, without events for them, and start following changes."""
        self._known.clear()
        await self.refresh()
        self._loops.start("docker/events", self._follow_engine)
        self._loops.start("docker/refresh", self._refresh_periodically)

    async def close(self) -> None:
        await self._loops.stop()
        self._events.close()

    # reading

    async def refresh(self) -> Inventory:
        """Refresh the whole cache and return its content."""
        before = set(self._known)
        summaries = await self._summaries()
        await asyncio.gather(*(self._refresh_changed(each) for each in summaries))
        listed = {each["Id"] for each in summaries}
        for gone in before - listed:
            self._forget(gone)
        found = [self._known[each] for each in listed if each in self._known]
        return Inventory(
            tuple(each.view for each in found if isinstance(each.view, Sandbox)),
            tuple(self._shown(each.view) for each in found if isinstance(each.view, Container)),
        )

    async def _summaries(self) -> list[Answer]:
        query = {"all": True, "filters": bodies.owner_filter(self._config)}
        for rest in reversed(range(_LIST_TRIES)):
            try:
                return await self._engine.json("GET", "containers", "json", query=query) or []
            except EngineError as error:
                if rest == 0 or not error.missing:  # podman fails when one is removed while it lists
                    raise
        raise AssertionError("the last try returns or raises")

    async def _refresh_changed(self, summary: Answer) -> None:
        known = self._known.get(summary["Id"])
        if known is None or known.state != summary.get("State"):
            async with self._slots:
                await self._refresh(summary["Id"])

    async def find(self, container_id: str) -> Found:
        """Refresh one container or sandbox; raises ``NoSuchContainer``."""
        found = await self._refresh(container_id)
        if found is None:
            raise NoSuchContainer(f"container {container_id} not found")
        return found

    async def container(self, container_id: str) -> Container:
        view = (await self.find(container_id)).view
        if not isinstance(view, Container):
            raise NoSuchContainer(f"container {container_id} not found: the id is a sandbox's")
        return self._shown(view)

    def _shown(self, container: Container) -> Container:
        settled = self._settled.get(container.id)
        return settled if settled is not None and container.phase is ContainerPhase.CREATED else container

    async def _refresh(self, container_id: str) -> Found | None:
        try:
            found = found_of(await self._engine.json("GET", "containers", container_id, "json"), self._config)
        except EngineError as error:
            if not error.missing:
                raise
            found = None
        if found is None or found.view.id != container_id:  # engines also accept names and prefixes of ids
            self._forget(container_id)
            return None
        return self._keep(found)

    def _keep(self, found: Found) -> Found:
        before = self._known.get(found.view.id)
        if before is not None and _older(found, before):
            return before
        self._known[found.view.id] = found
        self._publish_change(before, found)
        return found

    # events

    def record_exit(self, container: Container) -> Container:
        """Record the exit of a container that never ran; the engine has no record of it."""
        if container.id not in self._settled:
            self._settled[container.id] = container
            self._events.publish(
                RuntimeEvent(kind=RuntimeEventKind.EXITED, pod_uid=container.pod_uid, container_id=container.id)
            )
        return self._settled[container.id]

    def _publish_change(self, before: Found | None, now: Found) -> None:
        view = now.view
        if isinstance(view, Sandbox):
            if before is not None and isinstance(before.view, Sandbox) and before.view.ready and not view.ready:
                self._events.publish(RuntimeEvent(kind=RuntimeEventKind.SANDBOX, pod_uid=view.pod_uid))
            return
        was = before.view if before is not None and isinstance(before.view, Container) else None
        event = RuntimeEvent(kind=RuntimeEventKind.STARTED, pod_uid=view.pod_uid, container_id=view.id)
        if view.started_at is not None and (was is None or was.started_at != view.started_at):
            self._events.publish(event)
        if view.phase is ContainerPhase.EXITED and (was is None or was.phase is not ContainerPhase.EXITED):
            self._events.publish(replace(event, kind=RuntimeEventKind.EXITED))

    def _forget(self, container_id: str) -> None:
        found = self._known.pop(container_id, None)
        settled = self._settled.pop(container_id, None)
        if found is None:
            return
        view = found.view
        if isinstance(view, Sandbox):
            self._events.publish(RuntimeEvent(kind=RuntimeEventKind.SANDBOX, pod_uid=view.pod_uid))
        elif view.phase is not ContainerPhase.EXITED and settled is None:
            self._events.publish(RuntimeEvent(kind=RuntimeEventKind.EXITED, pod_uid=view.pod_uid, container_id=view.id))

    def events(self) -> AsyncIterator[RuntimeEvent]:
        return self._events.listen()

    # following the engine

    async def _refresh_periodically(self) -> None:
        while True:
            await self._clock.sleep(self._config.look_s)
            try:
                await self.refresh()
            except RuntimeFailure as error:
                log.warning("listing the containers failed", reason=str(error))

    async def _follow_engine(self) -> None:
        filters = {"type": ["container"], **bodies.owner_filter(self._config)}
        while True:
            try:
                async with self._engine.stream("GET", "events", query={"filters": filters}) as answer:
                    lines = JsonLines()
                    await self.refresh()  # catch up with changes from before the stream
                    while data := await answer.read():
                        await self._handle(lines.feed(data))
            except (RuntimeFailure, BadFrame) as error:
                log.warning("the engine's event stream ended", reason=str(error))
            await self._clock.sleep(_AGAIN_S)

    async def _handle(self, events: Iterable[Answer]) -> None:
        for each in events:
            action = each.get("Action") or each.get("status") or ""
            container_id = (each.get("Actor") or {}).get("ID") or each.get("id") or ""
            if action not in _ACTIONS or not container_id:
                continue
            for _ in range(_SETTLE_TRIES):
                found = await self._refresh(container_id)
                if found is None or action not in _ENDS or found.phase is not ContainerPhase.RUNNING:
                    break
                await self._clock.sleep(_SETTLE_S)


def _older(found: Found, known: Found) -> bool:
    """Whether a response is older than the cached state: an exited container does not run again by itself."""
    if not isinstance(found.view, Container) or not isinstance(known.view, Container):
        return False
    order = (ContainerPhase.CREATED, ContainerPhase.RUNNING, ContainerPhase.EXITED)
    if found.view.phase not in order or known.view.phase not in order:
        return False
    same_run = found.view.started_at in (None, known.view.started_at)
    return same_run and order.index(found.view.phase) < order.index(known.view.phase)
