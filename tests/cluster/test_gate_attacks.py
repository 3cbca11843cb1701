"""Attacks on authorization that worked once: paths, verbs and bodies that ask for one thing and do another."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from shoal.kube.objects import Obj
from shoal.testing.servers import PATCHES, LocalServer, ServerAnswer, local_server
from shoal.testing.waiting import eventually

PODS = "/api/v1/namespaces/default/pods"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
SPEC = {"containers": [{"name": "c", "image": "i"}]}


async def grant(server: LocalServer, user: str, *rules: Obj, namespace: str = "") -> None:
    """A role with these rules for a user, in a namespace or everywhere."""
    place, kind = (f"namespaces/{namespace}/", "Role") if namespace else ("", "ClusterRole")
    prefix = "" if namespace else "cluster"
    await server.post(f"{RBAC}/{place}{prefix}roles", {"metadata": {"name": user}, "rules": list(rules)})
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": user}
    binding = {"metadata": {"name": user}, "roleRef": reference, "subjects": [{"kind": "User", "name": user}]}
    await server.post(f"{RBAC}/{place}{prefix}rolebindings", binding)


def rule(verbs: str, resources: str, group: str = "", names: str = "") -> Obj:
    made: Obj = {"verbs": verbs.split(","), "apiGroups": [group], "resources": resources.split(",")}
    return made | ({"resourceNames": names.split(",")} if names else {})


async def ask(
    server: LocalServer, user: str, method: str, target: str, body: Any = None, kind: str = "application/json"
) -> ServerAnswer:
    return await server.call(method, target, body, {"impersonate-user": user, "content-type": PATCHES.get(kind, kind)})


async def define(server: LocalServer, plural: str, kind: str) -> str:
    """A namespaced custom resource with a status; the path of its collection in a namespace, to be filled in."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1", "served": True, "storage": True, "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": schema},
    }  # fmt: skip
    names = {"plural": plural, "kind": kind}
    spec = {"group": "x.io", "scope": "Namespaced", "names": names, "versions": [version]}
    await server.post(DEFINITIONS, {"metadata": {"name": f"{plural}.x.io"}, "spec": spec})
    await eventually(lambda: server.call("GET", f"/apis/x.io/v1/{plural}"), until=lambda answer: answer.status == 200)
    return f"/apis/x.io/v1/namespaces/{{}}/{plural}"


# -- verbs that do another verb's work -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("resource", "method", "query", "kind"),
    [("endpoints", "PUT", "", "application/json"), ("configmaps", "PATCH", "?fieldManager=f", "apply")],
)
async def test_a_write_that_creates_needs_the_right_to_create(
    resource: str, method: str, query: str, kind: str
) -> None:
    async with local_server() as server:
        await grant(server, "writer", rule("get,update,patch", resource), namespace="default")
        body = {"apiVersion": "v1", "kind": {"endpoints": "Endpoints"}.get(resource, "ConfigMap")}
        body |= {"metadata": {"name": "a", "labels": {"k": "v"}}}
        path = f"/api/v1/namespaces/default/{resource}"
        refused = await ask(server, "writer", method, f"{path}/a{query}", body, kind)
        assert refused.status == 403
        assert refused.json["message"] == (
            f'{resource} "a" is forbidden: User "writer" cannot create resource "{resource}" in API group "" '
            'in the namespace "default"'
        )
        await server.post(path, {**body, "metadata": {"name": "a"}})
        assert (await ask(server, "writer", method, f"{path}/a{query}", body, kind)).status == 200
        await grant(server, "creator", rule("create,update,patch", resource), namespace="default")
        body["metadata"]["name"] = "b"
        assert (await ask(server, "creator", method, f"{path}/b{query}", body, kind)).status == 201


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
async def test_a_subresource_of_nothing_is_not_the_collection(method: str) -> None:
    async with local_server() as server:
        await grant(server, "u", rule("*", "pods/status"), namespace="default")
        await server.post(PODS, {"metadata": {"name": "a"}, "spec": SPEC})
        answer = await ask(server, "u", method, f"{PODS}//status", {"metadata": {"name": "b"}, "spec": SPEC})
        assert answer.status in (403, 404)
        assert [pod["metadata"]["name"] for pod in (await server.get(PODS))["items"]] == ["a"]


@pytest.mark.parametrize("path", ["/api/v1/namespaces//pods", "/apis//v1/pods", "/api/v1/namespaces//configmaps"])
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
async def test_a_path_with_an_empty_part_names_nothing(method: str, path: str) -> None:
    async with local_server() as server:
        assert (await server.call(method, path, {"metadata": {"name": "a"}})).status == 404


async def test_the_watch_prefix_is_for_watching_objects_alone() -> None:
    async with local_server() as server:
        await server.post(PODS, {"metadata": {"name": "a"}, "spec": SPEC})
        watched = "/api/v1/watch/namespaces/default/pods"
        assert (await server.call("DELETE", watched)).status == 405
        assert (await server.call("DELETE", f"{watched}/a")).status == 405
        assert (await server.call("POST", watched, {"metadata": {"name": "b"}, "spec": SPEC})).status == 405
        assert (await server.call("GET", f"{watched}/a/status")).status == 404
        assert [pod["metadata"]["name"] for pod in (await server.get(PODS))["items"]] == ["a"]


