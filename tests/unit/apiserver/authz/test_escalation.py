"""Users can grant only permissions that they have: roles, bindings, aggregation; by every kind of write."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
from authz_people import RBAC, People, binding, role, rule

from shoal.testing.servers import PATCHES, local_server

ROLES = f"{RBAC}/namespaces/default/roles"
BINDINGS = f"{RBAC}/namespaces/default/rolebindings"
SECRETS = rule("get,list", "secrets")


@asynccontextmanager
async def an_admin_of_a_namespace() -> AsyncIterator[People]:
    """``ann`` administrates the namespace ``default``."""

    async with local_server() as server:
        people = People(server)
        await people.grant("namespaces/default/rolebindings", binding("ann", "admin", "user:ann"))
        yield people


async def test_a_namespace_admin_gives_what_they_have_and_no_more() -> None:
    async with an_admin_of_a_namespace() as people:
        assert (await people.ask("ann", "POST", ROLES, role("fine", SECRETS))).status == 201
        refused = await people.ask("ann", "POST", ROLES, role("more", SECRETS, rule("get,list,patch", "nodes")))
        assert refused.status == 403
        assert refused.json["message"] == (
            'roles.rbac.authorization.k8s.io "more" is forbidden: user "ann" (groups=["system:authenticated"]) is '
            "attempting to grant RBAC permissions not currently held:\n"
            '{APIGroups:[""], Resources:["nodes"], Verbs:["get" "list" "patch"]}'
        )
        details = {"name": "more", "group": "rbac.authorization.k8s.io", "kind": "roles"}
        assert refused.json["details"] == details


async def test_every_way_of_writing_a_role_is_checked() -> None:
    async with an_admin_of_a_namespace() as people:
        await people.grant("namespaces/default/roles", role("r", SECRETS))
        more = [SECRETS, rule("get", "nodes")]
        base = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "r"}}
        writes: list[tuple[str, str, Any, str]] = [
            ("PUT", f"{ROLES}/r", {**base, "rules": more}, "application/json"),
            ("PUT", f"{ROLES}/new", {**base, "metadata": {"name": "new"}, "rules": more}, "application/json"),
            ("PATCH", f"{ROLES}/r", {"rules": more}, PATCHES["merge"]),
            ("PATCH", f"{ROLES}/r", {"rules": more}, PATCHES["strategic"]),
            ("PATCH", f"{ROLES}/r", [{"op": "add", "path": "/rules/-", "value": more[1]}], PATCHES["json"]),
            ("PATCH", f"{ROLES}/r?fieldManager=a&force=true", {**base, "rules": more}, PATCHES["apply"]),
            ("PATCH", f"{ROLES}/new?fieldManager=a",
             {**base, "metadata": {"name": "new"}, "rules": more}, PATCHES["apply"]),
        ]  # fmt: skip
        for method, path, body, media in writes:
            refused = await people.ask("ann", method, path, orjson.dumps(body), **{"content-type": media})
            assert refused.status == 403 and "not currently held" in refused.json["message"], (method, path, media)
        assert (await people.server.get(f"{ROLES}/r"))["rules"] == [SECRETS]
        assert (await people.server.call("GET", f"{ROLES}/new")).status == 404


async def test_bookkeeping_on_a_larger_role_is_not_giving_it_away() -> None:
    async with an_admin_of_a_namespace() as people:
        await people.grant("namespaces/default/roles", role("large", rule("*", "nodes")))
        finalizer = {"metadata": {"finalizers": ["example.com/a"]}}
        headers = {"content-type": PATCHES["merge"]}
        assert (await people.ask("ann", "PATCH", f"{ROLES}/large", finalizer, **headers)).status == 200
        label = {"metadata": {"labels": {"a": "b"}}}
        assert (await people.ask("ann", "PATCH", f"{ROLES}/large", label, **headers)).status == 403


async def test_binding_a_larger_role_is_refused_unless_one_may_bind_it() -> None:
    async with an_admin_of_a_namespace() as people:
        assert (await people.ask("ann", "POST", BINDINGS, binding("fine", "edit", "user:eve"))).status == 201
        refused = await people.ask("ann", "POST", BINDINGS, binding("all", "cluster-admin", "user:ann"))
        assert refused.json["message"] == (
            'rolebindings.rbac.authorization.k8s.io "all" is forbidden: user "ann" (groups=["system:authenticated"]) '
            "is attempting to grant RBAC permissions not currently held:\n"
            '{APIGroups:["*"], Resources:["*"], Verbs:["*"]}\n'
            '{NonResourceURLs:["*"], Verbs:["*"]}'
        )
        gone = await people.ask("ann", "POST", BINDINGS, binding("none", "gone", "user:ann"))
        assert gone.status == 404
        assert gone.json["message"] == 'clusterroles.rbac.authorization.k8s.io "gone" not found'
        may_bind = rule("bind", "clusterroles", "rbac.authorization.k8s.io", resourceNames=["cluster-admin"])
        await people.grant("namespaces/default/roles", role("binder", may_bind))
        await people.grant("namespaces/default/rolebindings", binding("binder", "binder", "user:ann", kind="Role"))
        assert (await people.ask("ann", "POST", BINDINGS, binding("all", "cluster-admin", "user:ann"))).status == 201


async def test_cluster_roles_need_the_rights_cluster_wide_or_to_escalate() -> None:
    async with an_admin_of_a_namespace() as people:
        writer = rule("create,update,patch", "clusterroles", "rbac.authorization.k8s.io")
        await people.grant("clusterroles", role("writer", writer))
        await people.grant("clusterrolebindings", binding("writer", "writer", "user:ann"))
        path = f"{RBAC}/clusterroles"
        # what ann may read in one namespace she may not let others read everywhere
        assert (await people.ask("ann", "POST", path, role("readers", SECRETS))).status == 403
        escalate = rule("escalate", "clusterroles", "rbac.authorization.k8s.io")
        await people.grant("clusterroles", role("escalator", escalate))
        await people.grant("clusterrolebindings", binding("escalator", "escalator", "user:ann"))
        assert (await people.ask("ann", "POST", path, role("readers", SECRETS))).status == 201


async def test_aggregation_needs_all_rights() -> None:
    async with an_admin_of_a_namespace() as people:
        writer = rule("create,update,patch", "clusterroles", "rbac.authorization.k8s.io")
        await people.grant("clusterroles", role("writer", writer))
        await people.grant("clusterrolebindings", binding("writer", "writer", "user:ann"))
        gathers = {"clusterRoleSelectors": [{"matchLabels": {"any": "thing"}}]}
        path = f"{RBAC}/clusterroles"
        refused = await people.ask("ann", "POST", path, role("all", aggregationRule=gathers))
        assert refused.json["message"] == (
            'clusterroles.rbac.authorization.k8s.io "all" is forbidden: '
            "must have cluster-admin privileges to use the aggregationRule"
        )
        stop = await people.ask("ann", "PATCH", f"{path}/view", {"aggregationRule": None}, **{
            "content-type": PATCHES["merge"],
        })  # fmt: skip
        assert stop.status == 403


async def test_the_role_of_a_binding_cannot_be_changed() -> None:
    async with an_admin_of_a_namespace() as people:
        await people.grant("namespaces/default/rolebindings", binding("b", "view", "user:eve"))
        change = {"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"}}
        refused = await people.server.call("PATCH", f"{BINDINGS}/b", change, {"content-type": PATCHES["merge"]})
        assert refused.status == 422 and "roleRef: Invalid value" in refused.json["message"]
