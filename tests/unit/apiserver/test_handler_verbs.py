"""The verbs on objects, in process: what is stored, what is refused, and that refusals change nothing."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from shoal.testing.servers import PATCHES, local_server, take

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
SERVICES = "/api/v1/namespaces/default/services"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"


def a_configmap(name: str = "a", **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def a_pod(name: str = "p", **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}], **spec}}


def a_deployment(name: str = "web", replicas: int = 1) -> dict[str, Any]:
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}},
        },
    }


async def test_a_created_object_has_identity_and_can_be_read_back() -> None:
    async with local_server() as server:
        made = await server.post(CONFIGMAPS, a_configmap(k="v"))
        meta = made["metadata"]
        assert meta["uid"] and meta["resourceVersion"] and meta["creationTimestamp"].endswith("Z")
        assert meta["managedFields"][0]["manager"] == "test"
        assert await server.get(f"{CONFIGMAPS}/a") == made


async def test_a_second_create_of_a_name_is_refused_and_changes_nothing() -> None:
    async with local_server() as server:
        made = await server.post(CONFIGMAPS, a_configmap(k="v"))
        again = await server.call("POST", CONFIGMAPS, a_configmap(k="other"))
        assert (again.status, again.json["reason"]) == (409, "AlreadyExists")
        assert again.json["message"] == 'configmaps "a" already exists'
        assert await server.get(f"{CONFIGMAPS}/a") == made


async def test_generated_names_start_with_their_prefix_and_differ() -> None:
    async with local_server() as server:
        body = {"metadata": {"generateName": "x-"}}
        names = {(await server.post(CONFIGMAPS, body))["metadata"]["name"] for _ in range(20)}
        assert len(names) == 20 and all(name.startswith("x-") and len(name) == 7 for name in names)


@pytest.mark.parametrize(
    ("path", "body", "status", "reason", "text"),
    [
        ("/api/v1/namespaces/nowhere/configmaps", a_configmap(), 404, "NotFound", 'namespaces "nowhere" not found'),
        (CONFIGMAPS, {"metadata": {}}, 422, "Invalid", "name or generateName is required"),
        (CONFIGMAPS, {"metadata": {"name": "A_b"}}, 422, "Invalid", "metadata.name"),
        (CONFIGMAPS, {"apiVersion": "v2"}, 400, "BadRequest", "does not match the expected API version"),
        (CONFIGMAPS, {"kind": "Pod"}, 400, "BadRequest", "does not match the expected kind"),
        (CONFIGMAPS, {"metadata": {"name": "a", "namespace": "b"}}, 400, "BadRequest", "does not match the namespace"),
        (CONFIGMAPS, b"{", 400, "BadRequest", ""),
        (CONFIGMAPS, b"[]", 400, "BadRequest", ""),
        (CONFIGMAPS, b"", 400, "BadRequest", "no body"),
        (CONFIGMAPS, {"metadata": {"name": "a"}, "data": {"k": 1}}, 400, "BadRequest", "data"),
        (PODS, {"metadata": {"name": "p"}, "spec": {"containers": []}}, 422, "Invalid", "spec.containers"),
        (CONFIGMAPS, {"metadata": {"name": "a", "resourceVersion": "3"}}, 400, "BadRequest", "resourceVersion"),
    ],
)
async def test_bad_objects_get_a_status_that_names_the_fault(
    path: str, body: Any, status: int, reason: str, text: str
) -> None:
    async with local_server() as server:
        before = server.store.revision
        answer = await server.call("POST", path, body)
        assert (answer.status, answer.json["reason"]) == (status, reason)
        assert text in answer.json["message"]
        assert answer.json["kind"] == "Status" and answer.headers["content-type"] == "application/json"
        assert server.store.revision == before


async def test_an_update_with_an_old_revision_is_a_conflict() -> None:
    async with local_server() as server:
        first = await server.post(CONFIGMAPS, a_configmap(k="1"))
        second = await server.put(f"{CONFIGMAPS}/a", {**first, "data": {"k": "2"}})
        assert int(second["metadata"]["resourceVersion"]) > int(first["metadata"]["resourceVersion"])
        answer = await server.call("PUT", f"{CONFIGMAPS}/a", {**first, "data": {"k": "3"}})
        assert (answer.status, answer.json["reason"]) == (409, "Conflict")
        assert (await server.get(f"{CONFIGMAPS}/a"))["data"] == {"k": "2"}


async def test_a_write_that_changes_nothing_keeps_the_revision_and_is_not_seen_by_watchers() -> None:
    async with local_server() as server:
        made = await server.post(CONFIGMAPS, a_configmap(k="1"))
        version = made["metadata"]["resourceVersion"]
        async with server.watch(f"{CONFIGMAPS}?watch=1&resourceVersion={version}") as events:
            assert await server.put(f"{CONFIGMAPS}/a", made) == made
            assert await server.patch(f"{CONFIGMAPS}/a", {"data": {"k": "1"}}) == made
            await server.patch(f"{CONFIGMAPS}/a", {"data": {"k": "2"}})
            seen = await take(events, 1)
        assert [e["object"]["data"] for e in seen] == [{"k": "2"}]


async def test_status_and_spec_are_written_through_their_own_paths_only() -> None:
    async with local_server() as server:
        made = await server.post(DEPLOYMENTS, a_deployment())
        assert made["metadata"]["generation"] == 1
        path = f"{DEPLOYMENTS}/web"
        status = await server.patch(f"{path}/status", {"spec": {"replicas": 9}, "status": {"replicas": 4}})
        assert status["spec"]["replicas"] == 1 and status["status"]["replicas"] == 4
        assert status["metadata"]["generation"] == 1
        spec = await server.patch(path, {"spec": {"replicas": 2}, "status": {"replicas": 7}})
        assert spec["spec"]["replicas"] == 2 and spec["status"]["replicas"] == 4
        assert spec["metadata"]["generation"] == 2


async def test_scale_reads_and_writes_the_replicas() -> None:
    async with local_server() as server:
        await server.post(DEPLOYMENTS, a_deployment(replicas=2))
        path = f"{DEPLOYMENTS}/web/scale"
        scale = await server.get(path)
        assert scale["kind"] == "Scale" and scale["spec"]["replicas"] == 2
        assert scale["status"]["selector"] == "app=web"
        await server.patch(path, {"spec": {"replicas": 5}})
        assert (await server.get(f"{DEPLOYMENTS}/web"))["spec"]["replicas"] == 5
        refused = await server.call("PUT", path, {**scale, "spec": {"replicas": -1}})
        assert refused.status in (409, 422)


async def test_pages_of_a_list_are_one_snapshot() -> None:
    async with local_server() as server:
        for index in range(7):
            await server.post(CONFIGMAPS, a_configmap(f"m{index}"))
        before = await server.get(CONFIGMAPS)
        page = await server.get(f"{CONFIGMAPS}?limit=3")
        assert page["metadata"]["remainingItemCount"] == len(before["items"]) - 3
        await server.delete(f"{CONFIGMAPS}/m6")
        items, version = list(page["items"]), page["metadata"]["resourceVersion"]
        while token := page["metadata"].get("continue"):
            page = await server.get(f"{CONFIGMAPS}?limit=3&continue={token}")
            assert page["metadata"]["resourceVersion"] == version
            items += page["items"]
        assert items == before["items"]


async def test_a_watch_follows_objects_in_and_out_of_its_selector() -> None:
    async with local_server() as server:
        start = (await server.get(CONFIGMAPS))["metadata"]["resourceVersion"]
        async with server.watch(f"{CONFIGMAPS}?watch=1&resourceVersion={start}&labelSelector=in%3Dyes") as events:
            await server.post(CONFIGMAPS, {"metadata": {"name": "a", "labels": {"in": "no"}}})
            await server.patch(f"{CONFIGMAPS}/a", {"metadata": {"labels": {"in": "yes"}}})
            await server.patch(f"{CONFIGMAPS}/a", {"data": {"k": "v"}})
            left = await server.patch(f"{CONFIGMAPS}/a", {"metadata": {"labels": {"in": "no"}}})
            seen = await take(events, 3)
        assert [e["type"] for e in seen] == ["ADDED", "MODIFIED", "DELETED"]
        gone = seen[-1]["object"]
        assert gone["metadata"]["labels"] == {"in": "yes"}
        assert gone["metadata"]["resourceVersion"] == left["metadata"]["resourceVersion"]


async def test_a_watch_list_ends_its_initial_objects_with_a_marked_bookmark() -> None:
    async with local_server() as server:
        await server.post(CONFIGMAPS, a_configmap())
        query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
        async with server.watch(f"{CONFIGMAPS}?{query}") as events:
            seen = await take(events, 3)
        assert [e["type"] for e in seen] == ["ADDED", "ADDED", "BOOKMARK"]
        assert seen[-1]["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


async def test_a_pod_on_a_node_is_deleted_gracefully_and_others_at_once() -> None:
    async with local_server() as server:
        await server.post(PODS, a_pod("waiting"))
        await server.delete(f"{PODS}/waiting")
        assert (await server.call("GET", f"{PODS}/waiting")).status == 404
        await server.post(PODS, a_pod("bound"))
        await server.post(f"{PODS}/bound/binding", {"target": {"kind": "Node", "name": "n1"}})
        dying = await server.delete(f"{PODS}/bound")
        assert dying["metadata"]["deletionGracePeriodSeconds"] == 30
        await server.delete(f"{PODS}/bound", {"gracePeriodSeconds": 0})
        assert (await server.call("GET", f"{PODS}/bound")).status == 404


async def test_an_object_with_finalizers_goes_when_the_last_one_does() -> None:
    async with local_server() as server:
        body = {"metadata": {"name": "a", "finalizers": ["example.com/hold"]}}
        await server.post(CONFIGMAPS, body)
        marked = await server.delete(f"{CONFIGMAPS}/a")
        assert marked["metadata"]["deletionTimestamp"]
        added = await server.call(
            "PATCH", f"{CONFIGMAPS}/a", {"metadata": {"finalizers": ["example.com/hold", "example.com/more"]}},
            {"content-type": "application/merge-patch+json"},
        )  # fmt: skip
        assert added.status == 422
        await server.patch(f"{CONFIGMAPS}/a", {"metadata": {"finalizers": None}})
        assert (await server.call("GET", f"{CONFIGMAPS}/a")).status == 404


async def test_services_get_addresses_of_their_own_and_give_them_back() -> None:
    async with local_server() as server:
        port = {"ports": [{"port": 80}]}
        made = [await server.post(SERVICES, {"metadata": {"name": f"s{i}"}, "spec": port}) for i in range(30)]
        addresses = {service["spec"]["clusterIP"] for service in made}
        assert len(addresses) == 30
        taken = made[0]["spec"]["clusterIP"]
        body = {"metadata": {"name": "again"}, "spec": {**port, "clusterIP": taken}}
        refused = await server.call("POST", SERVICES, body)
        assert refused.status == 422 and "already allocated" in refused.json["message"]
        await server.delete(f"{SERVICES}/s0")
        assert (await server.post(SERVICES, body))["spec"]["clusterIP"] == taken
        node_port = await server.post(SERVICES, {"metadata": {"name": "np"}, "spec": {**port, "type": "NodePort"}})
        assert 30000 <= node_port["spec"]["ports"][0]["nodePort"] <= 32767


async def test_a_dry_run_answers_as_the_write_would_and_writes_nothing() -> None:
    async with local_server() as server:
        before = server.store.revision
        made = await server.post(
            f"{SERVICES}?dryRun=All", {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 1}]}}
        )
        assert made["spec"]["clusterIP"] and "resourceVersion" not in made["metadata"]
        assert server.store.revision == before
        refused = await server.call("POST", f"{CONFIGMAPS}?dryRun=Some", a_configmap())
        assert refused.status == 422


async def test_a_deleted_namespace_takes_its_objects_along() -> None:
    async with local_server() as server:
        await server.post("/api/v1/namespaces", {"metadata": {"name": "n"}})
        await server.post("/api/v1/namespaces/n/configmaps", a_configmap())
        async with server.watch("/api/v1/namespaces?watch=1&fieldSelector=metadata.name%3Dn") as events:
            gone = await server.delete("/api/v1/namespaces/n")
            assert gone["status"]["phase"] == "Terminating"
            refused = await server.call("POST", "/api/v1/namespaces/n/configmaps", a_configmap("b"))
            assert refused.status in (403, 404)
            kinds = [e["type"] async for e in _until_deleted(events)]
        assert kinds[-1] == "DELETED"
        assert (await server.get("/api/v1/configmaps?fieldSelector=metadata.namespace%3Dn"))["items"] == []


async def _until_deleted(events: Any) -> Any:
    async with asyncio.timeout(5):
        async for event in events:
            yield event
            if event["type"] == "DELETED":
                return


async def test_server_side_apply_tracks_owners_and_reports_conflicts() -> None:
    async with local_server() as server:
        path = f"{CONFIGMAPS}/a"
        await server.patch(f"{path}?fieldManager=one", a_configmap(x="1", y="1"), "apply")
        headers = {"content-type": "application/apply-patch+yaml"}
        conflict = await server.call("PATCH", f"{path}?fieldManager=two", a_configmap(x="2"), headers)
        assert conflict.status == 409
        assert conflict.json["details"]["causes"][0] == {
            "reason": "FieldManagerConflict",
            "message": 'conflict with "one"',
            "field": ".data.x",
        }
        forced = await server.patch(f"{path}?fieldManager=two&force=true", a_configmap(x="2"), "apply")
        assert forced["data"] == {"x": "2", "y": "1"}
        removed = await server.patch(f"{path}?fieldManager=one", a_configmap(), "apply")
        assert removed["data"] == {"x": "2"}


async def test_a_fenced_write_is_good_only_while_its_leader_leads() -> None:
    leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases"

    async with local_server() as server:
        spec = {"holderIdentity": "one", "leaseTransitions": 1, "leaseDurationSeconds": 15}
        lease = await server.post(leases, {"metadata": {"name": "lead"}, "spec": spec})
        fence = {"shoal-fence": "default/lead;one;1"}
        assert (await server.call("POST", CONFIGMAPS, a_configmap(k="1"), fence)).status == 201
        await server.put(f"{leases}/lead", {**lease, "spec": {**spec, "holderIdentity": "two", "leaseTransitions": 2}})
        before = server.store.revision
        for method, path, body in (
            ("POST", CONFIGMAPS, a_configmap("b")),
            ("PUT", f"{CONFIGMAPS}/a", a_configmap(k="2")),
            ("DELETE", f"{CONFIGMAPS}/a", None),
        ):
            late = await server.call(method, path, body, fence)
            assert (late.status, late.json["reason"]) == (409, "Conflict")
            assert "fenced off" in late.json["message"]
        assert server.store.revision == before


async def test_a_pod_of_a_known_shape_is_like_the_first_one() -> None:
    """The second pod takes a shorter way; nothing of that may show."""

    def told(pod: dict[str, Any]) -> dict[str, Any]:
        entry = pod["metadata"]["managedFields"][0]
        return {
            "spec": pod["spec"],
            "status": pod["status"],
            "fields": entry["fieldsV1"],
            "labels": pod["metadata"]["labels"],
        }

    async with local_server() as server:
        spec = {
            "containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 1}], "resources": {"limits": {"cpu": "1000m"}}}],
            "nodeSelector": {"beta.kubernetes.io/os": "linux"},
        }  # fmt: skip
        answers = [
            await server.call("POST", PODS, {"metadata": {"name": name, "labels": {"a": "b"}}, "spec": spec})
            for name in ("one", "two", "three")
        ]
        first, *others = [answer.ok() for answer in answers]
        assert first["spec"]["containers"][0]["resources"]["limits"] == {"cpu": "1"}
        assert "nodeSelector" in answers[0].headers["warning"]
        for answer, pod in zip(answers[1:], others, strict=True):
            assert told(pod) == told(first)
            assert answer.headers["warning"] == answers[0].headers["warning"]
        await server.patch(f"{PODS}/two", {"spec": {"containers": [{"name": "c", "image": "other"}]}}, "strategic")
        assert (await server.get(f"{PODS}/one"))["spec"] == first["spec"]
        assert (await server.post(PODS, {"metadata": {"name": "four"}, "spec": spec}))["spec"] == first["spec"]


def pinned(*nodes: str, image: str = "i", operator: str = "In") -> dict[str, Any]:
    """A spec as DaemonSets make them."""
    term = {"matchFields": [{"key": "metadata.name", "operator": operator, "values": list(nodes)}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return {"containers": [{"name": "c", "image": image}], "affinity": {"nodeAffinity": required}}


async def test_pods_that_differ_in_the_node_they_name_are_of_one_shape_and_keep_their_nodes() -> None:
    async with local_server() as server:
        for number in range(4):
            spec = pinned(f"node-{number}")
            made = await server.post(PODS, {"metadata": {"name": f"p{number}"}, "spec": spec})
            assert made["spec"]["affinity"] == spec["affinity"]
        known = len(server.server.writer.shapes)
        assert known == 1
        first, last = [await server.get(f"{PODS}/p{number}") for number in (0, 3)]
        for pod in (first, last):
            del pod["spec"]["affinity"]
        assert first["spec"] == last["spec"]
        assert first["metadata"]["managedFields"][0]["fieldsV1"] == last["metadata"]["managedFields"][0]["fieldsV1"]


@pytest.mark.parametrize(
    "spec",
    [
        pinned("Not_A_Name"), pinned("<node>"), pinned("a", "b"), pinned(), pinned("a", operator="Exists"),
        pinned("\u2028"), pinned("a" * 300),
    ],
)  # fmt: skip
async def test_a_known_shape_does_not_let_strange_names_of_nodes_through(spec: dict[str, Any]) -> None:
    async with local_server() as server:
        await server.post(PODS, {"metadata": {"name": "good"}, "spec": pinned("node-1")})
        answer = await server.call("POST", PODS, {"metadata": {"name": "bad"}, "spec": spec})
        assert answer.status == 422 and "matchFields[0]" in answer.json["message"]


async def test_a_shape_that_contains_the_placeholder_is_not_mistaken_for_a_name() -> None:
    async with local_server() as server:
        for number in range(3):
            spec = pinned(f"node-{number}", image="<node>")
            made = await server.post(PODS, {"metadata": {"name": f"p{number}"}, "spec": spec})
            stored = await server.get(f"{PODS}/p{number}")
            assert stored["spec"] == made["spec"]
            assert stored["spec"]["containers"][0]["image"] == "<node>"
            assert stored["spec"]["affinity"] == spec["affinity"]


async def test_a_known_shape_does_not_let_faults_of_the_rest_through() -> None:
    async with local_server() as server:
        spec = {"containers": [{"name": "c", "image": "i"}], "unknown": 1}
        for name in ("one", "two"):
            answer = await server.call("POST", PODS, {"metadata": {"name": name}, "spec": spec})
            assert "unknown field" in answer.headers["warning"], name
        good = {"containers": [{"name": "c", "image": "i"}]}
        await server.post(PODS, {"metadata": {"name": "three"}, "spec": good})
        bad = {"name": "four", "annotations": {"controller.kubernetes.io/pod-deletion-cost": "much"}}
        assert (await server.call("POST", PODS, {"metadata": bad, "spec": good})).status == 422
        assert (await server.call("POST", PODS, {"metadata": {"name": "A_b"}, "spec": good})).status == 422
        strange = await server.call("POST", PODS, {"metadata": {"name": "five", "odd": 1}, "spec": good})
        assert 'unknown field \\"metadata.odd\\"' in strange.headers["warning"]


async def test_built_in_kinds_have_a_status_from_the_start() -> None:
    async with local_server() as server:
        made = await server.post(DEPLOYMENTS, a_deployment())
        assert made["status"] == {}
        operations = [{"op": "add", "path": "/status/replicas", "value": 2}]
        patched = await server.patch(f"{DEPLOYMENTS}/web/status", operations, "json")
        assert patched["status"] == {"replicas": 2}


async def test_a_built_in_object_always_shows_its_spec_and_status() -> None:
    async with local_server() as server:
        node = await server.post("/api/v1/nodes", {"metadata": {"name": "bare"}})
        assert node["spec"].keys() == {"taints"}
        assert node["status"].keys() == {"daemonEndpoints", "nodeInfo"}  # zeros that Kubernetes always sends
        del node["spec"]
        assert (await server.put("/api/v1/nodes/bare", node))["spec"] == {}
        quotas = "/api/v1/namespaces/default/resourcequotas"
        assert (await server.post(quotas, {"metadata": {"name": "none"}}))["spec"] == {}
        made = await server.post("/api/v1/namespaces/default/configmaps", {"metadata": {"name": "a"}})
        assert not made.keys() & {"spec", "status"}


async def test_a_status_without_its_counters_gets_zeros() -> None:
    async with local_server() as server:
        path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
        made = await server.post(path, {"metadata": {"name": "a"}, "spec": {"minAvailable": 1}})
        zeros = {"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0}
        assert made["status"] == zeros
        written = await server.put(f"{path}/a/status", made | {"status": {"currentHealthy": 2}})
        assert written["status"] == zeros | {"currentHealthy": 2}
        patched = await server.patch(f"{path}/a/status", {"status": {"currentHealthy": None, "expectedPods": 3}})
        assert patched["status"] == zeros | {"expectedPods": 3}


async def test_a_role_without_rules_shows_null_and_takes_rules_by_every_patch() -> None:
    async with local_server() as server:
        path = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
        rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}
        for kind, patch in (
            ("merge", {"rules": [rule]}),
            ("strategic", {"rules": [rule]}),
            ("json", [{"op": "replace", "path": "/rules", "value": [rule]}]),
        ):
            made = await server.post(path, {"metadata": {"name": kind}})
            assert made["rules"] is None
            again = await server.put(f"{path}/{kind}", made)
            assert again["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
            assert (await server.patch(f"{path}/{kind}", patch, kind))["rules"] == [rule]


async def test_an_event_shows_its_zeros_in_both_versions() -> None:
    async with local_server() as server:
        events = "/api/v1/namespaces/default/events"
        made = await server.post(events, {"metadata": {"name": "a"}, "involvedObject": {"namespace": "default"}})
        assert made["source"] == {} and made["reportingComponent"] == made["reportingInstance"] == ""
        assert made["firstTimestamp"] is made["lastTimestamp"] is made["eventTime"] is None
        newer = await server.get("/apis/events.k8s.io/v1/namespaces/default/events/a")
        assert newer["deprecatedSource"] == {} and newer["eventTime"] is None
        assert not newer.keys() & {"reportingController", "reportingInstance"}


@pytest.mark.parametrize("version", ["", "0", "000", "abc", "-1", "1.5", "99999999999999999999999", "²"])
async def test_a_create_ignores_a_resource_version_that_no_server_gave(version: str) -> None:
    async with local_server() as server:
        path = "/api/v1/namespaces/default/configmaps"
        made = await server.post(path, {"metadata": {"name": "a", "resourceVersion": version}})
        assert made["metadata"]["resourceVersion"] not in ("", version)
        taken = await server.call("POST", path, {"metadata": {"name": "b", "resourceVersion": "7"}})
        assert taken.status == 400 and "resourceVersion should not be set" in taken.json["message"]


@pytest.mark.parametrize(
    ("kind", "patch", "found"),
    [
        ("merge", b'{"spec":{"x":1}}', 'unknown field "spec.x"'),
        ("merge", b'{"data":{"a":"1","a":"2"},"x":1}', 'duplicate field "data.a", unknown field "x"'),
        ("strategic", b'{"spec":{"x":1}}', 'unknown field "spec.x"'),
        ("strategic", b'{"data":{"a":"1","a":"2"}}', 'duplicate field "data.a"'),
        ("json", b'[{"op":"add","path":"/x","value":1}]', 'unknown field "x"'),
        ("json", b'[{"op":"add","path":"/immutable","value":false,"why":1}]', 'json patch unknown field "[0].why"'),
        (
            "json",
            b'[{"op":"add","path":"/immutable","path":"/immutable","value":false}]',
            'json patch duplicate field "[0].path"',
        ),
    ],
)
async def test_strict_validation_of_a_patch_is_invalid_and_without_it_a_warning(
    kind: str, patch: bytes, found: str
) -> None:
    found = found.replace("spec.x", "spec")  # a ConfigMap has no spec at all
    async with local_server() as server:
        path = "/api/v1/namespaces/default/configmaps"
        await server.post(path, {"metadata": {"name": "a"}})
        headers = {"content-type": PATCHES[kind]}
        answer = await server.call("PATCH", f"{path}/a?fieldValidation=Strict", patch, headers)
        assert (answer.status, answer.json["reason"]) == (422, "Invalid")
        assert answer.json["details"]["causes"][0]["field"] == "patch"
        assert answer.json["message"].endswith(f": strict decoding error: {found}")
        warned = await server.call("PATCH", f"{path}/a", patch, headers)
        assert warned.status == 200 and found.split(", ")[0].replace('"', r"\"") in warned.headers["warning"]
        ignored = await server.call("PATCH", f"{path}/a?fieldValidation=Ignore", patch, headers)
        assert ignored.status == 200 and "warning" not in ignored.headers


async def test_a_patch_that_puts_a_wrong_type_is_invalid() -> None:
    async with local_server() as server:
        path = "/api/v1/namespaces/default/configmaps"
        await server.post(path, {"metadata": {"name": "a"}})
        answer = await server.call("PATCH", f"{path}/a", {"data": 5}, {"content-type": PATCHES["merge"]})
        assert answer.status == 422 and "cannot unmarshal number into Go struct field" in answer.json["message"]
