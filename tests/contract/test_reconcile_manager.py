"""Manager and controllers on a real server: convergence from any start, shared informers, order of start and end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from shoal.base.clock import Clock, RealClock
from shoal.base.metrics import Metrics
from shoal.client import Client, LostLease, Scope, builtin
from shoal.errors import AlreadyExists, ApiError, NotFound
from shoal.reconcile import (
    DONE,
    Controller,
    ControllerConfig,
    Elector,
    LeaseLock,
    Manager,
    ObjectKey,
    RateLimit,
    ReconcileMetrics,
    ReflectorConfig,
    Result,
)
from shoal.testing.waiting import eventually

CONFIG_MAPS, SECRETS = builtin("configmaps"), builtin("secrets")
WANTED = "copies"  # a config map with this label has so many secrets that it controls


class Copies:
    """A small controller: as many secrets as the config map's data says."""

    def __init__(self, manager: Manager, namespace: str, clock: Clock, random: Callable[[], float]) -> None:
        scope = Scope(namespace=namespace)
        self.client: Client = manager.client
        self.maps = manager.informer(CONFIG_MAPS, scope)
        self.secrets = manager.informer(SECRETS, scope, indexes={"owner": _owner})
        self.failing = 0.0
        self.random = random
        ids = iter(range(10**9))
        self.controller = Controller(
            "copies", self.reconcile, clock=clock, random=random, new_id=lambda: str(next(ids)),
            metrics=ReconcileMetrics(Metrics()),
            config=ControllerConfig(workers=3, limit=RateLimit(base_s=0.001, cap_s=0.02, rate=0)),
        )  # fmt: skip
        self.controller.watches(self.maps).owns(self.secrets, kind="ConfigMap")
        manager.add(self.controller)

    async def reconcile(self, key: ObjectKey) -> Result:
        owner = self.maps.cache.get(key)
        wanted = int(owner["data"][WANTED]) if owner is not None and WANTED in owner.get("data", {}) else 0
        have = {each["metadata"]["name"] for each in self.secrets.cache.by_index("owner", key.name)}
        names = {f"{key.name}-{number}" for number in range(wanted)}
        secrets = self.client.of(SECRETS)
        for name in sorted(names - have):
            if self.random() < self.failing:
                raise RuntimeError("by chance")
            assert owner is not None
            reference = {
                "apiVersion": "v1", "kind": "ConfigMap", "name": key.name, "uid": owner["metadata"]["uid"],
                "controller": True,
            }  # fmt: skip
            about = {"name": name, "namespace": key.namespace, "ownerReferences": [reference]}
            try:
                await secrets.create({"metadata": about})
            except AlreadyExists:
                pass
        for name in sorted(have - names):
            try:
                await secrets.delete(name, key.namespace)
            except NotFound:
                pass
        return DONE


def _owner(obj: dict[str, Any]) -> list[str]:
    return [reference["name"] for reference in obj["metadata"].get("ownerReferences") or ()]


@asynccontextmanager
async def running(manager: Manager):
    task = asyncio.create_task(manager.run(), name="manager")
    try:
        async with asyncio.timeout(10):
            await manager.ready.wait()
        yield task
    finally:
        manager.stop()
        async with asyncio.timeout(10):
            await asyncio.wait([task])


async def eventually_as_wanted(cluster) -> None:
    """Return when the secrets are as wanted; looks again whenever one of them changes."""
    async with asyncio.timeout(15):
        secrets = cluster.client().of(SECRETS)
        async with await secrets.watch(Scope(namespace=cluster.namespace), initial_events=True) as watch:
            async for _ in watch.batches():
                if await expected_state(cluster):
                    return


def manager_for(cluster, **options: Any) -> Manager:
    return Manager(cluster.client(), clock=RealClock(), random=Random(3).random, **options)


async def expected_state(cluster) -> bool:
    client, scope = cluster.client(), Scope(namespace=cluster.namespace)
    maps = (await client.of(CONFIG_MAPS).list(scope)).items
    secrets = (await client.of(SECRETS).list(scope)).items
    wanted = {
        f"{each['metadata']['name']}-{number}"
        for each in maps
        for number in range(int((each.get("data") or {}).get(WANTED, 0)))
    }
    return {each["metadata"]["name"] for each in secrets} == wanted


@pytest.mark.parametrize("seed", range(3))
async def test_the_cluster_converges_after_any_order_of_events(api, seed: int) -> None:
    async with api.opened() as cluster:
        random = Random(seed)
        maps, secrets, ns = cluster.client().of(CONFIG_MAPS), cluster.client().of(SECRETS), cluster.namespace

        async def meddle() -> None:
            for _ in range(25):
                name = f"m{random.randrange(4)}"
                try:
                    if random.random() < 0.2:
                        await maps.delete(name, ns)
                    elif random.random() < 0.3:
                        await secrets.delete(f"{name}-{random.randrange(3)}", ns)
                    else:
                        about = {"name": name, "namespace": ns}
                        await maps.apply({"metadata": about, "data": {WANTED: str(random.randrange(4))}}, force=True)
                except ApiError:
                    pass
                await asyncio.sleep(0)

        await meddle()  # some of it has happened before the controller starts
        manager = manager_for(cluster)
        copies = Copies(manager, ns, RealClock(), random.random)
        copies.failing = 0.3
        async with running(manager):
            await meddle()
            copies.failing = 0.0
            await eventually_as_wanted(cluster)


