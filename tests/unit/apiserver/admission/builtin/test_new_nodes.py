"""TaintNodesByCondition: the taint of a new node."""

from __future__ import annotations

from shoal.testing.servers import local_server

TAINT = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}


async def test_a_new_node_has_the_taint_not_ready_once_beside_its_own() -> None:
    async with local_server() as server:
        bare = await server.post("/api/v1/nodes", {"metadata": {"name": "bare"}})
        assert bare["spec"]["taints"] == [TAINT]
        other = {"key": "dedicated", "value": "db", "effect": "NoSchedule"}
        own = await server.post("/api/v1/nodes", {"metadata": {"name": "own"}, "spec": {"taints": [other, TAINT]}})
        assert own["spec"]["taints"] == [other, TAINT]


async def test_an_update_may_take_the_taint_away() -> None:
    async with local_server() as server:
        await server.post("/api/v1/nodes", {"metadata": {"name": "a"}})
        changed = await server.patch("/api/v1/nodes/a", {"spec": {"taints": None}})
        assert changed["spec"] == {}
