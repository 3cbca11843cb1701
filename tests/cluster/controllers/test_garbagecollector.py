"""The garbage collector against an API server: all kinds of deletion, later kinds, invalid references."""

from __future__ import annotations

from contextlib import asynccontextmanager

from shoal.client import Propagation, ResourceType, Scope
from shoal.controllers.garbagecollector import wiring
from shoal.errors import NotFound
from shoal.testing.controllers import running
from shoal.testing.servers import local_server
from shoal.testing.waiting import eventually

WIDGETS = ResourceType("example.io", "v1", "widgets", True, "Widget")
WIDGET_DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.example.io"},
    "spec": {
        "group": "example.io", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
        "versions": [
            {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
        ],
    },
}  # fmt: skip


@asynccontextmanager
async def collected():
    async with local_server() as server, running(server, [wiring.add]) as context:
        yield Objects(context)


class Objects:
    """ConfigMaps (and others) that own each other."""

    def __init__(self, context):
        self.context = context
        self.maps = context.resource("configmaps")

    async def make(self, name, *owners, namespace="default", blocks=True, resource=None, finalizers=()):
        about = {"name": name, "namespace": namespace, "ownerReferences": [refer(each, blocks) for each in owners]}
        if finalizers:
            about["finalizers"] = list(finalizers)
        return await (resource or self.maps).create({"metadata": about})

    async def names(self, namespace="default"):
        listed = await self.maps.list(Scope(namespace=namespace))
        return {each["metadata"]["name"] for each in listed.items} - {"kube-root-ca.crt"}

    async def delete(self, name, propagation=None, namespace="default"):
        await self.maps.delete(name, namespace, propagation=propagation)

    async def left(self, *names, namespace="default"):
        async def check():
            return await self.names(namespace) == set(names)

        await eventually(check)


def refer(owner, blocks=True):
    about = owner["metadata"]
    return {
        "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": about["name"], "uid": about["uid"],
        "blockOwnerDeletion": blocks,
    }  # fmt: skip


async def test_dependents_follow_an_owner_that_was_deleted_in_the_background():
    async with collected() as world:
        top = await world.make("top")
        middle = await world.make("middle", top)
        await world.make("leaf", middle)
        await world.make("other")
        await world.delete("top", Propagation.BACKGROUND)
        await world.left("other")


async def test_an_owner_deleted_in_the_foreground_goes_after_its_dependents():
    async with collected() as world:
        top = await world.make("top")
        held = await world.make("held", top, finalizers=["example.io/hold"])
        await world.make("free", top)
        await world.delete("top", Propagation.FOREGROUND)
        await world.left("top", "held")
        top = await world.maps.get("top", "default")
        assert top["metadata"]["finalizers"] == ["foregroundDeletion"]
        await world.maps.patch("held", {"metadata": {"finalizers": None}}, "default")
        await world.left()
        assert held["metadata"]["name"] == "held"


async def test_dependents_of_an_orphaning_deletion_stay_without_their_owner():
    async with collected() as world:
        top = await world.make("top")
        keeper = await world.make("keeper")
        for number in range(30):
            await world.make(f"leaf-{number}", top, keeper)
        await world.delete("top", Propagation.ORPHAN)
        await world.left("keeper", *(f"leaf-{number}" for number in range(30)))
        leaf = await world.maps.get("leaf-7", "default")
        assert [each["name"] for each in leaf["metadata"]["ownerReferences"]] == ["keeper"]


async def test_a_ring_of_owners_does_not_deadlock():
    for propagation in (Propagation.BACKGROUND, Propagation.FOREGROUND):
        async with collected() as world:
            first, second, third = [await world.make(name) for name in ("a", "b", "c")]
            for name, owner in (("a", third), ("b", first), ("c", second)):
                await world.maps.patch(name, {"metadata": {"ownerReferences": [refer(owner)]}}, "default")
            await world.delete("a", propagation)
            await world.left()


async def test_an_owner_that_never_was_is_absent_and_one_of_two_is_enough():
    async with collected() as world:
        keeper = await world.make("keeper")
        ghost = {**keeper, "metadata": {"name": "ghost", "uid": "00000000-0000-0000-0000-000000000001"}}
        await world.make("lost", ghost)
        await world.make("kept", ghost, keeper)
        await world.left("keeper", "kept")

        async def only_the_keeper():
            kept = await world.maps.get("kept", "default")
            return [each["name"] for each in kept["metadata"]["ownerReferences"]] == ["keeper"]

        await eventually(only_the_keeper)


async def test_an_owner_in_another_namespace_counts_as_absent_and_is_reported():
    async with collected() as world:
        await world.context.resource("namespaces").create({"metadata": {"name": "far"}})
        owner = await world.make("owner", namespace="far")
        await world.make("stray", owner)
        await world.left()
        await world.left("owner", namespace="far")
        events = world.context.resource("events")

        async def reported():
            found = [e for e in (await events.list()).items if e["reason"] == "OwnerRefInvalidNamespace"]
            return found and found[0]["involvedObject"]["name"] == "stray"

        await eventually(reported)


async def test_custom_kinds_that_appear_later_are_collected_across_kinds():
    async with collected() as world:
        definitions = world.context.resource("customresourcedefinitions", "apiextensions.k8s.io")
        await definitions.create(WIDGET_DEFINITION)
        widgets = world.context.client.of(WIDGETS)

        async def served():
            return (await widgets.list()).items == []

        await eventually(served)
        widget = await world.make("w", resource=widgets)
        owned = await world.make("of-widget", widget)
        await world.make("below", owned, resource=widgets)
        await widgets.delete("w", "default", propagation=Propagation.FOREGROUND)
        await world.left()

        async def gone():
            return (await widgets.list()).items == []

        await eventually(gone)


async def test_owners_of_the_whole_cluster_keep_namespaced_dependents_and_not_the_other_way_round():
    async with collected() as world:
        nodes = world.context.resource("nodes")
        node = await nodes.create({"metadata": {"name": "n1"}})
        await world.make("of-node", node)
        lone = await world.make("lone")
        await nodes.create({"metadata": {"name": "n2", "ownerReferences": [refer(lone)]}})
        await world.delete("lone")
        await nodes.delete("n1")
        await world.left()
        assert (await nodes.get("n2"))["metadata"]["name"] == "n2"


async def test_what_was_orphaned_or_left_while_no_collector_ran_is_found_at_the_start():
    async with local_server() as server:
        async with running(server, []) as context:
            world = Objects(context)
            top = await world.make("top")
            await world.make("leaf", top)
            orphaning = await world.make("orphaning")
            await world.make("kept", orphaning)
            await world.delete("top")
            await world.delete("orphaning", Propagation.ORPHAN)
        async with running(server, [wiring.add]) as context:
            await Objects(context).left("kept")


async def test_a_crowd_of_dependents_is_gone_quickly():
    async with collected() as world:
        top = await world.make("top")
        for number in range(300):
            await world.make(f"leaf-{number}", top)
        await world.delete("top")
        await world.left()
        try:
            await world.maps.get("leaf-1", "default")
            raise AssertionError("it is still there")
        except NotFound:
            pass