async def test_a_restarted_controller_finds_what_it_missed(api) -> None:
    async with api.opened() as cluster:
        maps, ns = cluster.client().of(CONFIG_MAPS), cluster.namespace
        await maps.create({"metadata": {"name": "a", "namespace": ns}, "data": {WANTED: "3"}})
        for count in ("3", "1", "2"):
            await maps.patch("a", {"data": {WANTED: count}}, ns)
            manager = manager_for(cluster)
            Copies(manager, ns, RealClock(), Random(1).random)
            async with running(manager):
                await eventually_as_wanted(cluster)


async def test_informers_are_shared_by_resource_and_scope(api) -> None:
    async with api.opened() as cluster:
        manager = manager_for(cluster)
        scope = Scope(namespace=cluster.namespace)
        one = manager.informer(CONFIG_MAPS, scope)
        assert manager.informer(CONFIG_MAPS, Scope(namespace=cluster.namespace)) is one
        assert manager.informer(CONFIG_MAPS) is not one
        assert manager.informer(SECRETS, scope) is not one
        async with running(manager):
            late = manager.informer(builtin("serviceaccounts"), scope)
            async with asyncio.timeout(10):
                await late.cache.synced.wait()
            assert manager.health().ready


async def test_health_names_informers_that_are_not_synced(api) -> None:
    async with api.opened() as cluster:
        manager = manager_for(cluster, reflector=ReflectorConfig(watch_list=False))
        manager.informer(cluster.client().resource("nobody.example", "v1", "things").type)
        task = asyncio.create_task(manager.run(), name="manager")
        await eventually(lambda: manager.health().failing)
        health = manager.health()
        assert not health.ready
        assert health.unsynced == ("things.nobody.example",)
        assert "could not find" in health.failing["things.nobody.example"]
        manager.stop()
        async with asyncio.timeout(5):
            await task


def elector_for(cluster, identity: str) -> Elector:
    lock = LeaseLock(cluster.client(), cluster.namespace, "leader")
    return Elector(lock, identity, clock=RealClock(), random=Random(1).random)


async def test_only_the_leader_works_and_stopping_hands_over(api) -> None:
    async with api.opened() as cluster:
        maps, ns = cluster.client().of(CONFIG_MAPS), cluster.namespace
        await maps.create({"metadata": {"name": "a", "namespace": ns}, "data": {WANTED: "1"}})
        one = manager_for(cluster, elector=elector_for(cluster, "one"))
        Copies(one, ns, RealClock(), Random(1).random)
        async with running(one) as first:
            await eventually_as_wanted(cluster)
            assert one.health().leading
            two = manager_for(cluster, elector=elector_for(cluster, "two"))
            Copies(two, ns, RealClock(), Random(1).random)
            async with running(two):
                assert two.health().ready and not two.health().leading
                one.stop()
                await asyncio.wait([first])
                first.result()
                leases = cluster.client().of(builtin("leases", "coordination.k8s.io"))
                spec = (await leases.get("leader", ns))["spec"]
                assert spec.get("holderIdentity", "") == ""


async def test_losing_the_lease_stops_the_controllers_and_ends_the_manager(api) -> None:
    async with api.opened() as cluster:
        elector = elector_for(cluster, "one")
        manager = manager_for(cluster, elector=elector)
        stopped = asyncio.Event()

        class Worker:
            name = "worker"

            async def run(self) -> None:
                try:
                    await asyncio.Event().wait()
                finally:
                    stopped.set()

            def stop(self) -> None:
                raise AssertionError("a lost lease leaves no time for that")

        manager.add(Worker())
        task = asyncio.create_task(manager.run(), name="manager")
        async with asyncio.timeout(10):
            await elector.leading.wait()
            elector.fence.end()
            with pytest.raises(LostLease):
                await task
        assert stopped.is_set()


async def test_the_failure_of_a_runnable_ends_the_manager(api) -> None:
    async with api.opened() as cluster:
        manager = manager_for(cluster)

        class Worker:
            name = "worker"

            async def run(self) -> None:
                raise ValueError("broken")

            def stop(self) -> None:
                pass

        manager.add(Worker())
        with pytest.raises(ValueError, match="broken"):
            await manager.run()


async def test_cancelling_the_manager_leaves_no_task(api) -> None:
    async with api.opened() as cluster:
        before = asyncio.all_tasks()
        manager = manager_for(cluster)
        Copies(manager, cluster.namespace, RealClock(), Random(1).random)
        task = asyncio.create_task(manager.run(), name="manager")
        await manager.ready.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert asyncio.all_tasks() <= before
