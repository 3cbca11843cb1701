"""APIServices of what the server serves itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from shoal.testing.servers import LocalServer, local_server
from shoal.testing.waiting import eventually

BASE = "/apis/apiregistration.k8s.io/v1/apiservices"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
LABEL = "kube-aggregator.kubernetes.io/automanaged"


def definition(plural: str = "ships", versions: tuple[str, ...] = ("v1",)) -> dict[str, Any]:
    schema = {"openAPIV3Schema": {"type": "object"}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.sea.example"},
        "spec": {
            "group": "sea.example",
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": plural.capitalize(), "singular": plural[:-1]},
            "versions": [
                {"name": version, "served": True, "storage": number == 0, "schema": schema}
                for number, version in enumerate(versions)
            ],
        },
    }


async def names(server: LocalServer) -> set[str]:
    return {item["metadata"]["name"] for item in (await server.get(BASE))["items"]}


async def test_every_built_in_group_version_has_a_local_api_service() -> None:
    async with local_server() as server:
        found = {item["metadata"]["name"]: item for item in (await server.get(BASE))["items"]}
        groups = (await server.get("/apis"))["groups"]
        served = {f"{each['version']}.{group['name']}" for group in groups for each in group["versions"]}
        assert found.keys() == {"v1.", *served} - {"v1.apiregistration.k8s.io"}
        deployments = found["v1.apps"]
        assert deployments["metadata"]["labels"] == {LABEL: "onstart"}
        assert deployments["spec"] == {
            "group": "apps", "version": "v1", "groupPriorityMinimum": 17800, "versionPriority": 15
        }  # fmt: skip
        condition = deployments["status"]["conditions"][0]
        assert condition.pop("lastTransitionTime")
        assert condition == {
            "type": "Available",
            "status": "True",
            "reason": "Local",
            "message": "Local APIServices are always available",
        }


async def test_api_services_of_definitions_come_and_go_with_their_versions() -> None:
    async with local_server() as server:
        await server.post(CRDS, definition(versions=("v1", "v1beta1")))
        await server.post(CRDS, definition("boats"))

        async def registered(wanted: set[str]) -> bool:
            return {name for name in await names(server) if name.endswith("sea.example")} == wanted

        await eventually(lambda: registered({"v1.sea.example", "v1beta1.sea.example"}))
        made = await server.get(f"{BASE}/v1.sea.example")
        assert made["metadata"]["labels"] == {LABEL: "true"}
        assert made["spec"]["groupPriorityMinimum"], made["spec"]["versionPriority"] == (1000, 100)
        await server.delete(f"{BASE}/v1.sea.example")  # comes back
        await server.patch(f"{BASE}/v1beta1.sea.example", {"spec": {"versionPriority": 7}})

        async def restored() -> bool:
            answers = [await server.call("GET", f"{BASE}/{name}.sea.example") for name in ("v1", "v1beta1")]
            return all(each.status == 200 and each.json["spec"]["versionPriority"] == 100 for each in answers)

        await eventually(restored)
        await server.delete(f"{CRDS}/ships.sea.example")
        await eventually(lambda: registered({"v1.sea.example"}))
        await server.delete(f"{CRDS}/boats.sea.example")
        await eventually(lambda: registered(set()))


async def test_a_start_restores_those_of_built_in_groups_and_writes_nothing_else(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    async with local_server(url) as server:
        before = await server.get(BASE)
    async with local_server(url) as server:
        assert (await server.get(BASE))["items"] == before["items"]
        await server.delete(f"{BASE}/v1.batch")
        await server.patch(f"{BASE}/v1.apps", {"spec": {"groupPriorityMinimum": 5}})
    async with local_server(url) as server:
        assert await names(server) == {item["metadata"]["name"] for item in before["items"]}
        assert (await server.get(f"{BASE}/v1.apps"))["spec"]["groupPriorityMinimum"] == 17800


async def test_an_api_service_of_a_user_is_left_alone() -> None:
    async with local_server() as server:
        own = {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": "v1.sea.example"},
            "spec": {"group": "sea.example", "version": "v1", "groupPriorityMinimum": 2000, "versionPriority": 9},
        }
        made = await server.post(BASE, own)
        assert made["status"]["conditions"][0]["reason"] == "Local"
        await server.post(CRDS, definition())
        await server.delete(f"{CRDS}/ships.sea.example")
        assert (await server.get(f"{BASE}/v1.sea.example"))["spec"] == made["spec"]


async def test_priorities_of_api_services_order_discovery() -> None:
    async with local_server() as server:
        await server.post(CRDS, definition(versions=("v1", "v2")))

        async def order() -> list[str]:
            group = (await server.get("/apis/sea.example"))["versions"]
            return [each["version"] for each in group]

        assert await order() == ["v2", "v1"]
        for version, priority in (("v1", 50), ("v2", 20)):
            path = f"{BASE}/{version}.sea.example"
            await eventually(lambda path=path: exists(server, path))
            await server.patch(path, {"metadata": {"labels": {LABEL: None}}, "spec": {
                "versionPriority": priority, "groupPriorityMinimum": 18000,
            }})  # fmt: skip
        assert await order() == ["v1", "v2"]
        groups = [group["name"] for group in (await server.get("/apis"))["groups"]]
        assert groups[:3] == ["apiregistration.k8s.io", "sea.example", "apps"]


async def exists(server: LocalServer, path: str) -> bool:
    return (await server.call("GET", path)).status == 200
