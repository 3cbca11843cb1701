"""One custom kind in several versions, and definitions that change under their objects."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from cluster_invariants import Probe
from cluster_objects import BACKUPS, example

from shoal.testing.servers import PATCHES, LocalServer, local_server, take

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
CRD = f"{CRDS}/backups.shop.example"
V1, V2 = BACKUPS, BACKUPS.replace("/v1/", "/v2/")


@asynccontextmanager
async def serving() -> AsyncIterator[LocalServer]:
    async with local_server() as server:
        async with asyncio.timeout(30):
            yield server


def two_versions(storage: str) -> dict[str, Any]:
    """v1 as in the example; v2 without its port and with a field of its own."""
    definition = example("apiextensions.k8s.io/v1", "CustomResourceDefinition")
    (first,) = definition["spec"]["versions"]
    second = copy.deepcopy(first)
    second["name"] = "v2"
    properties = second["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    del properties["port"]
    properties["level"] = {"type": "string", "default": "full"}
    first["storage"], second["storage"] = storage == "v1", storage == "v2"
    definition["spec"]["versions"] = [first, second]
    return definition


@pytest.mark.parametrize("storage", ["v1", "v2"])
@pytest.mark.parametrize("made_as", ["v1", "v2"])
async def test_an_object_can_be_written_through_every_version(storage: str, made_as: str) -> None:
    async with serving() as server:
        await server.post(CRDS, two_versions(storage))
        backup = {**example("shop.example/v1", "Backup"), "apiVersion": f"shop.example/{made_as}"}
        await server.post({"v1": V1, "v2": V2}[made_as], backup)
        for version, where in (("v1", V1), ("v2", V2), ("v1", V1)):
            target, api_version = f"{where}/nightly", f"shop.example/{version}"
            read = await server.get(target)
            assert read["apiVersion"] == api_version
            assert (await server.put(target, read)) == read, "nothing was changed"
            assert (await server.patch(target, {})) == read
            changed = await server.patch(target, {"spec": {"target": f"db-{version}"}})
            assert (
                changed["spec"] == read["spec"] | {"target": f"db-{version}"} and changed["apiVersion"] == api_version
            )
            applied = {
                "apiVersion": api_version,
                "kind": "Backup",
                "metadata": {"name": "nightly"},
                "spec": {"target": "db"},
            }
            answer = await server.call(
                "PATCH", f"{target}?fieldManager=a&force=true", applied, {"content-type": PATCHES["apply"]}
            )
            assert answer.ok()["spec"]["target"] == "db" and answer.json["apiVersion"] == api_version
            (item,) = (await server.get(where))["items"]
            assert item == await server.get(target) == answer.json
            async with server.watch(f"{where}?watch=1") as events:
                assert (await take(events, 1))[0]["object"] == item
            assert ("level" in item["spec"]) == (version == "v2") and not (version == "v2" and "port" in item["spec"])


async def test_objects_follow_a_definition_that_changes() -> None:
    async with serving() as server:
        probe = Probe(server)
        await server.post(CRDS, example("apiextensions.k8s.io/v1", "CustomResourceDefinition"))
        await server.post(V1, example("shop.example/v1", "Backup"))
        await probe.check_stored(V1, "nightly")
        definition = await server.get(CRD)
        definition["spec"]["versions"] = two_versions("v2")["spec"]["versions"]
        await server.put(CRD, definition)
        await probe.check_stored(V1, "nightly")
        await probe.check_stored(V2, "nightly")
        definition = await server.get(CRD)
        del definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["steps"]
        await server.put(CRD, definition)
        assert "steps" not in (await server.get(f"{V1}/nightly"))["spec"]
        assert "steps" in (await server.get(f"{V2}/nightly"))["spec"]
        await probe.check_stored(V1, "nightly")
        await probe.remove(V2, "nightly")


async def test_a_watch_of_a_definition_that_changes_or_goes_is_ended() -> None:
    async with serving() as server:
        await server.post(CRDS, example("apiextensions.k8s.io/v1", "CustomResourceDefinition"))
        for change in ("PUT", "DELETE"):
            async with server.watch(f"{V1}?watch=1") as events:
                definition = await server.get(CRD)
                definition["spec"]["versions"][0]["additionalPrinterColumns"] = []
                assert (await server.call(change, CRD, definition if change == "PUT" else None)).status == 200
                async with asyncio.timeout(30):
                    assert [event async for event in events] == []
        assert (await server.call("GET", V1)).status == 404
