"""The sweep: every object gets a slot once, however it is named and wherever it is; children follow their owner."""

from __future__ import annotations

from shard_world import NAMESPACE, World, manager_of, world

from shoal.client import ResourceClient, Scope, builtin
from shoal.kube.objects import Obj
from shoal.sharding.model import slot_label, slot_of
from shoal.sharding.ring import object_key, slot_of_key
from shoal.testing.waiting import eventually

LABEL = slot_label("web")


async def kind(w: World, name: str, plural: str, *, namespaced: bool = True) -> ResourceClient:
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
    }
    await w.client.of(builtin("customresourcedefinitions", "apiextensions.k8s.io")).create(
        {
            "metadata": {"name": f"{plural}.example.com"},
            "spec": {
                "group": "example.com",
                "scope": "Namespaced" if namespaced else "Cluster",
                "names": {"kind": name, "plural": plural, "singular": name.lower()},
                "versions": [version],
            },
        }
    )
    return await w.client.by_kind(name, "example.com/v1")


def website(name: str, namespace: str = NAMESPACE, **labels: str) -> Obj:
    about: Obj = {"namespace": namespace, "labels": labels}
    about |= {"generateName": name} if name.endswith("-") else {"name": name}
    return {"apiVersion": "example.com/v1", "kind": "Website", "metadata": about}


async def slots(resource: ResourceClient) -> dict[str, int]:
    """The slot of every object; fails while one has none."""
    found = {}
    for obj in (await resource.list()).items:
        slot = slot_of(obj, "web")
        assert slot is not None, obj["metadata"]["name"]
        found[obj["metadata"]["name"]] = slot
    return found


async def test_every_object_of_a_target_gets_a_slot_and_keeps_it() -> None:
    async with world(manager=False) as w:
        websites = await kind(w, "Website", "websites")
        tenants = await kind(w, "Tenant", "tenants", namespaced=False)
        for number in range(20):
            await websites.create(website(f"site-{number}"))
        await websites.create(website("chosen", **{LABEL: "17"}))
        await tenants.create({"metadata": {"name": "acme"}})
        owner = await websites.get("site-0", NAMESPACE)
        reference = {
            "apiVersion": "example.com/v1", "kind": "Website", "name": "site-0", "uid": owner["metadata"]["uid"],
            "controller": True,
        }  # fmt: skip
        children = w.client.of(builtin("configmaps"))
        for name, owners in (("child", [reference]), ("stranger", [])):
            await children.create({"metadata": {"name": name, "namespace": NAMESPACE, "ownerReferences": owners}})
        targets = [
            {"group": "example.com", "kind": "Website", "controlled": [{"kind": "ConfigMap"}]},
            {"group": "example.com", "kind": "Tenant"},
        ]
        async with manager_of(w, period_s=0.5):
            await w.config("web", targets=targets, healthCheckInterval="500ms")
            found = await eventually(lambda: slots(websites))
            for number in range(20):
                key = object_key("example.com", "Website", NAMESPACE, f"site-{number}")
                assert found[f"site-{number}"] == slot_of_key(key)
            assert found["chosen"] == 17
            assert await eventually(lambda: slots(tenants)) == {"acme": slot_of_key("example.com/Tenant//acme")}
            for _ in range(5):
                await websites.create(website("made-"))
            assert len(await eventually(lambda: slots(websites))) == 26

            async def child_follows() -> bool:
                child = await children.get("child", NAMESPACE)
                return slot_of(child, "web") == found["site-0"]

            await eventually(child_follows)
            assert slot_of(await children.get("stranger", NAMESPACE), "web") is None
            await eventually(lambda: counted(w, 27))


async def counted(w: World, count: int) -> bool:
    return (await w.status("web")).get("assignedCount") == count


async def test_only_selected_objects_get_a_slot_also_in_a_namespace_that_is_selected_later() -> None:
    async with world() as w:
        websites = await kind(w, "Website", "websites")
        namespaces = w.client.of(builtin("namespaces"))
        for name in ("in", "out"):
            await namespaces.create({"metadata": {"name": name, "labels": {"team": name}}})
            await websites.create(website("a", name, tier="gold"))
            await websites.create(website("b", name, tier="tin"))
        selectors = {
            "selector": {"matchLabels": {"tier": "gold"}},
            "namespaceSelector": {"matchLabels": {"team": "in"}},
        }
        await w.config("web", targets=[{"group": "example.com", "kind": "Website", **selectors}])

        async def labelled() -> set[tuple[str, str]]:
            found = (await websites.list(Scope(label_selector=LABEL))).items
            return {(obj["metadata"]["namespace"], obj["metadata"]["name"]) for obj in found}

        async def are(*expected: tuple[str, str]) -> bool:
            return await labelled() == set(expected)

        await eventually(lambda: are(("in", "a")))
        await namespaces.patch("out", {"metadata": {"labels": {"team": "in"}}})
        await eventually(lambda: are(("in", "a"), ("out", "a")))


async def test_strategies_can_be_changed_while_objects_come() -> None:
    async with world() as w:
        websites = await kind(w, "Website", "websites")
        await w.config("web", loadBalanceStrategy="round-robin", targets=[{"group": "example.com", "kind": "Website"}])
        for name in "ab":
            w.worker("web", name).start()
        await w.shared_by("web", "a", "b")
        for number in range(30):
            await websites.create(website(f"turn-{number}"))
        found = await eventually(lambda: slots(websites))
        assert len(set(found.values())) == 30
        await w.configs.patch("web", {"spec": {"loadBalanceStrategy": "consistent-hash"}}, NAMESPACE)
        await websites.create(website("hashed"))

        async def hashed() -> bool:
            expected = slot_of_key(object_key("example.com", "Website", NAMESPACE, "hashed"))
            return (await slots(websites))["hashed"] == expected

        await eventually(hashed)
        assert {name: slot for name, slot in (await slots(websites)).items() if name != "hashed"} == found
