"""Watches through the client, for every transport: order, resuming, initial events, 410, refusals."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from shoal.base.clock import RealClock
from shoal.client import ResourceClient, Scope, Unreachable, WatchEvent, builtin, connect, explicit, load
from shoal.errors import Expired, Forbidden, Invalid, NotFound, Unauthorized
from shoal.testing.servers import ServerProcess

CONFIG_MAPS = builtin("configmaps")


def config_map(name: str, namespace: str, **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": namespace, "labels": labels}}


async def take(events, count: int) -> list[WatchEvent]:
    found: list[WatchEvent] = []
    async with asyncio.timeout(30):
        while len(found) < count:
            found.append(await anext(events))
    return found


def told(events: list[WatchEvent]) -> list[tuple[str, str]]:
    return [(event.type, event.object["metadata"].get("name", "")) for event in events]


async def test_changes_arrive_in_order_from_the_revision_asked_for(api) -> None:
    async with api.opened() as cluster:
        maps, ns = cluster.client().of(CONFIG_MAPS), cluster.namespace
        await maps.create(config_map("before", ns))
        start = (await maps.list(Scope(namespace=ns))).resource_version
        async with await maps.watch(Scope(namespace=ns), resource_version=start, bookmarks=False) as watch:
            await maps.create(config_map("a", ns))
            await maps.patch("a", {"data": {"x": "1"}}, ns)
            await maps.delete("a", ns)
            found = await take(aiter(watch), 3)
        assert told(found) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]
        versions = [int(event.resource_version) for event in found]
        assert versions == sorted(set(versions))


async def test_a_resumed_watch_misses_and_repeats_nothing(api) -> None:
    async with api.opened() as cluster:
        maps, ns = cluster.client().of(CONFIG_MAPS), cluster.namespace
        version = (await maps.list(Scope(namespace=ns))).resource_version
        seen = []
        for number in range(6):
            await maps.create(config_map(f"m{number}", ns))
            if number % 2:
                async with await maps.watch(Scope(namespace=ns), resource_version=version, bookmarks=False) as watch:
                    for event in await take(aiter(watch), 2):
                        seen.append(event.object["metadata"]["name"])
                        version = event.resource_version
        assert seen == [f"m{number}" for number in range(6)]


async def test_initial_events_are_ended_by_a_bookmark(api) -> None:
    async with api.opened() as cluster:
        maps, ns = cluster.client().of(CONFIG_MAPS), cluster.namespace
        await maps.create(config_map("a", ns, colour="red"))
        await maps.create(config_map("b", ns, colour="blue"))
        scope = Scope(namespace=ns, label_selector="colour")
        async with await maps.watch(scope, initial_events=True) as watch:
            events = aiter(watch)
            first = await take(events, 3)
            assert told(first[:2]) == [("ADDED", "a"), ("ADDED", "b")]
            assert first[2].ends_initial
            await maps.patch("b", {"metadata": {"labels": {"colour": None}}}, ns)
            await maps.create(config_map("c", ns, colour="red"))
            assert told(await take(events, 2)) == [("DELETED", "b"), ("ADDED", "c")]


async def test_the_server_ends_a_watch_cleanly_when_its_time_is_over(api) -> None:
    async with api.opened() as cluster:
        maps = cluster.client().of(CONFIG_MAPS)
        version = (await maps.list(Scope(namespace=cluster.namespace))).resource_version
        scope = Scope(namespace=cluster.namespace)
        async with await maps.watch(scope, resource_version=version, timeout_s=1) as watch:
            found = [event.type async for event in watch]
        assert set(found) <= {"BOOKMARK"}


async def test_a_watch_that_is_refused_raises_before_it_begins(api) -> None:
    async with api.opened() as cluster:
        client = cluster.client()
        with pytest.raises(NotFound):
            await client.resource("nobody.example", "v1", "things").watch()
        with pytest.raises(Invalid):
            await client.stream("GET", CONFIG_MAPS.path(), params={"watch": True, "sendInitialEvents": True})


async def test_many_watches_are_closed_without_leaks(api) -> None:
    async with api.opened() as cluster:
        maps, scope = cluster.client().of(CONFIG_MAPS), Scope(namespace=cluster.namespace)
        await maps.list(scope)
        before = len(asyncio.all_tasks())
        for _ in range(20):
            async with await maps.watch(scope, initial_events=True) as watch:
                await anext(aiter(watch))
        assert len(asyncio.all_tasks()) == before


async def forget(leases: ResourceClient, namespace: str) -> None:
    """Write leases until the server has forgotten what was before: it keeps about a thousand changes of them."""

    async def write(worker: int) -> None:
        await leases.apply({"metadata": {"name": f"busy-{worker}", "namespace": namespace}})
        for number in range(160):
            await leases.patch(f"busy-{worker}", {"spec": {"leaseTransitions": number}}, namespace)

    await asyncio.gather(*(write(worker) for worker in range(8)))


async def test_a_revision_that_the_server_has_forgotten_is_expired(api) -> None:
    async with api.opened() as cluster:
        leases = cluster.client().of(builtin("leases", "coordination.k8s.io"))
        version = (await leases.list()).resource_version
        await forget(leases, cluster.namespace)
        with pytest.raises(Expired):
            async with await leases.watch(resource_version=version) as watch:
                await take(aiter(watch), 1)


async def test_a_list_whose_pages_expire_on_the_way_is_fetched_in_one_piece(api) -> None:
    async with api.opened() as cluster:
        leases, ns = cluster.client().of(builtin("leases", "coordination.k8s.io")), cluster.namespace
        for name in ("a", "b", "c"):
            await leases.create({"metadata": {"name": name, "namespace": ns}})
        pages = leases.pages(Scope(namespace=ns), limit=2)
        await anext(pages)
        await forget(leases, ns)
        with pytest.raises(Expired):
            await anext(pages)

        class Forgetful:
            asked = 0

            async def request(self, method, target, **options):
                self.asked += 1
                if self.asked == 2:
                    await forget(leases, ns)
                return await cluster.transport.request(method, target, **options)

        listed = await cluster.client(Forgetful()).of(leases.type).list(Scope(namespace=ns), limit=2)
        names = [lease["metadata"]["name"] for lease in listed.items]
        assert names == ["a", "b", *(f"busy-{worker}" for worker in range(8)), "c"]


async def test_a_list_that_may_move_goes_on_at_a_later_revision_when_its_pages_expire(api) -> None:
    async with api.opened() as cluster:
        leases, ns = cluster.client().of(builtin("leases", "coordination.k8s.io")), cluster.namespace
        for name in ("a", "b", "c"):
            await leases.create({"metadata": {"name": name, "namespace": ns}})
        pages = leases.pages(Scope(namespace=ns), limit=2, may_move=True)
        first = await anext(pages)
        await forget(leases, ns)
        others = [page async for page in pages]
        assert all(len(page.items) <= 2 for page in others)
        names = [lease["metadata"]["name"] for page in (first, *others) for lease in page.items]
        assert names == ["a", "b", *(f"busy-{worker}" for worker in range(8)), "c"]
        assert int(others[-1].resource_version) > int(first.resource_version)


@pytest.mark.parametrize("anyio_backend", [("asyncio", {"use_uvloop": True})], ids=["uvloop"])
async def test_the_network_transport_works_on_uvloop_too(api_process: ServerProcess) -> None:
    async with connect(load(api_process.kubeconfig), clock=RealClock()) as client:
        maps = client.of(CONFIG_MAPS)
        version = (await maps.list()).resource_version
        async with await maps.watch(resource_version=version, bookmarks=False) as watch:
            await maps.create(config_map("uvloop", "default"))
            assert told(await take(aiter(watch), 1)) == [("ADDED", "uvloop")]


async def test_a_server_with_a_certificate_of_another_authority_is_not_trusted(api_process: ServerProcess) -> None:
    async with connect(explicit(api_process.url, token=api_process.token), clock=RealClock()) as client:
        with pytest.raises(Unreachable, match="not trusted"):
            await client.of(CONFIG_MAPS).list()
    async with connect(explicit(api_process.url, ca_file=api_process.ca_file), clock=RealClock()) as client:
        with pytest.raises((Unauthorized, Forbidden)):
            await client.of(CONFIG_MAPS).list()
