"""Roles that gather others follow them; default roles come back when a server starts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from authz_people import RBAC, People, binding, role, rule

from shoal.apiserver.authz.aggregation import Aggregation
from shoal.apiserver.authz.bootstrap import reconciled
from shoal.testing.servers import LocalServer, local_server

LABEL = "rbac.authorization.k8s.io/aggregate-to-view"
WIDGETS = rule("get,list", "widgets", "example.com")


def rules_of(server: LocalServer, name: str) -> Callable[[], Any]:
    async def get() -> Any:
        return (await server.get(f"{RBAC}/clusterroles/{name}"))["rules"]

    return get


async def test_what_a_labelled_role_allows_is_soon_in_all_roles_that_gather_it() -> None:
    async with local_server() as server:
        people = People(server)
        await people.grant("namespaces/default/rolebindings", binding("b", "admin", "user:ann"))
        await people.grant("clusterroles", role("widgets", WIDGETS, metadata={"labels": {LABEL: "true"}}))
        await server.server.aggregation.idle.wait()
        for name in ("view", "edit", "admin"):
            assert WIDGETS in await rules_of(server, name)(), name
        path = "/apis/example.com/v1/namespaces/default/widgets"
        assert (await people.ask("ann", "GET", path)).status == 404  # allowed, and not there
        await server.delete(f"{RBAC}/clusterroles/widgets")
        await server.server.aggregation.idle.wait()
        for name in ("view", "edit", "admin"):
            assert WIDGETS not in await rules_of(server, name)(), name
        role_ = await server.get(f"{RBAC}/clusterroles/view")
        assert any(e["manager"] == "clusterrole-aggregation-controller" for e in role_["metadata"]["managedFields"])


async def test_a_cluster_at_rest_writes_no_roles() -> None:
    async with local_server() as server:
        await server.server.aggregation.idle.wait()
        before = server.store.revision
        await server.server.aggregation.gather()
        assert server.store.revision == before


async def test_servers_that_gather_at_the_same_time_write_once() -> None:
    async with local_server() as server:
        await server.server.aggregation.idle.wait()
        other = Aggregation(server.server.core, server.server.writer)
        other.start()
        await other.idle.wait()
        before = server.store.revision
        widgets = role("widgets", WIDGETS, metadata={"labels": {LABEL: "true"}})
        await People(server).grant("clusterroles", widgets)
        await server.server.aggregation.idle.wait()
        await other.idle.wait()
        await other.stop()
        assert WIDGETS in await rules_of(server, "admin")()
        assert server.store.revision == before + 4  # the new role, view, edit, admin


async def test_default_roles_get_back_what_they_lost_when_a_server_starts(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'cluster.db'}"

    async with local_server(url) as server:
        await server.patch(f"{RBAC}/clusterroles/system:basic-user", {"rules": [WIDGETS]})
        protected = {"metadata": {"annotations": {"rbac.authorization.kubernetes.io/autoupdate": "false"}}}
        await server.patch(f"{RBAC}/clusterroles/system:discovery", {"rules": [], **protected})
        await server.patch(f"{RBAC}/clusterrolebindings/system:basic-user", {"subjects": []})
        await server.delete(f"{RBAC}/clusterroles/view")
    async with local_server(url) as server:
        basic = await rules_of(server, "system:basic-user")()
        assert WIDGETS in basic and len(basic) > 1
        assert not (await server.get(f"{RBAC}/clusterroles/system:discovery")).get("rules")
        subjects = (await server.get(f"{RBAC}/clusterrolebindings/system:basic-user"))["subjects"]
        assert [subject["name"] for subject in subjects] == ["system:authenticated"]
        assert len(await rules_of(server, "view")()) > 5
        revision = server.store.revision
    async with local_server(url) as server:
        await server.server.aggregation.idle.wait()
        assert server.store.revision == revision  # nothing to put right


def test_a_missing_part_of_a_rule_is_added_and_what_users_added_stays() -> None:
    stored = role("r", rule("get", "pods"), WIDGETS, metadata={"labels": {"mine": "1"}})
    wanted = role("r", rule("get,list", "pods"), metadata={"labels": {"default": "1"}})
    new = reconciled(stored, wanted)
    assert new is not None
    assert new["rules"] == [rule("get", "pods"), WIDGETS, rule("list", "pods")]
    assert new["metadata"]["labels"] == {"default": "1", "mine": "1"}
    assert reconciled(new, wanted) is None
