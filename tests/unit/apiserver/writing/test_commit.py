"""The limit on the size of a stored object: whatever made it grow, the write is refused and nothing changes."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from shoal.apiserver import objects
from shoal.store import Key, Put
from shoal.testing.servers import PATCHES, LocalServer, local_server
from shoal.testing.waiting import eventually

LIMIT = 3 * 1024 * 1024
PODS = "/api/v1/namespaces/default/pods"
THINGS = "/apis/example.com/v1/namespaces/default/things"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
FREE = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def a_thing(fill: str = "", **more: Any) -> dict[str, Any]:
    meta = {"name": "a", "annotations": {"kept": "yes"}}
    return {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": meta, "spec": {"a": fill}, **more}


async def define_things(server: LocalServer) -> None:
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": FREE}, "subresources": {"status": {}}}  # fmt: skip
    names = {"plural": "things", "kind": "Thing", "listKind": "ThingList", "singular": "thing"}
    spec = {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]}
    await server.post(DEFINITIONS, {"metadata": {"name": "things.example.com"}, "spec": spec})

    async def answers() -> bool:
        return (await server.call("GET", THINGS)).status == 200

    await eventually(answers, what="the custom kind is served")


def half(letter: str) -> str:
    return letter * (LIMIT // 2)


@pytest.mark.parametrize(
    ("path", "kind", "body"),
    [
        ("", "merge", {"spec": {"b": half("b")}}),
        ("", "json", [{"op": "add", "path": "/spec/b", "value": half("b")}]),
        ("", "json", [{"op": "copy", "from": "/spec/a", "path": "/spec/b"}]),
        ("?fieldManager=other", "apply", a_thing() | {"spec": {"b": half("b")}}),
        ("/status", "merge", {"status": {"b": half("b")}}),
        ("?dryRun=All", "merge", {"spec": {"b": half("b")}}),
    ],
    ids=["merge", "json", "copy", "apply", "status", "dry run"],
)
async def test_no_patch_makes_an_object_larger_than_the_limit(path: str, kind: str, body: Any) -> None:
    async with local_server() as server:
        await define_things(server)
        made = await server.post(THINGS, a_thing(half("a")))
        revision = server.store.revision
        answer = await server.call("PATCH", f"{THINGS}/a{path}", body, {"content-type": PATCHES[kind]})
        assert (answer.status, answer.json["reason"]) == (413, "RequestEntityTooLarge")
        assert f"limit is {LIMIT} bytes" in answer.json["message"]
        size = int(answer.json["message"].split(" would have ")[1].split()[0])
        assert LIMIT < size < LIMIT + 2000
        assert await server.get(f"{THINGS}/a") == made and server.store.revision == revision


async def test_field_owners_count_and_a_new_object_of_a_built_in_kind_is_limited_too() -> None:
    async with local_server() as server:
        env = [{"name": f"V{number}", "value": "x" * 60} for number in range(22_000)]
        pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i", "env": env}]}}
        assert len(orjson.dumps(pod)) < 0.8 * LIMIT
        answer = await server.call("POST", PODS, pod)
        assert (answer.status, answer.json["reason"]) == (413, "RequestEntityTooLarge")
        assert 'pods "p"' in answer.json["message"]
        assert (await server.call("GET", f"{PODS}/p")).status == 404


async def too_large(server: LocalServer) -> None:
    """A thing beyond the limit, as an earlier version may have stored it."""
    await define_things(server)
    made = await server.post(THINGS, a_thing())
    entry = server.store.get(Key("things.example.com", "default", "a"))
    assert entry is not None
    value, hole = objects.encode({**made, "spec": {"a": "a" * LIMIT, "b": "b" * LIMIT}}, "Thing", "example.com/v1")
    await server.store.commit([Put(entry.key, value, hole, entry.attrs)])


async def test_a_write_that_makes_a_large_object_smaller_passes_and_one_that_makes_it_larger_does_not() -> None:
    async with local_server() as server:
        await too_large(server)
        grow = await server.call("PATCH", f"{THINGS}/a", {"spec": {"c": "c"}}, {"content-type": PATCHES["merge"]})
        assert grow.status == 413
        made = await server.patch(f"{THINGS}/a", {"spec": {"b": "b" * (LIMIT - 5000)}})  # smaller, and still too large
        assert len(made["spec"]["b"]) == LIMIT - 5000
        made = await server.patch(f"{THINGS}/a", {"spec": {"a": None}})
        assert "a" not in made["spec"]


async def test_a_large_object_can_be_deleted_also_when_something_waits_for_its_deletion() -> None:
    async with local_server() as server:
        await too_large(server)
        entry = server.store.get(Key("things.example.com", "default", "a"))
        assert entry is not None
        held = objects.decode(entry)
        held["metadata"]["finalizers"] = ["example.com/wait"]
        value, hole = objects.encode(held, "Thing", "example.com/v1")
        await server.store.commit([Put(entry.key, value, hole, entry.attrs)])
        await server.delete(f"{THINGS}/a")
        await server.patch(f"{THINGS}/a", {"metadata": {"finalizers": None}})
        assert (await server.call("GET", f"{THINGS}/a")).status == 404
