"""NodeRestriction: what is in the objects that a node writes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from authz_people import People

from shoal.apiserver.admission.builtin.node_restriction import NodeRestriction
from shoal.apiserver.admission.chain import Chain
from shoal.testing.servers import PATCHES, local_server

ALPHA = "system:node:alpha/system:nodes"
PODS = "/api/v1/namespaces/default/pods"
ACCOUNT = {"serviceAccountName": "default"}
MERGE = {"content-type": PATCHES["merge"]}


@asynccontextmanager
async def a_node() -> AsyncIterator[tuple[People, str]]:
    """The node ``alpha`` with a pod ``mine``, and a pod ``other`` elsewhere; the test gets the node's uid."""

    async with local_server() as server:
        core, authorizer = server.server.core, server.server.handler.authorizer
        server.server.writer.admission = Chain(validators=[NodeRestriction(core, authorizer)])
        node = await server.post("/api/v1/nodes", {"metadata": {"name": "alpha"}})
        for name, place in (("mine", "alpha"), ("other", "beta")):
            spec = {"nodeName": place, "containers": [{"name": "c", "image": "i"}], **ACCOUNT}
            await server.post(PODS, {"metadata": {"name": name}, "spec": spec})
        yield (People(server), node["metadata"]["uid"])


async def refusal(people: People, method: str, path: str, body: Any = None, **headers: str) -> str:
    answer = await people.ask(ALPHA, method, path, body, **headers)
    return answer.json["message"] if answer.status == 403 else ""


def a_mirror_pod(uid: str, **spec: Any) -> dict[str, Any]:
    owner = {"apiVersion": "v1", "kind": "Node", "name": "alpha", "uid": uid, "controller": True}
    return {
        "metadata": {
            "name": "mirror",
            "annotations": {"kubernetes.io/config.mirror": "x"},
            "ownerReferences": [owner],
        },
        "spec": {"nodeName": "alpha", "containers": [{"name": "c", "image": "i"}], **spec},
    }


async def test_a_node_creates_mirror_pods_of_its_own_and_no_other_pods() -> None:
    async with a_node() as (people, uid):
        plain = {"metadata": {"name": "p"}, "spec": a_mirror_pod(uid)["spec"]}
        text = (
            'pods "p" is forbidden: pod does not have "kubernetes.io/config.mirror" annotation, node "alpha" can only'
        )
        assert (await refusal(people, "POST", PODS, plain)).startswith(text)
        for spec, named in (
            ({"nodeName": "beta"}, "can only create pods with spec.nodeName set to itself"),
            ({"volumes": [{"name": "a", "secret": {"secretName": "s"}}]}, "can not create pods that reference secrets"),
            ({"volumes": [{"name": "a", "persistentVolumeClaim": {"claimName": "s"}}]}, "persistentvolumeclaims"),
            ({"imagePullSecrets": [{"name": "a"}]}, "can not create pods that reference secrets"),
            ({"serviceAccountName": "default"}, "can not create pods that reference serviceaccounts"),
        ):
            assert named in await refusal(people, "POST", PODS, a_mirror_pod(uid, **spec)), spec
        assert "UID mismatch" in await refusal(people, "POST", PODS, a_mirror_pod("wrong"))
        orphan = a_mirror_pod(uid)
        del orphan["metadata"]["ownerReferences"]
        assert "an owner reference set to itself" in await refusal(people, "POST", PODS, orphan)
        assert (await people.ask(ALPHA, "POST", PODS, a_mirror_pod(uid))).status == 201
        assert await refusal(people, "DELETE", f"{PODS}/other")
        assert (await people.ask(ALPHA, "DELETE", f"{PODS}/mirror")).status == 200


async def test_a_node_reports_the_status_of_its_pods_only() -> None:
    async with a_node() as (people, uid):
        ready = {"status": {"phase": "Running"}}
        assert (await people.ask(ALPHA, "PATCH", f"{PODS}/mine/status", ready, **MERGE)).status == 200
        assert "can only update pod status" in await refusal(people, "PATCH", f"{PODS}/other/status", ready, **MERGE)
        label = {"metadata": {"labels": {"a": "b"}}}
        assert "cannot update labels" in await refusal(people, "PATCH", f"{PODS}/mine/status", label, **MERGE)
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "other"}}
        assert "can only evict pods" in await refusal(people, "POST", f"{PODS}/other/eviction", eviction)


async def test_a_node_changes_its_own_node_but_not_what_steers_workloads() -> None:
    async with a_node() as (people, uid):
        path = "/api/v1/nodes/alpha"
        fine = {
            "metadata": {"labels": {"kubernetes.io/os": "linux", "node.kubernetes.io/x": "y", "example.com/a": "b"}}
        }
        assert (await people.ask(ALPHA, "PATCH", path, fine, **MERGE)).status == 200
        for label in ("node-restriction.kubernetes.io/a", "node-role.kubernetes.io/master", "k8s.io/a"):
            body = {"metadata": {"labels": {label: ""}}}
            text = f'nodes "alpha" is forbidden: is not allowed to modify labels: {label}'
            assert await refusal(people, "PATCH", path, body, **MERGE) == text
        taints = {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}
        assert "is not allowed to modify taints" in await refusal(people, "PATCH", path, taints, **MERGE)
        other = 'nodes "beta" is forbidden: node "alpha" is not allowed to modify node "beta"'
        assert await refusal(people, "POST", "/api/v1/nodes", {"metadata": {"name": "beta"}}) == other


async def test_a_node_creates_its_own_lease_and_csi_node_only() -> None:
    async with a_node() as (people, uid):
        leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
        assert (await people.ask(ALPHA, "POST", leases, {"metadata": {"name": "alpha"}})).status == 201
        assert "same name as the requesting node" in await refusal(
            people, "POST", leases, {"metadata": {"name": "beta"}}
        )
        drivers = {"metadata": {"name": "beta"}, "spec": {"drivers": []}}
        assert "CSINode with the same name" in await refusal(
            people, "POST", "/apis/storage.k8s.io/v1/csinodes", drivers
        )


async def test_a_node_gets_tokens_for_its_pods_only() -> None:
    async with a_node() as (people, uid):

        async def issue(call: Any, request: Any, account: Any) -> Any:
            return request

        people.server.server.handler.subresources.issue_token = issue
        path = "/api/v1/namespaces/default/serviceaccounts/default/token"
        assert "not bound to a pod" in await refusal(people, "POST", path, {"spec": {}})
        for name, text in (("mine", "audience"), ("other", "a different node")):
            pod = await people.server.get(f"{PODS}/{name}")
            bound = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": pod["metadata"]["uid"]}
            spec = {"boundObjectRef": bound, "audiences": ["not in the pod"]}
            assert text in await refusal(people, "POST", path, {"spec": spec}), name
        token = {"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "t", "audience": "vault"}}]}}
        pod = {"nodeName": "alpha", "containers": [{"name": "c", "image": "i"}], "volumes": [token]}
        made = await people.server.post(PODS, {"metadata": {"name": "vaulted"}, "spec": {**pod, **ACCOUNT}})
        bound = {"apiVersion": "v1", "kind": "Pod", "name": "vaulted", "uid": made["metadata"]["uid"]}
        spec = {"boundObjectRef": bound, "audiences": ["vault"]}
        assert (await people.ask(ALPHA, "POST", path, {"spec": spec})).status == 201


async def test_others_are_not_restricted() -> None:
    async with a_node() as (people, uid):
        label = {"metadata": {"labels": {"node-restriction.kubernetes.io/a": "b"}}}
        await people.server.patch("/api/v1/nodes/alpha", label)
