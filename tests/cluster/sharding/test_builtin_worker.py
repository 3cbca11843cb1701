"""The built-in worker on ShardedResources: marks them, or sends them to the webhook until it takes them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson

from shoal.app.ports import any_free
from shoal.base.asgi import serving
from shoal.base.clock import RealClock
from shoal.base.metrics import Metrics
from shoal.client import Client
from shoal.crds.shard import GROUP, SHARDED_RESOURCE, VERSION
from shoal.kube.objects import Obj
from shoal.sharding.model import SlotEntry, slot_label
from shoal.sharding.worker.builtin import BuiltinController
from shoal.sharding.worker.webhook import WebhookCaller, read_networks
from shoal.testing.servers import local_server
from shoal.testing.sharding import CONFIG, SlotWorld
from shoal.testing.waiting import eventually

HOST = "127.0.0.1"


class Hook:
    """Refuses until ``taking``."""

    def __init__(self) -> None:
        self.taking = False
        self.calls: list[Obj] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        self.calls.append(orjson.loads((await receive())["body"]))
        await send({"type": "http.response.start", "status": 200 if self.taking else 503, "headers": []})
        await send({"type": "http.response.body", "body": b"busy"})


class BuiltinWorld:
    def __init__(self, slots: SlotWorld) -> None:
        self.slots = slots
        self.client = slots.client
        self.resources = slots.client.resource(GROUP, VERSION, "shardedresources")
        self.configs = slots.client.resource(GROUP, VERSION, "shardconfigs")
        self.metrics = Metrics()

    async def resource(self, name: str, slot: int, **spec: Any) -> None:
        labels = {slot_label(CONFIG): str(slot)}
        await self.resources.create(
            {"metadata": {"name": name, "namespace": "default", "labels": labels}, "spec": spec}
        )

    async def start(self) -> None:
        clock = RealClock()
        caller = WebhookCaller(clock=clock, networks=read_networks(["127.0.0.0/8"]))
        self.slots.start("a", BuiltinController("a", caller, clock=clock).app, metrics=self.metrics)
        term = await self.slots.held("a")
        await self.slots.give(*(SlotEntry(slot=slot, owner="a", term=term, epoch=5) for slot in range(3)))

    async def configure(self, **spec: Any) -> None:
        await self.configs.patch(CONFIG, {"spec": spec}, "default")

    async def status(self, name: str) -> Obj:
        found: Obj = (await self.resources.get(name, "default")).get("status") or {}
        return found

    async def phase_is(self, name: str, phase: str) -> Obj:
        status = await self.status(name)
        assert status.get("phase") == phase, status
        return status


@asynccontextmanager
async def a_world() -> AsyncIterator[BuiltinWorld]:
    async with local_server() as server:
        client = Client(server.transport, clock=RealClock(), field_manager="people")  # type: ignore[arg-type]
        slots = SlotWorld(client)
        await slots.begin(targets=[{"group": GROUP, "kind": SHARDED_RESOURCE}])
        try:
            yield BuiltinWorld(slots)
        finally:
            await slots.end()


async def test_without_a_webhook_owned_resources_are_marked_and_again_when_they_change() -> None:
    async with a_world() as world:
        await world.resource("mine", 1, any="payload")
        await world.resource("foreign", 9)
        await world.start()
        status = await eventually(lambda: world.phase_is("mine", "Processed"))
        assert (status["processedBy"], status["attempts"], status["observedGeneration"]) == ("a", 1, 1)
        assert status["processedAt"]
        await world.resources.patch("mine", {"spec": {"any": "other"}}, "default")

        async def again() -> bool:
            return (await world.status("mine"))["observedGeneration"] == 2

        await eventually(again)
        assert await world.status("foreign") == {}
        metrics = world.metrics.render().decode()
        assert "shard_worker_slots 3.0" in metrics
        assert "shard_worker_objects 1.0" in metrics
        for name in ("handled_total", "failed_total 0.0", "queue_length 0.0", "handler_seconds_count"):
            assert f"shard_worker_{name}" in metrics


async def test_a_webhook_that_refuses_is_called_again_later_and_another_one_at_once() -> None:
    hook, port = Hook(), any_free(HOST)
    async with a_world() as world, serving(hook, host=HOST, port=port, clock=RealClock()):
        await world.configure(handler={"webhook": {"url": f"http://{HOST}:{port}/first"}})
        await world.resource("mine", 1, order=7)
        await world.start()
        status = await eventually(lambda: world.phase_is("mine", "Failed"))
        assert "answered 503: busy" in status["message"]

        async def twice() -> bool:
            return (await world.status("mine"))["attempts"] == 2

        await eventually(twice)  # a second later: its own status writes call it no sooner
        assert len(hook.calls) == 2
        hook.taking = True
        await world.configure(handler={"webhook": {"url": f"http://{HOST}:{port}/second"}})
        status = await eventually(lambda: world.phase_is("mine", "Processed"))
        assert (status["attempts"], "message" in status) == (3, False)
        call = hook.calls[-1]
        assert (call["object"]["spec"], call["attempt"], call["token"]) == ({"order": 7}, 3, f"{CONFIG}/1/5")
        assert "shard_worker_failed_total 2.0" in world.metrics.render().decode()


async def test_an_object_cannot_name_the_webhook() -> None:
    hook, port = Hook(), any_free(HOST)
    async with a_world() as world, serving(hook, host=HOST, port=port, clock=RealClock()):
        url = f"http://{HOST}:{port}/mine"
        await world.resource("mine", 1, handler={"webhook": {"url": url}}, webhook={"url": url}, url=url)
        await world.start()
        await eventually(lambda: world.phase_is("mine", "Processed"))
        assert hook.calls == []
