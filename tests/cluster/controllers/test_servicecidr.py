"""Ranges and records of service addresses, on a server that allocates addresses."""

from __future__ import annotations

from contextlib import asynccontextmanager

from acting_as import acting_as

from shoal.base.clock import FakeClock
from shoal.client import Scope
from shoal.controllers.servicecidr import wiring
from shoal.errors import NotFound
from shoal.testing.controllers import running
from shoal.testing.servers import local_server
from shoal.testing.waiting import eventually

GROUP = "networking.k8s.io"


class World:
    def __init__(self, context, clock):
        self.context, self.clock = context, clock
        self.ranges, self.records = context.resource("servicecidrs", GROUP), context.resource("ipaddresses", GROUP)
        self.services = context.resource("services")

    async def service(self, name="s", **spec):
        made = {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}], **spec}}
        return (await self.services.create(made, "default"))["spec"]["clusterIP"]

    async def condition(self, name):
        found = (await self.ranges.get(name)).get("status", {}).get("conditions") or [None]
        return found[0]

    async def exists(self, resource, name):
        try:
            return await resource.get(name)
        except NotFound:
            return None

    async def reasons(self):
        return {e["reason"] for e in (await self.context.resource("events").list(Scope())).items}


@asynccontextmanager
async def world():
    clock = FakeClock()
    async with local_server(clock=clock) as server:
        ranges = acting_as(server, "service-cidrs-controller", wiring.add_ranges)
        async with running(server, [ranges, wiring.add_repair], clock=clock) as context:
            yield World(context, clock)


async def test_a_range_is_made_ready_and_protected():
    async with world() as w:
        ready = await eventually(lambda: w.condition("kubernetes"))
        assert (ready["type"], ready["status"]) == ("Ready", "True")
        assert ready["message"] == "Kubernetes Service CIDR is ready"
        assert (await w.ranges.get("kubernetes"))["metadata"]["finalizers"] == [
            "networking.k8s.io/service-cidr-finalizer"
        ]


async def test_an_unused_range_is_removed_after_ten_seconds():
    async with world() as w:
        await w.ranges.create({"metadata": {"name": "extra"}, "spec": {"cidrs": ["10.200.0.0/24"]}})
        await w.clock.advance(1)
        await w.ranges.delete("extra")
        await w.clock.advance(8)
        assert await w.exists(w.ranges, "extra")
        await w.clock.advance(4)
        assert not await w.exists(w.ranges, "extra")


async def test_a_range_with_addresses_waits_until_they_are_gone_or_another_has_them():
    async with world() as w:
        await w.clock.advance(1)
        await w.ranges.delete("kubernetes")
        await w.clock.advance(30)
        blocked = await w.condition("kubernetes")
        assert (blocked["status"], blocked["reason"]) == ("False", "Terminating")
        await w.ranges.create({"metadata": {"name": "wider"}, "spec": {"cidrs": ["10.0.0.0/8"]}})
        await w.clock.advance(30)
        assert not await w.exists(w.ranges, "kubernetes")


async def test_a_record_that_is_lost_is_made_again():
    async with world() as w:
        address = await w.service()
        await w.clock.advance(5)
        before = await w.records.get(address)
        await w.records.delete(address)
        await w.clock.advance(5)
        after = await w.exists(w.records, address)
        assert after["spec"]["parentRef"] == before["spec"]["parentRef"]
        assert after["metadata"]["labels"] == before["metadata"]["labels"]
        assert "ClusterIPNotAllocated" in await w.reasons()


async def test_a_record_without_a_service_is_removed_after_a_minute():
    async with world() as w:
        labels = {
            "ipaddress.kubernetes.io/ip-family": "IPv4",
            "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io",
        }
        parent = {"resource": "services", "namespace": "default", "name": "gone"}
        await w.records.create({"metadata": {"name": "10.0.0.77", "labels": labels}, "spec": {"parentRef": parent}})
        await w.records.create({"metadata": {"name": "10.0.0.78"}, "spec": {"parentRef": parent}})
        await w.clock.advance(55)
        assert await w.exists(w.records, "10.0.0.77")
        await w.clock.advance(15)
        assert not await w.exists(w.records, "10.0.0.77")
        assert await w.exists(w.records, "10.0.0.78"), "it belongs to another service"


async def test_services_that_are_created_and_deleted_leave_no_records_and_cause_no_warnings():
    async with world() as w:
        addresses = [await w.service(f"s{n}") for n in range(20)]
        await w.clock.advance(10)
        for n in range(0, 20, 2):
            await w.services.delete(f"s{n}", "default")
        again = [await w.service(f"t{n}", clusterIP=addresses[n]) for n in range(0, 20, 2)]
        await w.clock.advance(200)
        assert again == addresses[::2]
        names = {r["metadata"]["name"] for r in (await w.records.list()).items}
        assert set(addresses) <= names
        assert not await w.reasons()
