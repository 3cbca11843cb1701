"""Deleting namespaces with the controller, on an API server that does not empty them itself."""

from __future__ import annotations

from contextlib import asynccontextmanager

from shoal.apiserver.context import ServerConfig
from shoal.controllers.namespace import wiring
from shoal.errors import NotFound
from shoal.testing.controllers import running
from shoal.testing.servers import local_server
from shoal.testing.waiting import eventually

POD = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}], "nodeName": "n"}}


@asynccontextmanager
async def emptied():
    config = ServerConfig(ca_certificate="test CA", empties_namespaces=False)
    async with local_server(config=config) as server:
        async with running(server, [wiring.add]) as context:
            yield context


async def absent(resource, name, namespace=""):
    try:
        await resource.get(name, namespace)
    except NotFound:
        return True
    return False


async def test_a_namespace_goes_with_all_that_is_in_it():
    async with emptied() as context:
        namespaces, maps = context.resource("namespaces"), context.resource("configmaps")
        await namespaces.create({"metadata": {"name": "n"}})
        for number in range(20):
            await maps.create({"metadata": {"name": f"m{number}"}}, "n")
        await context.resource("roles", "rbac.authorization.k8s.io").create({"metadata": {"name": "r"}}, "n")
        await namespaces.delete("n")
        await eventually(lambda: absent(namespaces, "n"))
        await namespaces.create({"metadata": {"name": "n"}})
        assert await absent(maps, "m1", "n")


async def test_pods_are_deleted_first_and_the_status_shows_what_is_left():
    async with emptied() as context:
        namespaces, maps, pods = (context.resource(each) for each in ("namespaces", "configmaps", "pods"))
        await namespaces.create({"metadata": {"name": "n"}})
        await maps.create({"metadata": {"name": "needed"}}, "n")
        await pods.create(POD, "n")
        await namespaces.delete("n")

        async def waits():
            conditions = (await namespaces.get("n"))["status"].get("conditions") or ()
            return any("pods. has 1 resource instances" in each["message"] for each in conditions)

        await eventually(waits)
        assert not await absent(maps, "needed", "n")
        await pods.delete("p", "n", grace_period_s=0)
        await eventually(lambda: absent(namespaces, "n"))


async def test_objects_with_finalizers_hold_the_namespace_until_they_are_let_go():
    async with emptied() as context:
        namespaces, maps = context.resource("namespaces"), context.resource("configmaps")
        await namespaces.create({"metadata": {"name": "n"}})
        await maps.create({"metadata": {"name": "held", "finalizers": ["example.io/hold"]}}, "n")
        await namespaces.delete("n")

        async def reported():
            conditions = (await namespaces.get("n"))["status"].get("conditions") or ()
            return any("example.io/hold in 1 resource instances" in each["message"] for each in conditions)

        await eventually(reported)
        await maps.patch("held", {"metadata": {"finalizers": None}}, "n")
        await eventually(lambda: absent(namespaces, "n"))
