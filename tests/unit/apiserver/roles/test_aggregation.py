"""An aggregated ClusterRole has the rules of all roles that its selectors match."""

from __future__ import annotations

from typing import Any

from authz_people import RBAC, People, binding, role, rule

from shoal.apiserver.roles.aggregation import Aggregation
from shoal.base.metrics import PROCESS
from shoal.base.supervision import define_loop_metrics
from shoal.testing.servers import LocalServer, local_server

LABEL = "rbac.authorization.k8s.io/aggregate-to-view"
WIDGETS = rule("get,list", "widgets", "example.com")


def restarts() -> float:
    return dict(define_loop_metrics(PROCESS).values()).get(("aggregation",), 0.0)


async def rules_of(server: LocalServer, name: str) -> list[dict[str, Any]]:
    found = await server.get(f"{RBAC}/clusterroles/{name}")
    return list(found["rules"])


async def test_the_rules_of_a_labelled_role_are_aggregated_and_go_with_it() -> None:
    async with local_server() as server:
        people = People(server)
        await people.grant("namespaces/default/rolebindings", binding("b", "admin", "user:ann"))
        await people.grant("clusterroles", role("widgets", WIDGETS, metadata={"labels": {LABEL: "true"}}))
        await server.server.aggregation.idle.wait()
        for name in ("view", "edit", "admin"):
            assert WIDGETS in await rules_of(server, name), name
        path = "/apis/example.com/v1/namespaces/default/widgets"
        assert (await people.ask("ann", "GET", path)).status == 404  # allowed, and not there
        await server.delete(f"{RBAC}/clusterroles/widgets")
        await server.server.aggregation.idle.wait()
        for name in ("view", "edit", "admin"):
            assert WIDGETS not in await rules_of(server, name), name
        role_ = await server.get(f"{RBAC}/clusterroles/view")
        assert any(e["manager"] == "clusterrole-aggregation-controller" for e in role_["metadata"]["managedFields"])


async def test_aggregation_writes_nothing_when_no_role_changed() -> None:
    async with local_server() as server:
        await server.server.aggregation.idle.wait()
        before = server.store.revision
        await server.server.aggregation.gather()
        assert server.store.revision == before


async def test_two_servers_that_aggregate_write_each_role_once() -> None:
    async with local_server() as server:
        await server.server.aggregation.idle.wait()
        other = Aggregation(server.server.core, server.server.writer)
        other.start()
        await other.idle.wait()
        before, failures = server.store.revision, restarts()
        widgets = role("widgets", WIDGETS, metadata={"labels": {LABEL: "true"}})
        await People(server).grant("clusterroles", widgets)
        await server.server.aggregation.idle.wait()
        await other.idle.wait()
        await other.stop()
        assert WIDGETS in await rules_of(server, "admin")
        assert server.store.revision == before + 4  # the new role, view, edit, admin
        assert restarts() == failures, "the one that comes second tries again, and its loop does not fail"
