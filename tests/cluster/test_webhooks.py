"""Webhooks of a real server process: under load, when they hang, when they die and come back, across restarts."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cluster_client import Client

from shoal.kube.objects import Obj
from shoal.testing.servers import server_process
from shoal.testing.waiting import eventually_blocking
from shoal.testing.webhooks import (
    allowed,
    denied,
    hook,
    mutating,
    patched,
    rule,
    validating,
    webhook_server_thread,
)

REGISTRATION = "/apis/admissionregistration.k8s.io/v1"
CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
MERGE = "application/merge-patch+json"


def config_map(name: str) -> Obj:
    return {"metadata": {"name": name}}


def test_no_write_slips_past_a_hook_under_load() -> None:
    """Every object that is created after the configuration was acknowledged carries the hook's mark."""

    def mark(review: Obj) -> Obj:
        return patched({"op": "add", "path": "/metadata/labels", "value": {"seen": "yes"}})

    with webhook_server_thread({"/mark": mark, "/look": lambda review: allowed()}) as hooks, server_process() as server:
        client = Client(server)
        client.ok(
            "POST", f"{REGISTRATION}/mutatingwebhookconfigurations",
            mutating("m", hook("m.example.com", hooks, "/mark", rule("configmaps"))),
        )  # fmt: skip
        looking = [hook(f"v{i}.example.com", hooks, "/look", rule("configmaps")) for i in range(3)]
        client.ok("POST", f"{REGISTRATION}/validatingwebhookconfigurations", validating("v", *looking))

        def create(worker: int) -> None:
            mine = Client(server)
            for number in range(20):
                made = mine.ok("POST", CONFIGMAPS, config_map(f"cm-{worker}-{number}"))
                assert made["metadata"]["labels"] == {"seen": "yes"}
            mine.close()

        with ThreadPoolExecutor(8) as workers:
            list(workers.map(create, range(8)))
        assert len(client.ok("GET", f"{CONFIGMAPS}?labelSelector=seen%3Dyes")["items"]) == 160
        assert len(hooks.asked("/mark")) == 160 and len(hooks.asked("/look")) == 480
        assert hooks.connections < 100, "connections are used again"
        client.close()


def test_a_hook_that_hangs_does_not_delay_other_writes() -> None:
    release = threading.Event()

    async def hang(review: Obj) -> Obj:
        await asyncio.to_thread(release.wait, 60)
        return allowed()

    with webhook_server_thread({"/hang": hang}) as hooks, server_process() as server:
        client, other = Client(server), Client(server)
        slow = hook("v.example.com", hooks, "/hang", rule("configmaps"), timeoutSeconds=30)
        client.ok("POST", f"{REGISTRATION}/validatingwebhookconfigurations", validating("v", slow))
        with ThreadPoolExecutor(1) as waiting:
            held = waiting.submit(client.call, "POST", CONFIGMAPS, config_map("held"))
            eventually_blocking(lambda: hooks.reviews, what="the review of the first object")
            for number in range(50):
                other.ok("POST", "/api/v1/namespaces", config_map(f"free-{number}"))
            assert not held.done(), "the others waited for the hook"
            release.set()
            assert held.result()[0] == 201
        client.close()
        other.close()


def test_a_hook_that_dies_and_comes_back_is_asked_again(tmp_path: Path) -> None:
    handlers = {"/": lambda review: denied("seen") if review["name"] == "bad" else allowed()}
    with server_process() as server:
        client = Client(server)
        with webhook_server_thread(handlers, pki_dir=tmp_path / "pki") as hooks:
            port = hooks.port
            closed = hook("v.example.com", hooks, "/", rule("configmaps"))
            client.ok("POST", f"{REGISTRATION}/validatingwebhookconfigurations", validating("v", closed))
            client.ok("POST", CONFIGMAPS, config_map("before"))
        status, answer = client.call("POST", CONFIGMAPS, config_map("during"))
        assert status == 500 and "connection refused" in answer["message"]
        with webhook_server_thread(handlers, port=port, pki_dir=tmp_path / "pki"):
            client.ok("POST", CONFIGMAPS, config_map("after"))
            status, answer = client.call("POST", CONFIGMAPS, config_map("bad"))
            assert status == 400 and answer["message"].endswith("denied the request: seen")
        client.close()