async def test_objects_of_a_kind_called_namespaces_are_judged_by_the_namespace_they_are_in() -> None:
    async with local_server() as server:
        collection = await define(server, "namespaces", "Space")
        for name in ("mine", "theirs"):
            await server.post("/api/v1/namespaces", {"metadata": {"name": name}})
        await grant(server, "u", rule("*", "namespaces", "x.io"), namespace="mine")
        body = {"apiVersion": "x.io/v1", "kind": "Space", "metadata": {"name": "mine"}}
        await server.post(collection.format("theirs"), body)
        assert (await ask(server, "u", "GET", f"{collection.format('theirs')}/mine")).status == 403
        assert (await ask(server, "u", "DELETE", f"{collection.format('theirs')}/mine")).status == 403
        assert (await ask(server, "u", "POST", collection.format("mine"), body)).status == 201


async def test_the_right_to_list_one_namespace_allows_a_list_of_that_name() -> None:
    async with local_server() as server:
        await grant(server, "u", rule("list", "namespaces", names="default"))
        found = await ask(server, "u", "GET", "/api/v1/namespaces?fieldSelector=metadata.name%3Ddefault")
        assert [item["metadata"]["name"] for item in found.ok()["items"]] == ["default"]
        assert (await ask(server, "u", "GET", "/api/v1/namespaces")).status == 403


# -- writes that reach further than their path ---------------------------------------------------------------------------


@pytest.mark.parametrize("subresource", ["ephemeralcontainers", "resize"])
async def test_a_slice_of_a_pod_leaves_its_metadata_alone(subresource: str) -> None:
    async with local_server() as server:
        await server.post(PODS, {"metadata": {"name": "a", "labels": {"app": "own"}}, "spec": SPEC})
        change = {"metadata": {"labels": {"app": "taken"}, "annotations": {"a": "b"}, "finalizers": ["x.io/stay"]}}
        changed = await server.patch(f"{PODS}/a/{subresource}", change)
        assert changed["metadata"]["labels"] == {"app": "own"}
        assert "annotations" not in changed["metadata"] and "finalizers" not in changed["metadata"]


async def test_a_policy_cannot_write_what_only_the_server_or_another_path_says() -> None:
    forged = (
        '[JSONPatch{op: "add", path: "/metadata/deletionTimestamp", value: "2020-01-01T00:00:00Z"},'
        ' JSONPatch{op: "add", path: "/metadata/generation", value: 99},'
        ' JSONPatch{op: "add", path: "/metadata/managedFields", value: [{"manager": "forged"}]},'
        ' JSONPatch{op: "add", path: "/status", value: {"forged": true}},'
        ' JSONPatch{op: "add", path: "/spec", value: {"by": "policy"}}]'
    )

    async with local_server() as server:
        collection = (await define(server, "things", "Thing")).format("default")
        body = {"apiVersion": "x.io/v1", "kind": "Thing", "metadata": {"name": "old"}, "spec": {"by": "hand"}}
        await server.post(collection, body)
        resources = {
            "apiGroups": ["x.io"], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"],
            "resources": ["things", "things/status"],
        }  # fmt: skip
        spec = {
            "matchConstraints": {"resourceRules": [resources]}, "reinvocationPolicy": "Never",
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": forged}}],
        }  # fmt: skip
        await server.post(f"{ADMISSION}/mutatingadmissionpolicies", {"metadata": {"name": "m"}, "spec": spec})
        bound = {"metadata": {"name": "m"}, "spec": {"policyName": "m"}}
        await server.post(f"{ADMISSION}/mutatingadmissionpolicybindings", bound)

        made = await server.post(collection, {**body, "metadata": {"name": "new"}})
        assert made["spec"] == {"by": "policy"} and "status" not in made
        assert "deletionTimestamp" not in made["metadata"] and made["metadata"]["generation"] == 1
        assert [entry["manager"] for entry in made["metadata"]["managedFields"]] == ["test"]

        changed = await server.patch(f"{collection}/old", {"metadata": {"labels": {"a": "b"}}})
        assert changed["spec"] == {"by": "policy"} and "status" not in changed
        assert "deletionTimestamp" not in changed["metadata"] and changed["metadata"]["generation"] == 2

        await server.delete(f"{ADMISSION}/mutatingadmissionpolicybindings/m")
        restored = await server.patch(f"{collection}/old", {"spec": {"by": "hand"}})
        await server.post(f"{ADMISSION}/mutatingadmissionpolicybindings", bound)
        status = await server.patch(f"{collection}/old/status", {"status": {"asked": True}})
        assert status["spec"] == restored["spec"] == {"by": "hand"}
        assert status["status"] == {"forged": True}  # a policy may change what the path is about


