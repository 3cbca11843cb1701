"""A server that ends and starts again, one way or the other, is the same server: objects, revisions, watches, addresses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cluster_client import Client
from cluster_objects import BACKUPS, example

from shoal.testing.servers import PATCHES, ServerProcess, start_server_process

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
SERVICES = "/api/v1/namespaces/default/services"
SEEN = (
    CONFIGMAPS, SERVICES, BACKUPS, "/api/v1/namespaces", "/apis/networking.k8s.io/v1/ipaddresses",
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas", "/api/v1/namespaces/default/serviceaccounts",
)  # fmt: skip


def a_service(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"type": "NodePort", "ports": [{"port": 80}]}}


def end(server: ServerProcess, how: str) -> None:
    if how == "kill":
        server.kill()
    else:
        server.process.terminate()
        assert server.process.wait(timeout=20) == 0


def fill(client: Client) -> None:
    client.ok(
        "POST",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        example("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
    )
    client.ok("POST", BACKUPS, example("shop.example/v1", "Backup"))
    for number in range(10):
        client.ok(
            "POST",
            CONFIGMAPS,
            {"metadata": {"name": f"c{number}", "labels": {"odd": str(number % 2)}}, "data": {"n": "0"}},
        )
        client.ok("POST", SERVICES, a_service(f"s{number}"))


def change(client: Client) -> list[tuple[str, str, str]]:
    """Some writes; (type, name, resourceVersion) of each, as a watch must show them."""
    found = []
    for number in range(10):
        made = client.ok("PATCH", f"{CONFIGMAPS}/c{number}", {"data": {"n": "1"}}, PATCHES["merge"])
        found.append(("MODIFIED", f"c{number}", made["metadata"]["resourceVersion"]))
    for number in range(0, 10, 3):
        client.ok("DELETE", f"{CONFIGMAPS}/c{number}")
        found.append(("DELETED", f"c{number}", ""))
    made = client.ok("POST", CONFIGMAPS, {"metadata": {"name": "late"}})
    return [*found, ("ADDED", "late", made["metadata"]["resourceVersion"])]


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_everything_is_as_it_was_after_a_restart(tmp_path: Path, how: str) -> None:
    server = start_server_process(tmp_path / "state", "--port", "0")
    client = Client(server)
    fill(client)
    start = client.ok("GET", CONFIGMAPS)["metadata"]["resourceVersion"]
    changes = change(client)
    before = {path: client.ok("GET", path)["items"] for path in SEEN}
    newest = int(client.ok("GET", CONFIGMAPS)["metadata"]["resourceVersion"])
    client.close()
    end(server, how)

    port = server.url.rpartition(":")[2]  # another one would change the Service kubernetes, which leads to the server
    server = start_server_process(tmp_path / "state", "--port", port)
    client = Client(server)
    try:
        assert {path: client.ok("GET", path)["items"] for path in SEEN} == before
        assert int(client.ok("GET", CONFIGMAPS)["metadata"]["resourceVersion"]) >= newest
        check_watch(client, start, changes)
        check_selectors(client)
        check_allocations(client)
        made = client.ok("POST", CONFIGMAPS, {"metadata": {"name": "after"}})
        assert int(made["metadata"]["resourceVersion"]) > newest
        assert client.call("POST", BACKUPS, {**example("shop.example/v1", "Backup"), "spec": {"copies": 7}})[0] == 422
    finally:
        client.close()
        server.kill()


def check_watch(client: Client, start: str, changes: list[tuple[str, str, str]]) -> None:
    """A watch from before the restart goes on exactly there, or says that it cannot."""
    events = client.watch(f"{CONFIGMAPS}?watch=1&resourceVersion={start}")
    if events[0]["type"] == "ERROR":
        assert events[0]["object"]["code"] == 410
        return
    found = [(e["type"], e["object"]["metadata"]["name"], e["object"]["metadata"]["resourceVersion"]) for e in events]
    assert [(kind, name) for kind, name, _ in found] == [(kind, name) for kind, name, _ in changes]
    revisions = [int(revision) for _, _, revision in found]
    assert revisions == sorted(set(revisions)) and revisions[0] > int(start)
    for (_, _, seen), (_, _, given) in zip(found, changes, strict=True):
        assert not given or seen == given


def check_selectors(client: Client) -> None:
    found = client.ok("GET", f"{CONFIGMAPS}?labelSelector=odd%3D1")["items"]
    assert {item["metadata"]["name"] for item in found} == {"c1", "c5", "c7"}
    found = client.ok("GET", f"{BACKUPS}?fieldSelector=spec.target%3Ddb")["items"]
    assert [item["metadata"]["name"] for item in found] == ["nightly"]
    assert client.ok("GET", f"{BACKUPS}?fieldSelector=spec.target%3Dweb")["items"] == []


def check_allocations(client: Client) -> None:
    """Addresses that were given stay taken."""
    for number in range(10):
        client.ok("POST", SERVICES, a_service(f"more{number}"))
    services = client.ok("GET", SERVICES)["items"]
    addresses = [service["spec"]["clusterIP"] for service in services]
    ports = [port["nodePort"] for service in services for port in service["spec"]["ports"] if "nodePort" in port]
    assert len(set(addresses)) == len(addresses) == 21 and len(set(ports)) == len(ports) == 20
    taken = {**a_service("taken"), "spec": {"clusterIP": addresses[3], "ports": [{"port": 80}]}}
    assert client.call("POST", SERVICES, taken)[0] == 422
