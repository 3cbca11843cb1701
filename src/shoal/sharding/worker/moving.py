"""A worker's side of moves: the source drains and saves a slot, the target restores it. The manager decides."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Callable, Coroutine
from hashlib import sha256
from typing import Any

from shoal.base.clock import Clock
from shoal.base.deadline import within
from shoal.base.logs import get_logger
from shoal.base.tasks import OwnedTasks, cancel_all
from shoal.client import Client, TransportError
from shoal.crds.shard import API_VERSION, GROUP, VERSION
from shoal.errors import AlreadyExists, ApiError, NotFound
from shoal.sharding.model import CONFIG_LABEL, STATE_LIMIT_BYTES, state_name
from shoal.sharding.worker.app import ShardedController
from shoal.sharding.worker.config import WorkerConfig
from shoal.sharding.worker.handling import HandlerRunner
from shoal.sharding.worker.slots import SlotStep

log = get_logger("shard.worker")

_AGAIN_S = 0.2

MoveEnded = Callable[[int, int, str], None]  # slot, epoch, digest


class SlotTransfer:
    def __init__(
        self, client: Client, app: ShardedController, config: WorkerConfig, *, handling: HandlerRunner, clock: Clock
    ) -> None:
        self._states = client.resource(GROUP, VERSION, "shardstates")
        self._app = app
        self._config = config
        self._handling = handling
        self._clock = clock
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._owned = OwnedTasks()
        self._ended: set[asyncio.Task[None]] = set()  # cancelled, not done yet

    def drain(self, slot: int, epoch: int, drained: MoveEnded) -> None:
        self._start(slot, self._drain(slot, epoch, drained))

    def restore(self, step: SlotStep, restored: MoveEnded, failed: Callable[[int, int], None]) -> None:
        self._start(step.slot, self._restore(step, restored, failed))

    def stop(self, slot: int) -> None:
        """Cancel the move of a slot."""
        task = self._tasks.pop(slot, None)
        if task is not None:
            task.cancel()
            self._ended.add(task)

    async def stop_all(self) -> None:
        """Cancel all moves and wait for their end."""
        for slot in tuple(self._tasks):
            self.stop(slot)
        await self.close()

    async def close(self) -> None:
        tasks = {*self._tasks.values(), *self._ended}
        self._tasks.clear()
        self._ended.clear()
        if tasks:
            await cancel_all(*tasks)

    def _start(self, slot: int, work: Coroutine[Any, Any, None]) -> None:
        self.stop(slot)
        task = self._owned.start(work, name=f"worker/move/{slot}", awaited=True)
        self._tasks[slot] = task

        def over(done: asyncio.Task[None]) -> None:
            self._ended.discard(done)
            if self._tasks.get(slot) is done:
                del self._tasks[slot]
            if not done.cancelled() and done.exception() is not None:
                log.error("moving a slot failed", slot=slot, error=done.exception())

        task.add_done_callback(over)

    # the source

    async def _drain(self, slot: int, epoch: int, drained: MoveEnded) -> None:
        try:
            async with within(self._clock, self._handling.limits.drain_timeout_s):
                await self._handling.ended(slot)
        except TimeoutError:
            log.warning("handlers of a moving slot take too long and are cancelled", slot=slot)
            self._handling.stop(slot)
            await self._handling.ended(slot)
        drained(slot, epoch, await self._save(slot, epoch))

    async def _save(self, slot: int, epoch: int) -> str:
        """The digest of the saved state; empty when there is none."""
        data = await self._app.save(slot) if self._app.save is not None else None
        if data is None:
            return ""
        if len(data) > STATE_LIMIT_BYTES:
            log.error("the state of a slot is too large and is dropped", slot=slot, bytes=len(data))
            return ""
        digest = sha256(data).hexdigest()[:16]
        name = state_name(self._config.config, slot, epoch)
        about = {
            "name": name,
            "namespace": self._config.namespace,
            "labels": {CONFIG_LABEL: self._config.config},
        }
        spec = {
            "config": self._config.config, "slot": slot, "epoch": epoch, "shard": self._config.shard,
            "data": base64.b64encode(data).decode(), "digest": digest,
        }  # fmt: skip
        state = {"apiVersion": API_VERSION, "kind": "ShardState", "metadata": about, "spec": spec}
        while True:
            try:
                await self._states.create(state)
                return digest
            except AlreadyExists:
                present = await self._states.get(name, self._config.namespace)
                found: str = present["spec"]["digest"]
                return found  # an earlier attempt, whose answer was lost, has saved it
            except (ApiError, TransportError) as error:
                log.warning("saving the state of a slot failed", slot=slot, reason=str(error))
                await self._clock.sleep(_AGAIN_S)

    # the target

    async def _restore(self, step: SlotStep, restored: MoveEnded, failed: Callable[[int, int], None]) -> None:
        if step.state:
            try:
                data = await self._read(step)
                if self._app.restore is not None:
                    await self._app.restore(step.slot, data)
            except Exception as error:
                log.error("the state of a slot could not be loaded", slot=step.slot, error=error)
                failed(step.slot, step.epoch)
                return
        restored(step.slot, step.epoch, step.digest)

    async def _read(self, step: SlotStep) -> bytes:
        while True:
            try:
                state = await self._states.get(step.state, self._config.namespace)
                break
            except NotFound:
                raise
            except (ApiError, TransportError) as error:
                log.warning("reading the state of a slot failed", slot=step.slot, reason=str(error))
                await self._clock.sleep(_AGAIN_S)
        try:
            data = base64.b64decode(state["spec"]["data"], validate=True)
        except binascii.Error as error:
            raise ValueError("the saved state is not base64") from error
        if sha256(data).hexdigest()[:16] != step.digest:
            raise ValueError("the saved state has a wrong checksum")
        return data
