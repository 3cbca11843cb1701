"""What joining applies, by an API server: joining again repairs what was changed meanwhile."""

from __future__ import annotations

from typing import Any

from shoal.apiserver.inprocess import InProcessTransport
from shoal.app.joining.manifests import KRANE, NAMESPACE, AgentPlan, manifests
from shoal.app.joining.service import ACCOUNT, apply_all
from shoal.base.clock import RealClock
from shoal.client import Client
from shoal.testing.servers import ADMIN, local_server

DEPLOYMENT = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{KRANE}"
OWN_ACCOUNT = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{KRANE}"


async def test_pods_are_replaced_when_their_account_was_made_again_and_not_otherwise() -> None:
    plan = AgentPlan(image="registry.example/shoal:1", krane={"url": "https://fleet.example"}, sharding=False)
    async with local_server() as server:
        client = Client(InProcessTransport(server.server.handler, ADMIN), clock=RealClock())

        async def joined() -> Any:
            await apply_all(client, manifests(plan))
            return await server.get(DEPLOYMENT)

        await server.post("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        await server.post(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts", {"metadata": {"name": KRANE}})
        first, again = await joined(), await joined()
        assert first["metadata"]["generation"] == again["metadata"]["generation"]
        await server.delete(OWN_ACCOUNT)
        after = await joined()
        uid = (await server.get(OWN_ACCOUNT))["metadata"]["uid"]
        assert after["spec"]["template"]["metadata"]["annotations"][ACCOUNT] == uid
        assert after["metadata"]["generation"] == first["metadata"]["generation"] + 1