# -- what costs more than it should --------------------------------------------------------------------------------------


async def test_an_administrator_of_a_namespace_cannot_hold_up_the_server_with_a_role() -> None:
    async with local_server() as server:
        await grant(server, "u", rule("create", "roles", "rbac.authorization.k8s.io"), namespace="default")
        many = [f"x{number}" for number in range(300)]
        role = {"metadata": {"name": "r"}, "rules": [{"verbs": many, "apiGroups": many, "resources": many}]}
        async with asyncio.timeout(30):
            answer = await ask(server, "u", "POST", f"{RBAC}/namespaces/default/roles", role)
        assert answer.status == 403 and "not currently held" in answer.json["message"]


async def test_the_answer_to_a_thousand_faults_is_not_a_thousand_times_as_large() -> None:
    async with local_server() as server:
        labels = {f"!{number}": "!" for number in range(10_000)}
        body = {"metadata": {"name": "a", "labels": labels}}
        answer = await server.call("POST", "/api/v1/namespaces/default/configmaps", body)
        assert answer.status == 422 and len(answer.body) < 200_000
        assert len(answer.json["details"]["causes"]) == 250 and "and 19750 more]" in answer.json["message"]


async def kept_bytes(act: Callable[[int], Awaitable[None]], times: int) -> int:
    """Memory that is still allocated after ``act`` was called ``times`` times. A first call is not counted."""
    await act(0)
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(1, times + 1):
            await act(number)
        gc.collect()
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


async def test_paths_longer_than_any_name_are_not_kept_in_memory() -> None:
    async with local_server() as server:
        await grant(server, "u", rule("get", "pods"), namespace="default")

        async def ask_for_long_paths(number: int) -> None:
            long = f"{number}" + "a" * 50_000
            for target in (f"/long/{long}", f"{PODS}/{long}", f"/apis/{long}/v1/pods/p"):
                assert (await ask(server, "u", "GET", target)).status == 404

        assert await kept_bytes(ask_for_long_paths, times=20) < 500_000, "of 3 MB of paths"


@pytest.mark.parametrize(
    ("plural", "group", "version"),
    [
        ("clusterroles", "rbac.authorization.k8s.io", "v1"),
        ("roles", "rbac.authorization.k8s.io", "v2"),
        ("leases", "coordination.k8s.io", "v1"),
    ],
)
async def test_a_definition_cannot_replace_a_built_in_resource(plural: str, group: str, version: str) -> None:
    async with local_server() as server:
        name = f"{plural}.{group}"
        schema = {"openAPIV3Schema": {"type": "object"}}
        spec = {
            "group": group, "scope": "Namespaced", "names": {"plural": plural, "kind": "Mine"},
            "versions": [{"name": version, "served": True, "storage": True, "schema": schema}],
        }  # fmt: skip
        approved = {"api-approved.kubernetes.io": "https://github.com/kubernetes/kubernetes/pull/1"}
        body = {"metadata": {"name": name, "annotations": approved}, "spec": spec}
        answer = await server.call("POST", DEFINITIONS, body)
        assert answer.status == 422 and "built-in" in answer.json["message"]
        assert (await server.call("DELETE", f"{DEFINITIONS}/{name}")).status == 404
        assert len((await server.get(f"{RBAC}/clusterroles"))["items"]) > 10


async def test_an_eviction_of_another_pod_costs_no_budget() -> None:
    async with local_server() as server:
        await server.post(PODS, {"metadata": {"name": "a", "labels": {"app": "x"}}, "spec": SPEC})
        ready = [{"type": "Ready", "status": "True"}]
        await server.patch(f"{PODS}/a/status", {"status": {"phase": "Running", "conditions": ready}})
        budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
        budget = {"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}}}
        await server.post(budgets, budget)
        allowed = {"disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1, "expectedPods": 2}
        status = {"observedGeneration": 1, **allowed}
        await server.patch(f"{budgets}/b/status", {"status": status})
        body = {"metadata": {"name": "a"}, "deleteOptions": {"preconditions": {"uid": "of-another-one"}}}
        assert (await server.call("POST", f"{PODS}/a/eviction", body)).status == 409
        assert (await server.get(f"{budgets}/b"))["status"]["disruptionsAllowed"] == 1


async def test_a_review_of_a_user_in_thousands_of_groups_is_answered_and_not_kept_in_memory() -> None:
    async with local_server() as server:
        asked = {"namespace": "default", "verb": "get", "resource": "pods"}

        async def review(number: int) -> None:
            groups = [f"group-{number}-{each}" for each in range(10_000)]
            for spec in (
                {"user": f"a{number}", "groups": groups, "resourceAttributes": asked},
                {"user": f"a{number}", "resourceAttributes": {**asked, "resource": f"{number}" + "p" * 100_000}},
            ):
                made = await server.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", {"spec": spec})
                assert made["status"]["allowed"] is False

        assert await kept_bytes(review, times=10) < 500_000, "of 6 MB of groups and 1 MB of names"
