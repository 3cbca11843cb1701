"""The default roles and bindings are restored when a server starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from authz_people import RBAC, role, rule

from shoal.apiserver.roles.bootstrap import reconciled
from shoal.testing.servers import LocalServer, local_server

WIDGETS = rule("get,list", "widgets", "example.com")


async def rules_of(server: LocalServer, name: str) -> list[dict[str, Any]]:
    found = await server.get(f"{RBAC}/clusterroles/{name}")
    return list(found["rules"])


async def test_a_server_restores_default_roles_and_bindings_when_it_starts(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'cluster.db'}"

    async with local_server(url) as server:
        await server.patch(f"{RBAC}/clusterroles/system:basic-user", {"rules": [WIDGETS]})
        protected = {"metadata": {"annotations": {"rbac.authorization.kubernetes.io/autoupdate": "false"}}}
        await server.patch(f"{RBAC}/clusterroles/system:discovery", {"rules": [], **protected})
        await server.patch(f"{RBAC}/clusterrolebindings/system:basic-user", {"subjects": []})
        await server.delete(f"{RBAC}/clusterroles/view")
    async with local_server(url) as server:
        basic = await rules_of(server, "system:basic-user")
        assert WIDGETS in basic and len(basic) > 1
        assert not (await server.get(f"{RBAC}/clusterroles/system:discovery")).get("rules")
        subjects = (await server.get(f"{RBAC}/clusterrolebindings/system:basic-user"))["subjects"]
        assert [subject["name"] for subject in subjects] == ["system:authenticated"]
        assert len(await rules_of(server, "view")) > 5
        await server.server.aggregation.idle.wait()
        revision = server.store.revision
    async with local_server(url) as server:
        await server.server.aggregation.idle.wait()
        assert server.store.revision == revision  # nothing was missing


def test_missing_rules_are_added_and_additions_of_users_stay() -> None:
    stored = role("r", rule("get", "pods"), WIDGETS, metadata={"labels": {"mine": "1"}})
    wanted = role("r", rule("get,list", "pods"), metadata={"labels": {"default": "1"}})
    new = reconciled(stored, wanted)
    assert new is not None
    assert new["rules"] == [rule("get", "pods"), WIDGETS, rule("list", "pods")]
    assert new["metadata"]["labels"] == {"default": "1", "mine": "1"}
    assert reconciled(new, wanted) is None
