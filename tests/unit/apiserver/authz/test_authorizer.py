"""RBAC through real requests: decisions, messages of refusals, and that changes apply at once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from authz_people import RBAC, People, binding, role, rule

from shoal.testing.servers import local_server

PODS = "/api/v1/namespaces/default/pods"


@asynccontextmanager
async def in_cluster() -> AsyncIterator[People]:
    async with local_server() as server:
        yield People(server)


async def test_a_refusal_names_user_verb_resource_and_namespace() -> None:
    async with in_cluster() as people:
        refused = (await people.ask("bob", "GET", f"{PODS}/a/log")).json
        assert refused["message"] == (
            'pods "a" is forbidden: User "bob" cannot get resource "pods/log" in API group "" in the namespace "default"'
        )
        assert refused["details"] == {"name": "a", "kind": "pods"} and refused["code"] == 403
        refused = (await people.ask("b<>&", "GET", "/apis/apps/v1/deployments")).json
        assert refused["message"] == (
            'deployments.apps is forbidden: User "b&lt;&gt;&amp;" cannot list resource "deployments" '
            'in API group "apps" at the cluster scope'
        )
        refused = (await people.ask("bob", "GET", "/metrics")).json
        assert refused["message"] == 'forbidden: User "bob" cannot get path "/metrics"'


async def test_an_unknown_resource_is_forbidden_before_it_is_not_found() -> None:
    async with in_cluster() as people:
        assert (await people.ask("bob", "GET", "/apis/example.com/v1/things")).status == 403
        assert (await people.server.call("GET", "/apis/example.com/v1/things")).status == 404


async def test_a_binding_counts_from_its_creation_to_its_deletion() -> None:
    async with in_cluster() as people:

        async def statuses() -> list[int]:
            asked = [PODS, "/api/v1/namespaces/kube-system/pods", "/api/v1/pods", "/api/v1/namespaces/default"]
            return [(await people.ask("bob/devs", "GET", path)).status for path in asked]

        assert await statuses() == [403, 403, 403, 403]
        await people.grant("namespaces/default/rolebindings", binding("b", "view", "group:devs"))
        assert await statuses() == [200, 403, 403, 200]
        await people.server.delete(f"{RBAC}/namespaces/default/rolebindings/b")
        assert await statuses() == [403, 403, 403, 403]
        await people.grant("clusterrolebindings", binding("b", "view", "user:bob"))
        assert await statuses() == [200, 200, 200, 200]


async def test_a_changed_role_counts_at_once() -> None:
    async with in_cluster() as people:
        await people.grant("namespaces/default/roles", role("r", rule("get", "pods")))
        await people.grant("namespaces/default/rolebindings", binding("b", "r", "user:bob", kind="Role"))
        assert (await people.ask("bob", "GET", PODS)).status == 403
        change = {"rules": [rule("get,list", "pods")]}
        await people.server.patch(f"{RBAC}/namespaces/default/roles/r", change)
        assert (await people.ask("bob", "GET", PODS)).status == 200


async def test_a_missing_role_is_named_in_the_refusal() -> None:
    async with in_cluster() as people:
        await people.grant("namespaces/default/rolebindings", binding("a", "gone", "user:bob"))
        refused = (await people.ask("bob", "GET", PODS)).json["message"]
        assert refused.endswith(': RBAC: clusterrole.rbac.authorization.k8s.io "gone" not found')
        await people.grant("namespaces/default/rolebindings", binding("b", "lost", "user:bob", kind="Role"))
        refused = (await people.ask("bob", "GET", PODS)).json["message"]
        assert refused.endswith(
            ': RBAC: [clusterrole.rbac.authorization.k8s.io "gone" not found, '
            'role.rbac.authorization.k8s.io "lost" not found]'
        )


async def test_resource_names_limit_to_objects_and_to_lists_of_one_name() -> None:
    async with in_cluster() as people:
        await people.grant("clusterroles", role("r", rule("get,list,watch", "configmaps", resourceNames=["a"])))
        await people.grant("clusterrolebindings", binding("b", "r", "user:bob"))
        base = "/api/v1/namespaces/default/configmaps"
        for path, allowed in {
            f"{base}/a": True,
            f"{base}/b": False,
            base: False,
            f"{base}?fieldSelector=metadata.name%3Da": True,
            f"{base}?fieldSelector=metadata.name%3Db": False,
            f"{base}?fieldSelector=metadata.name!%3Da": False,
        }.items():
            assert ((await people.ask("bob", "GET", path)).status != 403) is allowed, path
        # a request to delete a collection is never about one name
        answer = await people.ask("bob", "DELETE", f"{base}?fieldSelector=metadata.name%3Da")
        assert answer.status == 403


async def test_an_empty_resource_name_is_not_every_name() -> None:
    async with in_cluster() as people:
        await people.grant("clusterroles", role("r", rule("*", "configmaps", resourceNames=[""])))
        await people.grant("clusterrolebindings", binding("b", "r", "user:bob"))
        assert (await people.ask("bob", "GET", "/api/v1/namespaces/default/configmaps/a")).status == 403
        assert (await people.ask("bob", "GET", "/api/v1/namespaces/default/configmaps")).status == 200


async def test_service_accounts_are_subjects_with_and_without_a_namespace() -> None:
    async with in_cluster() as people:
        await people.grant("namespaces/default/rolebindings", binding("here", "view", "account:robot"))
        there = binding("there", "view", "account:kube-system/robot")
        await people.grant("namespaces/kube-public/rolebindings", there)
        here, other = "system:serviceaccount:default:robot", "system:serviceaccount:kube-system:robot"
        public = "/api/v1/namespaces/kube-public/pods"
        assert [(await people.ask(user, "GET", PODS)).status for user in (here, other)] == [200, 403]
        assert [(await people.ask(user, "GET", public)).status for user in (here, other)] == [403, 200]


async def test_every_authenticated_user_may_use_discovery_and_self_reviews() -> None:
    async with in_cluster() as people:
        for path in ("/api", "/apis", "/apis/apps/v1", "/openapi/v2", "/version", "/healthz"):
            assert (await people.ask("bob", "GET", path)).status == 200, path
        whoami = await people.ask("bob/devs", "POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", {})
        assert whoami.ok()["status"]["userInfo"]["username"] == "bob"
        anonymous = await people.ask("system:anonymous", "GET", "/api")
        assert anonymous.status == 403
        assert (await people.ask("system:anonymous", "GET", "/version")).status == 200
        account = "system:serviceaccount:default:default"
        path = "/.well-known/openid-configuration"
        statuses = [(await people.ask(user, "GET", path)).status for user in (account, "bob")]
        assert statuses[0] != 403 and statuses[1] == 403


async def test_reviews_name_the_binding_that_allows_a_request_or_none() -> None:
    async with in_cluster() as people:
        await people.grant("namespaces/default/rolebindings", binding("b", "view", "group:devs"))

        async def review(kind: str, path: str, spec: dict[str, Any]) -> Any:
            answer = await people.server.post(path, {"kind": kind, "apiVersion": "authorization.k8s.io/v1", **spec})
            return answer["status"]

        asked = {"verb": "get", "resource": "pods", "namespace": "default"}
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        spec = {"spec": {"user": "bob", "groups": ["devs"], "resourceAttributes": asked}}
        reason = 'RBAC: allowed by RoleBinding "b/default" of ClusterRole "view" to Group "devs"'
        assert await review("SubjectAccessReview", path, spec) == {"allowed": True, "reason": reason}
        local = "/apis/authorization.k8s.io/v1/namespaces/default/localsubjectaccessreviews"
        spec["metadata"] = {"namespace": "default"}
        assert (await review("LocalSubjectAccessReview", local, spec))["allowed"] is True
        asked = {**asked, "resource": "secrets", "fieldSelector": {"rawSelector": "a"}}
        asked["labelSelector"] = {"requirements": [{"key": "a", "operator": "Like", "values": ["b"]}]}
        spec = {"spec": {"user": "bob", "groups": ["devs"], "resourceAttributes": asked}}
        assert await review("SubjectAccessReview", path, spec) == {
            "allowed": False,
            "evaluationError": "spec.resourceAttributes.fieldSelector ignored due to parse error; "
            "spec.resourceAttributes.labelSelector ignored due to parse error",
        }


async def test_the_rules_of_a_user_are_listed_as_they_are_in_the_roles() -> None:
    async with in_cluster() as people:
        await people.grant("clusterroles", role("r", rule("get", "pods", resourceNames=["a"])))
        await people.grant("namespaces/default/rolebindings", binding("b", "r", "user:bob"))
        path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
        status = (await people.ask("bob", "POST", path, {"spec": {"namespace": "default"}})).ok()["status"]
        listed = {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["a"]}
        assert listed in status["resourceRules"] and status["incomplete"] is False
        urls = {url for rule in status["nonResourceRules"] for url in rule["nonResourceURLs"]}
        assert {"/api", "/apis/*", "/healthz", "/version/"} <= urls
        elsewhere = (await people.ask("bob", "POST", path, {"spec": {"namespace": "other"}})).ok()["status"]
        assert listed not in elsewhere["resourceRules"]
        masters = (await people.server.post(path, {"spec": {"namespace": "default"}}))["status"]
        assert {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]} in masters["resourceRules"]
        node = await people.ask("system:node:a/system:nodes", "POST", path, {"spec": {"namespace": "default"}})
        assert node.ok()["status"]["incomplete"] is True


async def test_policies_can_ask_the_authorizer() -> None:
    async with in_cluster() as people:
        authorizer = people.server.server.handler.authorizer
        await people.grant("namespaces/default/rolebindings", binding("b", "view", "user:bob"))
        asked = {"verb": "list", "group": "", "resource": "pods", "namespace": "default"}
        allowed, reason, error = authorizer.decide({**asked, "user": {"username": "bob"}})
        assert allowed and reason.startswith("RBAC: allowed by") and not error
        assert authorizer.decide({"verb": "get", "path": "/metrics", "user": {"username": "bob"}})[0] is False
