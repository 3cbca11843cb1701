"""Many clients at once: what they are given is theirs alone, what they were told is stored is stored, nothing is left over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from operator import ge
from pathlib import Path
from typing import Any

from cluster_objects import BACKUPS, example

from shoal.apiserver.context import ServerConfig
from shoal.store import Key
from shoal.testing.servers import PATCHES, LocalServer, local_server
from shoal.testing.waiting import eventually

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
SERVICES = "/api/v1/namespaces/default/services"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@asynccontextmanager
async def serving(path: Path, config: ServerConfig | None = None) -> AsyncIterator[LocalServer]:
    """With a store on disk: commits take time, so that requests really overlap."""

    async with local_server(f"sqlite:///{path}/store.db", config=config) as server:
        async with asyncio.timeout(60):
            yield server


async def call(server: LocalServer, method: str, target: str, body: Any = None, patch: str = "") -> int:
    headers = {"content-type": PATCHES[patch]} if patch else None
    answer = await server.call(method, target, body, headers)
    assert answer.status < 500, (method, target, answer.status, answer.body)
    return answer.status


async def gone(server: LocalServer, key: Key) -> None:
    """Return when the server has removed an object that it was asked to delete."""
    await eventually(lambda: server.store.get(key) is None, what=f"the removal of {key}")


def a_service(name: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {"type": "NodePort", "ports": [{"name": "a", "port": 1}, {"name": "b", "port": 2}]},
    }


def check_allocations(server: LocalServer, services: list[Any]) -> None:
    """Addresses and ports are unique, and what is reserved is exactly what is in use."""
    addresses = [s["spec"]["clusterIP"] for s in services if s["spec"].get("clusterIP", "None") != "None"]
    ports = [p["nodePort"] for s in services for p in s["spec"]["ports"] if p.get("nodePort")]
    assert len(set(addresses)) == len(addresses) and len(set(ports)) == len(ports)
    reserved = {entry.key.name for entry in server.store.range("ipaddresses.networking.k8s.io").entries}
    assert reserved == set(addresses)
    reserved = {entry.key.name for entry in server.store.range("services.nodeports").entries}
    assert reserved == {f"{port}-tcp" for port in ports}


async def test_addresses_and_node_ports_of_services_are_unique(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:

        async def client(number: int) -> None:
            for turn in range(4):
                target = f"{SERVICES}/s{number}-{turn}"
                assert await call(server, "POST", SERVICES, a_service(f"s{number}-{turn}")) == 201
                if turn == 1:
                    assert await call(server, "DELETE", target) == 200
                if turn == 2:
                    assert await call(server, "PATCH", target, {"spec": {"type": "ClusterIP"}}, "merge") == 200

        await asyncio.gather(*map(client, range(50)))
        check_allocations(server, (await server.get(SERVICES))["items"])


async def test_a_range_that_is_full_refuses_and_gives_again_what_is_freed(tmp_path: Path) -> None:
    async with serving(
        tmp_path, ServerConfig(ca_certificate="x", service_cidr="10.0.0.0/28", node_ports=(30000, 30039))
    ) as server:
        names = [f"s{n}" for n in range(30)]
        statuses = await asyncio.gather(*(call(server, "POST", SERVICES, a_service(name)) for name in names))
        free = 14 - 1 - 1  # network, broadcast; and the server's own service
        assert statuses.count(201) in range(1, free + 2)
        services = (await server.get(SERVICES))["items"]
        check_allocations(server, services)
        made = [s["metadata"]["name"] for s in services if s["metadata"]["name"] != "kubernetes"]
        assert len(made) == statuses.count(201)
        assert await asyncio.gather(*(call(server, "DELETE", f"{SERVICES}/{name}") for name in made)) == [200] * len(
            made
        )
        for name in made:
            assert await call(server, "POST", SERVICES, a_service(name)) == 201
        check_allocations(server, (await server.get(SERVICES))["items"])


async def test_a_counter_raised_by_test_and_replace_loses_no_count(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        await server.post(CONFIGMAPS, {"metadata": {"name": "count"}, "data": {"n": "0"}})

        async def client() -> None:
            raised = 0
            while raised < 10:
                now = (await server.get(f"{CONFIGMAPS}/count"))["data"]["n"]
                ops = [
                    {"op": "test", "path": "/data/n", "value": now},
                    {"op": "replace", "path": "/data/n", "value": str(int(now) + 1)},
                ]
                status = await call(server, "PATCH", f"{CONFIGMAPS}/count", ops, "json")
                assert status in (200, 409, 422)
                raised += status == 200

        await asyncio.gather(*(client() for _ in range(20)))
        assert (await server.get(f"{CONFIGMAPS}/count"))["data"]["n"] == "200"


async def test_a_counter_raised_by_conditional_puts_loses_no_count(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        await server.post(CONFIGMAPS, {"metadata": {"name": "count"}, "data": {"n": "0"}})

        async def client() -> None:
            raised = 0
            while raised < 10:
                now = await server.get(f"{CONFIGMAPS}/count")
                now["data"]["n"] = str(int(now["data"]["n"]) + 1)
                status = await call(server, "PUT", f"{CONFIGMAPS}/count", now)
                assert status in (200, 409)
                raised += status == 200

        await asyncio.gather(*(client() for _ in range(20)))
        assert (await server.get(f"{CONFIGMAPS}/count"))["data"]["n"] == "200"


async def test_patches_of_different_keys_that_were_acknowledged_are_all_there(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        target = f"{CONFIGMAPS}/shared"
        await server.post(CONFIGMAPS, {"metadata": {"name": "shared"}})
        kinds = ("merge", "strategic", "apply")

        async def client(number: int) -> set[str]:
            done = set()
            for turn in range(5):
                kind, key = kinds[(number + turn) % 3], f"k{number}-{turn}"
                body: dict[str, Any] = {"data": {key: "1"}}
                if kind == "apply":
                    body |= {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "shared"}}
                query = f"?fieldManager=m{number}-{turn}" if kind == "apply" else ""
                if await call(server, "PATCH", target + query, body, kind) == 200:
                    done.add(key)
            return done

        acknowledged = set().union(*await asyncio.gather(*map(client, range(30))))
        stored = await server.get(target)
        assert acknowledged == set(stored["data"])
        assert len(acknowledged) > 30


async def test_a_namespace_deleted_under_creates_leaves_no_orphans(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        kinds = ("configmaps", "secrets", "services", "serviceaccounts", "pods")

        async def client(namespace: str, kind: str, number: int) -> None:
            for turn in range(100):
                body: dict[str, Any] = {"metadata": {"name": f"{kind}{number}-{turn}"}}
                if kind == "services":
                    body["spec"] = {"ports": [{"port": 1}]}
                if kind == "pods":
                    body["spec"] = {"containers": [{"name": "c", "image": "i"}]}
                status = await call(server, "POST", f"/api/v1/namespaces/{namespace}/{kind}", body)
                assert status in (201, 403, 404)
                if status == 404:
                    return

        for round_ in range(3):
            name = f"short-{round_}"
            await server.post("/api/v1/namespaces", {"metadata": {"name": name}})
            clients = [asyncio.create_task(client(name, kind, n)) for kind in kinds for n in range(3)]
            await asyncio.sleep(0.02 * round_)
            assert await call(server, "DELETE", f"/api/v1/namespaces/{name}") == 200
            await asyncio.gather(*clients)
            await gone(server, Key("namespaces", "", name))
            left = [s.key for s in server.server.core.registry.storages() if server.store.count(s.key, name)]
            assert not left
            assert server.store.count("namespaces.terminating") == 0
        check_allocations(server, (await server.get(SERVICES))["items"])


async def test_a_definition_deleted_under_creates_leaves_no_orphans(tmp_path: Path) -> None:
    """Otherwise the next definition of that name would have objects that no client created."""

    async with serving(tmp_path) as server:
        definition, backup = (
            example("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
            example("shop.example/v1", "Backup"),
        )
        name = definition["metadata"]["name"]
        stop = asyncio.Event()

        turns = [0] * 6

        async def client(number: int) -> None:
            while not stop.is_set():
                turns[number] += 1
                body = {**backup, "metadata": {"name": f"b{number}-{turns[number]}"}}
                status = await call(server, "POST", BACKUPS, body)
                assert status in (201, 404, 405, 403), status
                await asyncio.sleep(0)

        clients = [asyncio.create_task(client(n)) for n in range(len(turns))]
        for round_ in range(6):
            assert await call(server, "POST", CRDS, definition) == 201
            await asyncio.sleep(0.01 * (round_ % 3))
            assert await call(server, "DELETE", f"{CRDS}/{name}") == 200
            await gone(server, Key("customresourcedefinitions.apiextensions.k8s.io", "", name))
            later = [turn + 2 for turn in turns]  # each client has made a whole attempt since the removal
            await eventually(lambda later=later: all(map(ge, turns, later)))  # type: ignore[misc]
            assert server.store.count(name) == 0, (
                f"round {round_}: {server.store.count(name)} objects without a definition"
            )
        stop.set()
        await asyncio.gather(*clients)


async def test_generated_names_are_unique(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        ids = server.server.core.ids

        class FewSuffixes:
            """Three possible names: most creates have to try again, and in the end there is none left."""

            turn = 0

            def new_suffix(self) -> str:
                self.turn += 1
                return ("bbbbb", "ccccc", "ddddd")[self.turn % 3]

            def __getattr__(self, name: str) -> Any:
                return getattr(ids, name)

        server.server.core.ids = FewSuffixes()  # type: ignore[assignment]
        bodies = [{"metadata": {"generateName": "g-"}, "data": {"by": str(n)}} for n in range(20)]
        answers = await asyncio.gather(*(server.call("POST", CONFIGMAPS, body) for body in bodies))
        made = [a.json for a in answers if a.status == 201]
        assert {m["metadata"]["name"] for m in made} == {"g-bbbbb", "g-ccccc", "g-ddddd"} and len(made) == 3
        for answer in answers:
            if answer.status != 201:
                assert (
                    answer.status == 409
                    and answer.json["reason"] == "AlreadyExists"
                    and "retry-after" in answer.headers
                )
        for each in made:
            assert (await server.get(f"{CONFIGMAPS}/{each['metadata']['name']}")) == each
