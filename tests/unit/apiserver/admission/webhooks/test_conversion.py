"""Custom objects in several versions that a webhook converts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest

from shoal.apiserver.messages import Response
from shoal.kube.objects import Obj
from shoal.store import Key
from shoal.testing.servers import LocalServer, local_server, take
from shoal.testing.waiting import eventually
from shoal.testing.webhooks import WebhookServer, denied, hook, rule, validating, webhook_server

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
KEY = "hosts.example.com"


def text(name: str) -> Obj:
    spec = {"type": "object", "properties": {name: {"type": "string"}, "replicas": {"type": "integer"}}}
    return {
        "type": "object",
        "properties": {"spec": spec, "status": {"type": "object", "properties": {"seen": {"type": "string"}}}},
    }


def version(name: str, schema: Obj, *, storage: bool = False, served: bool = True) -> Obj:
    scale = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
    return {
        "name": name,
        "served": served,
        "storage": storage,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}, "scale": scale},
    }


def definition(hooks: WebhookServer, *versions: Obj, reviews: tuple[str, ...] = ("v1",)) -> Obj:
    webhook = {"clientConfig": hooks.client_config("/convert"), "conversionReviewVersions": list(reviews)}
    both = (version("v1", text("hostPort"), storage=True), version("v2", text("address")))
    return {
        "metadata": {"name": KEY},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "hosts", "kind": "Host"},
            "conversion": {"strategy": "Webhook", "webhook": webhook},
            "versions": list(versions or both),
        },
    }


def convert(review: Obj) -> list[Obj]:
    """v1 has ``hostPort``, v2 the same as ``address``; both are upper case, to show who was here."""
    wanted = review["desiredAPIVersion"]
    old, new = ("hostPort", "address") if wanted.endswith("v2") else ("address", "hostPort")
    converted = []
    for obj in review["objects"]:
        spec = dict(obj.get("spec") or {})
        if old in spec:
            spec[new] = spec.pop(old).upper()
        converted.append({**obj, "apiVersion": wanted, "spec": spec})
    return converted


def target(version: str, name: str = "", sub: str = "") -> str:
    parts = [f"/apis/example.com/{version}/namespaces/default/hosts", name, sub]
    return "/".join(part for part in parts if part)


def host(version: str, name: str = "a", **spec: Any) -> Obj:
    return {"apiVersion": f"example.com/{version}", "kind": "Host", "metadata": {"name": name}, "spec": spec}


def stored(server: LocalServer, name: str = "a") -> Obj:
    entry = server.store.get(Key(KEY, "default", name))
    assert entry is not None
    found: Obj = orjson.loads(entry.value)
    return found


@asynccontextmanager
async def converting(
    handler: Callable[[Obj], Any] = convert, *versions: Obj, **more: Any
) -> AsyncIterator[tuple[WebhookServer, LocalServer]]:
    async with webhook_server({"/convert": handler}) as hooks, local_server() as server:
        await server.post(DEFINITIONS, definition(hooks, *versions, **more))
        yield hooks, server


async def test_objects_are_stored_in_the_storage_version_and_read_in_any() -> None:
    async with converting() as (hooks, server):
        made = await server.post(target("v2"), host("v2", address="x:1"))
        assert made["apiVersion"] == "example.com/v2" and made["spec"] == {"address": "X:1"}
        assert stored(server)["apiVersion"] == "example.com/v1" and stored(server)["spec"] == {"hostPort": "X:1"}
        assert (await server.get(target("v1", "a")))["spec"] == {"hostPort": "X:1"}
        assert (await server.get(target("v2", "a")))["spec"] == {"address": "X:1"}


async def test_the_storage_version_needs_no_conversion() -> None:
    async with converting() as (hooks, server):
        await server.post(target("v1"), host("v1", hostPort="x:1"))
        await server.get(target("v1"))
        await server.patch(target("v1", "a"), {"spec": {"hostPort": "y:1"}})
        await server.delete(target("v1", "a"))
        assert hooks.reviews == []


async def test_a_list_is_converted_in_one_call_and_kept() -> None:
    async with converting() as (hooks, server):
        for number in range(5):
            await server.post(target("v1"), host("v1", f"a{number}", hostPort=f"x:{number}"))
        items = (await server.get(target("v2")))["items"]
        assert [item["spec"]["address"] for item in items] == [f"X:{number}" for number in range(5)]
        assert {item["apiVersion"] for item in items} == {"example.com/v2"}
        assert [len(request["objects"]) for request in hooks.asked("/convert")] == [5]
        await server.get(target("v2"))
        await server.get(target("v2", "a3"))
        assert len(hooks.reviews) == 1
        await server.patch(target("v1", "a3"), {"spec": {"hostPort": "new:3"}})
        changed = (await server.get(target("v2")))["items"][3]
        assert changed["spec"]["address"] == "NEW:3"
        assert [len(request["objects"]) for request in hooks.asked("/convert")] == [5, 1]


async def test_readers_at_the_same_time_share_a_conversion() -> None:
    go = asyncio.Event()

    async def slow(review: Obj) -> list[Obj]:
        await go.wait()
        return convert(review)

    async with converting(slow) as (hooks, server):
        await server.post(target("v1"), host("v1", hostPort="x:1"))
        first = asyncio.create_task(server.get(target("v2", "a")))
        await eventually(lambda: hooks.reviews)
        others = [asyncio.create_task(server.get(target("v2"))) for _ in range(3)]
        await asyncio.sleep(0)
        first.cancel()  # the others still want it
        go.set()
        for other in others:
            assert (await other)["items"][0]["spec"] == {"address": "X:1"}
        assert len(hooks.reviews) == 1


async def test_other_versions_are_updated_patched_and_applied() -> None:
    async with converting() as (hooks, server):
        await server.post(target("v1"), host("v1", hostPort="x:1"))
        seen = await server.get(target("v2", "a"))
        seen["spec"]["address"] = "put:1"
        assert (await server.put(target("v2", "a"), seen))["spec"] == {"address": "PUT:1"}
        assert stored(server)["spec"] == {"hostPort": "PUT:1"}
        assert stored(server)["metadata"]["generation"] == 2
        await server.patch(target("v2", "a"), {"spec": {"address": "patch:1"}})
        assert stored(server)["spec"] == {"hostPort": "PATCH:1"}
        applied = host("v2", address="apply:1")
        await server.patch(f"{target('v2', 'a')}?fieldManager=me&force=true", applied, "apply")
        assert stored(server)["spec"] == {"hostPort": "APPLY:1"}
        await server.patch(target("v2", "a", "status"), {"status": {"seen": "yes"}})
        assert stored(server)["status"] == {"seen": "yes"} and stored(server)["apiVersion"] == "example.com/v1"
        await server.patch(target("v2", "a"), {"spec": {"replicas": 1}})
        scaled = await server.patch(target("v2", "a", "scale"), {"spec": {"replicas": 3}})
        assert scaled["spec"] == {"replicas": 3} and stored(server)["spec"]["replicas"] == 3
        assert (await server.get(target("v2", "a", "scale")))["spec"] == {"replicas": 3}


async def test_a_patch_that_changes_nothing_writes_nothing() -> None:
    async with converting() as (hooks, server):
        made = await server.post(target("v2"), host("v2", address="X:1"))
        same = await server.patch(target("v2", "a"), {"spec": {"address": "X:1"}})
        assert same["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


async def test_watches_see_their_version() -> None:
    async with converting() as (hooks, server):
        await server.post(target("v1"), host("v1", "old", hostPort="x:0"))
        async with server.watch(f"{target('v2')}?watch=true") as events, server.watch(
            f"{target('v1')}?watch=true"
        ) as plain:  # fmt: skip
            [first] = await take(events, 1)
            assert (first["type"], first["object"]["spec"]) == ("ADDED", {"address": "X:0"})
            for number in range(3):
                await server.post(target("v1"), host("v1", f"a{number}", hostPort=f"x:{number}"))
            await server.post(target("v2"), host("v2", "b", address="y:1"))
            await server.delete(target("v1", "a0"))
            seen = await take(events, 5)
            assert [(e["type"], e["object"]["metadata"]["name"], e["object"]["spec"]) for e in seen] == [
                ("ADDED", "a0", {"address": "X:0"}),
                ("ADDED", "a1", {"address": "X:1"}),
                ("ADDED", "a2", {"address": "X:2"}),
                ("ADDED", "b", {"address": "Y:1"}),
                ("DELETED", "a0", {"address": "X:0"}),
            ]
            assert {e["object"]["apiVersion"] for e in seen} == {"example.com/v2"}
            revisions = [int(e["object"]["metadata"]["resourceVersion"]) for e in seen]
            assert revisions == sorted(set(revisions))
            assert [e["object"]["apiVersion"] for e in await take(plain, 6)] == ["example.com/v1"] * 6


async def test_fields_of_a_version_select_what_is_converted_to_it() -> None:
    second = version("v2", text("address")) | {"selectableFields": [{"jsonPath": ".spec.address"}]}
    async with converting(convert, version("v1", text("hostPort"), storage=True), second) as (hooks, server):
        chosen = f"{target('v2')}?fieldSelector=spec.address%3DX:1"
        for name, port in (("a", "x:1"), ("b", "y:1"), ("c", "x:1")):
            await server.post(target("v1"), host("v1", name, hostPort=port))
        assert [item["metadata"]["name"] for item in (await server.get(chosen))["items"]] == ["a", "c"]
        page = await server.get(f"{chosen}&limit=2")
        assert [item["metadata"]["name"] for item in page["items"]] == ["a"]
        rest = await server.get(f"{chosen}&limit=2&continue={page['metadata']['continue']}")
        assert [item["metadata"]["name"] for item in rest["items"]] == ["c"]
        async with server.watch(f"{chosen}&watch=true") as events:
            assert [e["object"]["metadata"]["name"] for e in await take(events, 2)] == ["a", "c"]
            await server.post(target("v1"), host("v1", "d", hostPort="z:1"))
            await server.patch(target("v1", "d"), {"spec": {"hostPort": "x:1"}})
            await server.patch(target("v1", "a"), {"spec": {"hostPort": "q:1"}})
            seen = [(e["type"], e["object"]["metadata"]["name"]) for e in await take(events, 2)]
            assert seen == [("ADDED", "d"), ("DELETED", "a")]


async def test_a_selecting_watch_sees_objects_leave_in_its_version() -> None:
    async with converting() as (hooks, server):
        labelled = {**host("v1", hostPort="x:1"), "metadata": {"name": "a", "labels": {"mine": "yes"}}}
        await server.post(target("v1"), labelled)
        async with server.watch(f"{target('v2')}?watch=true&labelSelector=mine%3Dyes") as events:
            await take(events, 1)
            await server.patch(target("v1", "a"), {"metadata": {"labels": {"mine": "no"}}})
            [left] = await take(events, 1)
            assert left["type"] == "DELETED"
            assert (left["object"]["apiVersion"], left["object"]["spec"]) == ("example.com/v2", {"address": "X:1"})
            assert int(left["object"]["metadata"]["resourceVersion"]) > 0


async def test_a_watch_ends_with_an_error_when_events_cannot_be_converted() -> None:
    async with converting() as (hooks, server):
        async with server.watch(f"{target('v2')}?watch=true") as events:
            hooks.handlers["/convert"] = lambda review: Response(500, b"oops")
            await server.post(target("v1"), host("v1", hostPort="x:1"))
            [error] = await take(events, 1)
            assert (error["type"], error["object"]["code"]) == ("ERROR", 500)
            assert error["object"]["message"].startswith("conversion webhook for example.com/v1, Kind=Host failed:")


async def test_objects_of_mixed_versions_are_listed_together() -> None:
    async with converting() as (hooks, server):
        await server.post(target("v1"), host("v1", "a", hostPort="x:1"))
        versions = [version("v1", text("hostPort")), version("v2", text("address"), storage=True)]
        await server.patch(f"{DEFINITIONS}/{KEY}", {"spec": {"versions": versions}})
        await server.post(target("v2"), host("v2", "b", address="y:1"))
        assert (stored(server, "a")["apiVersion"], stored(server, "b")["apiVersion"]) == (
            "example.com/v1",
            "example.com/v2",
        )
        for name, field in (("v1", "hostPort"), ("v2", "address")):
            items = (await server.get(target(name)))["items"]
            assert [item["spec"][field].upper() for item in items] == ["X:1", "Y:1"]
            assert {item["apiVersion"] for item in items} == {f"example.com/{name}"}
        await server.patch(target("v1", "a"), {"metadata": {"labels": {"touched": "yes"}}})
        assert stored(server, "a")["apiVersion"] == "example.com/v2"


async def test_objects_stored_in_an_older_version_leave_watches_and_wait_for_deletion_in_the_new_one() -> None:
    async with converting() as (hooks, server):
        metadata = {"labels": {"mine": "yes"}, "finalizers": ["example.com/hold"]}
        await server.post(target("v1"), {**host("v1", hostPort="x:1"), "metadata": {"name": "a", **metadata}})
        await server.post(target("v1"), {**host("v1", hostPort="y:1"), "metadata": {"name": "b", **metadata}})
        versions = [version("v1", text("hostPort")), version("v2", text("address"), storage=True)]
        await server.patch(f"{DEFINITIONS}/{KEY}", {"spec": {"versions": versions}})
        async with server.watch(f"{target('v2')}?watch=true&labelSelector=mine%3Dyes") as events:
            await take(events, 2)
            await server.patch(target("v2", "a"), {"metadata": {"labels": {"mine": "no"}}})
            [left] = await take(events, 1)
            assert left["type"] == "DELETED" and left["object"]["spec"] == {"address": "X:1"}
        await server.delete(target("v1", "b"))
        assert stored(server, "b")["apiVersion"] == "example.com/v2"
        assert stored(server, "b")["spec"] == {"address": "Y:1"}


async def test_deletion_needs_no_conversion_and_finalizers_keep_the_content() -> None:
    async with converting() as (hooks, server):
        await server.post(target("v1"), host("v1", "a", hostPort="x:1"))
        held = {**host("v1", "b", hostPort="x:2"), "metadata": {"name": "b", "finalizers": ["example.com/hold"]}}
        await server.post(target("v1"), held)
        await server.delete(target("v2", "a"))
        assert hooks.reviews == []
        waiting = await server.delete(target("v2", "b"))
        assert waiting["metadata"]["deletionTimestamp"] and waiting["spec"] == {"address": "X:2"}
        assert stored(server, "b")["spec"] == {"hostPort": "x:2"}
        await server.patch(target("v2", "b"), {"metadata": {"finalizers": None}})
        assert (await server.call("GET", target("v1", "b"))).status == 404


async def test_admission_webhooks_see_the_version_they_ask_for() -> None:
    async with converting() as (hooks, server):
        hooks.handlers["/deny"] = lambda review: denied(review["object"]["spec"].get("address", "none"))
        rules = rule("hosts", groups=["example.com"], versions=["v2"])
        await server.post(
            "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
            validating("v", hook("v.example.com", hooks, "/deny", rules)),
        )
        answer = await server.call("POST", target("v1"), host("v1", hostPort="x:1"))
        assert answer.json["message"].endswith("denied the request: X:1")
        [request] = hooks.asked("/deny")
        assert request["kind"]["version"] == "v2" and request["requestKind"]["version"] == "v1"


async def test_webhooks_that_list_an_old_review_version_first_get_it() -> None:
    async with converting(reviews=("v1beta1", "v1")) as (hooks, server):
        await server.post(target("v2"), host("v2", address="x:1"))
        assert {review["apiVersion"] for _, review in hooks.reviews} == {"apiextensions.k8s.io/v1beta1"}


def changed(**metadata: Any) -> Callable[[Obj], list[Obj]]:
    def handle(review: Obj) -> list[Obj]:
        return [{**obj, "metadata": {**obj["metadata"], **metadata}} for obj in convert(review)]

    return handle


async def test_labels_and_annotations_may_change_and_nothing_else_of_the_metadata() -> None:
    handler = changed(labels={"l": "1"}, annotations={"a": "1"}, generation=99, finalizers=["example.com/x"])
    async with converting(handler) as (hooks, server):
        made = await server.post(target("v1"), host("v1", hostPort="x:1"))
        seen = await server.get(target("v2", "a"))
        assert (seen["metadata"]["labels"], seen["metadata"]["annotations"]) == ({"l": "1"}, {"a": "1"})
        del seen["metadata"]["labels"], seen["metadata"]["annotations"]
        assert seen["metadata"] == made["metadata"]


BAD: dict[str, tuple[Callable[[Obj], Any], str]] = {
    "name": (changed(name="z"), "returned invalid converted object at index 0: must have the same name: a != z"),
    "uid": (changed(uid="x"), "must have the same UID: "),
    "namespace": (changed(namespace="x"), "must have the same namespace: default != x"),
    "labels": (changed(labels={"!": "x"}), "metadata.labels: Invalid value"),
    "label type": (changed(labels={"a": 1}), "metadata.labels[a] must be a string"),
    "version": (lambda r: r["objects"], "invalid groupVersion (expected example.com/v2, received example.com/v1)"),
    "kind": (lambda r: [{**o, "kind": "X"} for o in convert(r)], "invalid kind (expected Host, received X)"),
    "number": (lambda r: [], "returned 0 objects, expected 1"),
    "failure": (lambda r: {"result": {"status": "Failure", "message": "cannot"}}, "failed: cannot"),
    "silent failure": (lambda r: {"result": {}}, "response.result.status was '', not 'Success'"),
    "uid of the review": (
        lambda r: {"uid": "x", "convertedObjects": convert(r), "result": {"status": "Success"}},
        "failed: expected response.uid=",
    ),
    "no metadata": (
        lambda r: [{k: v for k, v in o.items() if k != "metadata"} for o in convert(r)],
        "missing metadata in converted object",
    ),
    "no object": (lambda r: [1], "it is not an object"),
    "status code": (lambda r: Response(503, b""), "the server is currently unable to handle the request"),
}


@pytest.mark.parametrize("case", BAD)
async def test_a_conversion_that_cannot_be_used_is_an_internal_error(case: str) -> None:
    handler, why = BAD[case]

    async with converting(handler) as (hooks, server):
        await server.post(target("v1"), host("v1", hostPort="x:1"))
        for place in (target("v2", "a"), target("v2")):
            answer = await server.call("GET", place)
            assert (answer.status, answer.json["reason"]) == (500, "InternalError")
            assert answer.json["message"].startswith("conversion webhook for example.com/v1, Kind=Host ")
            assert why in answer.json["message"]
        assert (await server.call("POST", target("v2"), host("v2", "b", address="y"))).status == 500
        assert (await server.call("GET", target("v1", "b"))).status == 404


async def test_what_a_conversion_adds_is_pruned_and_defaulted() -> None:
    schema = text("address")
    schema["properties"]["spec"]["properties"]["mode"] = {"type": "string", "default": "plain"}

    def handler(review: Obj) -> list[Obj]:
        return [{**obj, "spec": {**obj["spec"], "unknown": "1"}} for obj in convert(review)]

    versions = (version("v1", text("hostPort"), storage=True), version("v2", schema))
    async with converting(handler, *versions) as (hooks, server):
        await server.post(target("v1"), host("v1", hostPort="x:1"))
        assert (await server.get(target("v2", "a")))["spec"] == {"address": "X:1", "mode": "plain"}
        await server.post(target("v2"), host("v2", "b", address="y:1"))
        assert stored(server, "b")["spec"] == {"hostPort": "Y:1"}


async def test_a_definition_with_a_dead_webhook_can_be_deleted() -> None:
    async with converting() as (hooks, server):
        await server.post(target("v1"), host("v1", hostPort="x:1"))
        hooks.handlers.clear()
        await server.delete(f"{DEFINITIONS}/{KEY}")

        async def is_gone() -> bool:
            return (await server.call("GET", f"{DEFINITIONS}/{KEY}")).status == 404

        await eventually(is_gone)


async def test_a_storage_version_that_is_not_served_still_stores() -> None:
    versions = (version("v1", text("hostPort"), storage=True, served=False), version("v2", text("address")))
    async with converting(convert, *versions) as (hooks, server):
        made = await server.post(target("v2"), host("v2", address="x:1"))
        assert made["spec"] == {"address": "X:1"}
        assert stored(server)["apiVersion"] == "example.com/v1"
