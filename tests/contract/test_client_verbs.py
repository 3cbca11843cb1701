"""The contract of the client's verbs, for every transport."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from shoal.client import PatchType, ResourceClient, Scope, builtin
from shoal.errors import AlreadyExists, BadRequest, Conflict, InternalError, Invalid, NotFound, UnsupportedMediaType

CONFIG_MAPS = builtin("configmaps")


def config_map(name: str, namespace: str, **data: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": namespace}, "data": data}


async def fill(maps: ResourceClient, namespace: str, count: int) -> None:
    for number in range(count):
        await maps.create(config_map(f"m{number:03}", namespace))


async def test_an_object_is_created_read_replaced_and_deleted(api) -> None:
    async with api.opened() as cluster:
        maps, ns = cluster.client().of(CONFIG_MAPS), cluster.namespace
        made = await maps.create(config_map("a", ns, colour="red"))
        assert made["metadata"]["uid"]
        assert await maps.get("a", ns) == made

        made["data"]["colour"] = "blue"
        replaced = await maps.replace(made)
        assert replaced["data"] == {"colour": "blue"}
        assert int(replaced["metadata"]["resourceVersion"]) > int(made["metadata"]["resourceVersion"])

        await maps.delete("a", ns)
        with pytest.raises(NotFound):
            await maps.get("a", ns)


async def test_errors_come_back_as_the_classes_the_server_raised(api) -> None:
    async with api.opened() as cluster:
        client, ns = cluster.client(), cluster.namespace
        maps = client.of(CONFIG_MAPS)
        made = await maps.create(config_map("a", ns))
        with pytest.raises(AlreadyExists) as exists:
            await maps.create(config_map("a", ns))
        assert exists.value.details == {"name": "a", "kind": "configmaps"}
        await maps.replace({**made, "data": {"x": "1"}})
        with pytest.raises(Conflict):
            await maps.replace({**made, "data": {"x": "2"}})
        with pytest.raises(Invalid) as invalid:
            await maps.create(config_map("Not A Name", ns))
        assert any(cause["field"] == "metadata.name" for cause in invalid.value.causes)
        with pytest.raises(NotFound):
            await client.resource("nobody.example", "v1", "things").get("a", ns)
        with pytest.raises(BadRequest):
            await maps.list(Scope(namespace=ns, label_selector="a in (b"))
        with pytest.raises(UnsupportedMediaType):
            await client.request("PATCH", CONFIG_MAPS.path(ns, "a"), body=b"x", content_type="text/plain")
        with pytest.raises(Conflict):
            await maps.delete("a", ns, uid="another")


async def test_each_kind_of_patch_does_what_its_name_says(api) -> None:
    async with api.opened() as cluster:
        client, ns = cluster.client(), cluster.namespace
        maps, pods = client.of(CONFIG_MAPS), client.of(builtin("pods"))
        await maps.create(config_map("a", ns, one="1", two="2"))
        assert (await maps.patch("a", {"data": {"one": None}}, ns))["data"] == {"two": "2"}
        operations = [{"op": "add", "path": "/data/three", "value": "3"}]
        patched = await maps.patch("a", operations, ns, type=PatchType.JSON)
        assert patched["data"] == {"two": "2", "three": "3"}

        spec = {"containers": [{"name": "main", "image": "one"}, {"name": "side", "image": "two"}]}
        await pods.create({"metadata": {"name": "p", "namespace": ns}, "spec": spec})
        change = {"spec": {"containers": [{"name": "side", "image": "three"}]}}
        pod = await pods.patch("p", change, ns, type=PatchType.STRATEGIC)
        assert [c["image"] for c in pod["spec"]["containers"]] == ["one", "three"]
        status = await pods.patch("p", {"status": {"phase": "Running"}}, ns, subresource="status")
        assert status["status"]["phase"] == "Running"


async def test_apply_owns_its_fields_and_conflicts_with_other_owners(api) -> None:
    async with api.opened() as cluster:
        maps, ns = cluster.client().of(CONFIG_MAPS), cluster.namespace
        await maps.apply(config_map("a", ns, colour="red", size="1"), field_manager="one")
        with pytest.raises(Conflict) as conflict:
            await maps.apply(config_map("a", ns, colour="blue"), field_manager="two")
        assert [cause["field"] for cause in conflict.value.causes] == [".data.colour"]
        forced = await maps.apply(config_map("a", ns, colour="blue"), field_manager="two", force=True)
        assert forced["data"] == {"colour": "blue", "size": "1"}
        dropped = await maps.apply(config_map("a", ns), field_manager="one")
        assert dropped["data"] == {"colour": "blue"}


async def test_a_list_in_pages_has_every_object_once_at_one_revision(api) -> None:
    async with api.opened() as cluster:
        maps, scope = cluster.client().of(CONFIG_MAPS), Scope(namespace=cluster.namespace, label_selector="")
        await fill(maps, cluster.namespace, 12)
        pages = [page async for page in maps.pages(scope, limit=5)]
        names = [item["metadata"]["name"] for page in pages for item in page.items]
        assert [name for name in names if name.startswith("m")] == [f"m{n:03}" for n in range(12)]
        assert len({page.resource_version for page in pages}) == 1
        assert len(pages) == 3
        listed = await maps.list(scope, limit=5)
        assert listed.items == [item for page in pages for item in page.items]
        assert listed.items[0]["kind"] == "ConfigMap"


async def test_pages_show_the_first_pages_revision_while_objects_change(api) -> None:
    async with api.opened() as cluster:
        maps, ns = cluster.client().of(CONFIG_MAPS), cluster.namespace
        await fill(maps, ns, 6)
        seen = []
        async for page in maps.pages(Scope(namespace=ns), limit=3):
            seen += [item["metadata"]["name"] for item in page.items]
            await maps.create(config_map(f"z{len(seen)}", ns))
        assert not [name for name in seen if name.startswith("z")]


async def test_delete_collection_removes_what_is_selected(api) -> None:
    async with api.opened() as cluster:
        maps, ns = cluster.client().of(CONFIG_MAPS), cluster.namespace
        await fill(maps, ns, 3)
        await maps.patch("m001", {"metadata": {"labels": {"keep": "no"}}}, ns)
        await maps.delete_collection(Scope(namespace=ns, label_selector="keep=no"))
        left = [item["metadata"]["name"] for item in (await maps.list(Scope(namespace=ns))).items]
        assert [name for name in left if name.startswith("m")] == ["m000", "m002"]


async def test_status_scale_binding_and_eviction_are_reached(api) -> None:
    async with api.opened() as cluster:
        client, ns = cluster.client(), cluster.namespace
        sets, pods = client.of(builtin("deployments", "apps")), client.of(builtin("pods"))
        template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        spec = {"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": template}
        made = await sets.create({"metadata": {"name": "d", "namespace": ns}, "spec": spec})
        made["status"] = {"replicas": 7}
        assert (await sets.replace_status(made))["status"]["replicas"] == 7
        assert (await sets.scale("d", 3, ns))["spec"]["replicas"] == 3
        assert (await sets.get_subresource("d", "scale", ns))["spec"]["replicas"] == 3
        assert (await sets.get("d", ns))["spec"]["replicas"] == 3

        pod = await pods.create({"metadata": {"name": "p", "namespace": ns}, "spec": template["spec"]})
        await pods.bind("p", "node-1", ns, uid=pod["metadata"]["uid"])
        assert (await pods.get("p", ns))["spec"]["nodeName"] == "node-1"
        with pytest.raises(Conflict):
            await pods.bind("p", "node-2", ns)
        await pods.evict("p", ns, grace_period_s=0)
        with pytest.raises(NotFound):
            await pods.get("p", ns)


async def test_a_service_account_gets_a_token(api) -> None:
    async with api.opened() as cluster:
        accounts = cluster.client().of(builtin("serviceaccounts"))
        await accounts.create({"metadata": {"name": "robot", "namespace": cluster.namespace}})
        asked = accounts.token("robot", cluster.namespace, audiences=("shoal",), expires_s=600)
        if api.process is None:  # a server in process has no key to sign with, and says so
            with pytest.raises(InternalError):
                await asked
        else:
            assert (await asked).count(".") == 2


async def test_dry_run_answers_but_keeps_nothing(api) -> None:
    async with api.opened() as cluster:
        maps, ns = cluster.client().of(CONFIG_MAPS), cluster.namespace
        assert (await maps.create(config_map("a", ns), dry_run=True))["metadata"]["name"] == "a"
        with pytest.raises(NotFound):
            await maps.get("a", ns)


DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "boats.harbour.example"},
    "spec": {
        "group": "harbour.example",
        "scope": "Namespaced",
        "names": {"plural": "boats", "singular": "boat", "kind": "Boat", "listKind": "BoatList"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}


async def test_a_kind_defined_after_the_first_look_is_found(api) -> None:
    async with api.opened() as cluster:
        client, ns = cluster.client(), cluster.namespace
        assert (await client.by_kind("Deployment")).type == builtin("deployments", "apps")
        with pytest.raises(NotFound):
            await client.by_kind("Boat")
        definitions = client.of(builtin("customresourcedefinitions", "apiextensions.k8s.io"))
        await definitions.create(DEFINITION)
        try:
            boats = await client.by_kind("Boat", "harbour.example/v1")
            assert boats.type.namespaced
            await boats.create({"metadata": {"name": "b", "namespace": ns}, "sails": 2})
            assert (await boats.get("b", ns))["sails"] == 2
        finally:
            await definitions.delete("boats.harbour.example")


async def test_concurrent_lookups_of_an_unknown_kind_share_one_request(api) -> None:
    async with api.opened() as cluster:
        asked = []

        class Counting:
            async def request(self, method, target, **options):
                asked.append(target)
                return await cluster.transport.request(method, target, **options)

        client = cluster.client(Counting())
        found = await asyncio.gather(*(client.by_kind("Pod") for _ in range(10)))
        assert {each.type for each in found} == {builtin("pods")}
        assert asked == ["/api", "/apis"]


async def test_a_server_without_the_aggregated_form_is_asked_group_by_group(api) -> None:
    async with api.opened() as cluster:

        class Legacy:
            async def request(self, method, target, *, headers=None, body=b""):
                return await cluster.transport.request(
                    method, target, headers={**headers, "accept": "application/json"}
                )

        types = set(await cluster.client(Legacy()).resource_types())
        assert types == set(await cluster.client().resource_types())
