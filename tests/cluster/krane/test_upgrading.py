"""An agent changes the Deployments of its cluster's agents with the rights that joining gives it, and none else."""

from __future__ import annotations

from typing import Any

import pytest
from krane_world import world

from shoal.apiserver.inprocess import InProcessTransport
from shoal.apiserver.user import User
from shoal.app.joining.manifests import EDGE, KRANE, NAMESPACE, AgentPlan, manifests
from shoal.base.clock import RealClock
from shoal.client import Client, Scope
from shoal.errors import Forbidden
from shoal.krane.config import OWN_IMAGE
from shoal.krane.upgrade import DeploymentUpgrade
from shoal.testing.waiting import eventually

OLD, NEW = "registry.example.com/shoal:1", "registry.example.com/shoal:2"
JOIN = {"url": "https://control.example.com", "token": "t"}


async def test_the_deployments_of_a_joined_cluster_get_the_image_one_after_the_other() -> None:
    plan = AgentPlan(image=OLD, krane=JOIN, edge=JOIN, namespaces=("shop",))
    made = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}, *manifests(plan)]
    async with world(manifests=made, observe=False) as w:
        user = f"system:serviceaccount:{NAMESPACE}:{KRANE}"
        client = Client(InProcessTransport(w.server.server.handler, User(user)), clock=RealClock())

        async def images() -> dict[str, list[str]]:
            found: dict[str, list[str]] = {}
            for name in (KRANE, EDGE):
                deployment: Any = await w.get("deployments", "apps", name, NAMESPACE)
                (container,) = deployment["spec"]["template"]["spec"]["containers"]
                own = [each["value"] for each in container["env"] if each["name"] == OWN_IMAGE]
                found[name] = [container["image"], *own]
            return found

        def agent(running: str) -> DeploymentUpgrade:
            return DeploymentUpgrade(client, NAMESPACE, KRANE, (EDGE,), running, clock=RealClock())

        async def done(upgrade: DeploymentUpgrade) -> bool:
            await upgrade.follow(NEW)
            state = upgrade.state()
            assert not state.error
            return not state.waiting

        await eventually(lambda: done(agent(OLD)))
        assert await images() == {KRANE: [NEW, NEW], EDGE: [OLD]}, "the edge waits for an agent that runs the image"
        await eventually(lambda: done(agent(NEW)))
        assert await images() == {KRANE: [NEW, NEW], EDGE: [NEW]}
        assert (await client.resource("", "v1", "pods").list(Scope(namespace=NAMESPACE))).items is not None
        with pytest.raises(Forbidden):
            await client.resource("apps", "v1", "deployments").patch("other", {"spec": {}}, NAMESPACE)