def test_hooks_hold_after_the_server_was_killed(tmp_path: Path) -> None:
    with webhook_server_thread({"/": lambda review: denied("no")}) as hooks:
        with server_process(tmp_path, "--port", "0") as server:
            client = Client(server)
            client.ok(
                "POST", f"{REGISTRATION}/validatingwebhookconfigurations",
                validating("v", hook("v.example.com", hooks, "/", rule("configmaps"))),
            )  # fmt: skip
            assert client.call("POST", CONFIGMAPS, config_map("a"))[0] == 400
            client.close()
            server.kill()
        with server_process(tmp_path, "--port", "0") as server:
            client = Client(server)
            assert client.call("POST", CONFIGMAPS, config_map("a"))[0] == 400
            client.close()


def converted(review: Obj) -> list[Obj]:
    wanted = review["desiredAPIVersion"]
    old, new = ("one", "two") if wanted.endswith("v2") else ("two", "one")
    return [
        {**{key: value for key, value in obj.items() if key != old}, "apiVersion": wanted, new: obj[old]}
        for obj in review["objects"]
    ]


def test_many_objects_are_converted_for_lists_and_watches() -> None:
    """A thousand objects of one version, listed and watched in the other while more are written."""

    def version(name: str, field: str, *, storage: bool) -> Obj:
        schema = {"type": "object", "properties": {field: {"type": "string"}}}
        return {"name": name, "served": True, "storage": storage, "schema": {"openAPIV3Schema": schema}}

    with webhook_server_thread({"/convert": converted}) as hooks, server_process() as server:
        client = Client(server)
        webhook = {"clientConfig": hooks.client_config("/convert"), "conversionReviewVersions": ["v1"]}
        spec = {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "things", "kind": "Thing"},
            "conversion": {"strategy": "Webhook", "webhook": webhook},
            "versions": [version("v1", "one", storage=True), version("v2", "two", storage=False)],
        }
        client.ok("POST", DEFINITIONS, {"metadata": {"name": "things.example.com"}, "spec": spec})
        first, second = (f"/apis/example.com/{v}/namespaces/default/things" for v in ("v1", "v2"))

        def create(worker: int) -> None:
            mine = Client(server)
            for number in range(125):
                head = {"apiVersion": "example.com/v1", "kind": "Thing"}
                mine.ok("POST", first, {**head, "metadata": {"name": f"t-{worker}-{number}"}, "one": f"{number}"})
            mine.close()

        with ThreadPoolExecutor(8) as workers:
            watcher = Client(server)
            watching = workers.submit(watcher.watch, f"{second}?watch=true", 4)
            list(workers.map(create, range(4)))
            listed = client.ok("GET", second)
            list(workers.map(create, range(4, 8)))
            events = watching.result()
            watcher.close()
        assert len(listed["items"]) == 500
        assert all(item["two"] and "one" not in item for item in listed["items"])
        seen = [event["object"] for event in events]
        assert [event["type"] for event in events] == ["ADDED"] * len(events)
        revisions = [int(obj["metadata"]["resourceVersion"]) for obj in seen]
        assert revisions == sorted(set(revisions))
        assert all(obj["apiVersion"] == "example.com/v2" and obj["two"] for obj in seen)
        everything = client.ok("GET", second)["items"]
        assert len(everything) == 1000
        names = {obj["metadata"]["name"] for obj in seen}
        last = max(revisions)
        missed = [
            item["metadata"]["name"] for item in everything
            if int(item["metadata"]["resourceVersion"]) <= last and item["metadata"]["name"] not in names
        ]  # fmt: skip
        assert missed == []
        client.close()
