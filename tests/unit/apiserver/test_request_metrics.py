"""The metrics of requests, watches and the store, with Kubernetes' names and labels."""

from __future__ import annotations

from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from shoal.apiserver import request_metrics
from shoal.apiserver.messages import Relay, Request
from shoal.apiserver.paths import parse
from shoal.apiserver.protection import RequestContext
from shoal.apiserver.request_metrics import DURATIONS_S, RequestMetrics, RequestTables
from shoal.testing.servers import LocalServer, local_server

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
MAP: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}}


async def samples(server: LocalServer, name: str) -> list[tuple[dict[str, str], float]]:
    text = (await server.call("GET", "/metrics")).body.decode()
    return [
        (sample.labels, sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name
    ]


async def value(server: LocalServer, name: str, **labels: str) -> float:
    """The only series with these labels; 0 without one."""
    found = [number for given, number in await samples(server, name) if labels.items() <= given.items()]
    assert len(found) < 2, found
    return found[0] if found else 0.0


async def test_requests_are_counted_by_verb_resource_scope_and_code_as_kubernetes_does() -> None:
    async with local_server() as server:
        await server.post(CONFIG_MAPS, MAP)
        apply = {"content-type": "application/apply-patch+yaml"}
        await server.call("PATCH", f"{CONFIG_MAPS}/a?fieldManager=me&force=true", MAP, apply)
        await server.call("GET", f"{CONFIG_MAPS}/a")
        await server.call("GET", f"{CONFIG_MAPS}/missing")
        await server.call("GET", CONFIG_MAPS)
        await server.call("GET", "/api/v1/configmaps")
        await server.call("POST", f"{CONFIG_MAPS}?dryRun=All", {**MAP, "metadata": {"name": "b"}})
        await server.call("DELETE", f"{CONFIG_MAPS}/a")
        found = {
            (each["verb"], each["scope"], each["dry_run"], each["code"]): number
            for each, number in await samples(server, "apiserver_request_total")
            if (each["group"], each["version"], each["resource"]) == ("", "v1", "configmaps")
        }
        wanted = {
            ("POST", "resource", "", "201"): 1,
            ("POST", "resource", "All", "201"): 1,
            ("APPLY", "resource", "", "200"): 1,
            ("GET", "resource", "", "200"): 1,
            ("GET", "resource", "", "404"): 1,
            ("LIST", "namespace", "", "200"): 1,
            ("LIST", "cluster", "", "200"): 1,
            ("DELETE", "resource", "", "200"): 1,
        }
        assert wanted.items() <= found.items()
        assert {each["component"] for each, _ in await samples(server, "apiserver_request_total")} == {"apiserver"}
        gets = {"verb": "GET", "resource": "configmaps", "scope": "resource"}
        assert await value(server, "apiserver_request_duration_seconds_count", **gets) == 2
        assert await value(server, "apiserver_request_duration_seconds_bucket", le="60.0", **gets) == 2
        assert await value(server, "apiserver_request_sli_duration_seconds_count", **gets) == 2
        assert await value(server, "apiserver_request_duration_seconds_count", dry_run="All") == 1
        assert len(await samples(server, "apiserver_request_sli_duration_seconds_count")) > 3
        assert not [each for each, _ in await samples(server, "apiserver_request_sli_duration_seconds_count")
                    if "dry_run" in each]  # fmt: skip
        assert await value(server, "apiserver_request_total", subresource="/metrics", code="200") > 0


async def test_paths_and_methods_of_clients_never_become_labels() -> None:
    async with local_server() as server:
        before = len(await samples(server, "apiserver_request_total"))
        for number in range(20):
            await server.call("GET", f"/api/v1/namespaces/default/unknown{number}/a")
            await server.call("GET", f"/unknown{number}")
            await server.call("GET", f"{CONFIG_MAPS}/a/unknown{number}")
            await server.call(f"METHOD{number}", "/version")
        assert len(await samples(server, "apiserver_request_total")) - before <= 3
        assert await value(server, "apiserver_request_total", verb="other", subresource="/version") == 20


async def test_series_of_custom_resources_are_limited(monkeypatch: Any) -> None:
    monkeypatch.setattr(request_metrics, "MAX_SERIES", 0)
    async with local_server() as server:
        await server.call("GET", CONFIG_MAPS)
        await server.call("GET", "/api/v1/pods")
        assert await value(server, "apiserver_request_total", resource="other") == 2


async def test_watches_are_long_running_requests_while_they_are_open() -> None:
    async with local_server() as server:
        watch = {"verb": "WATCH", "resource": "configmaps", "scope": "namespace"}
        stream = await server.transport.stream("GET", f"{CONFIG_MAPS}?watch=1")
        other = await server.transport.stream("GET", f"{CONFIG_MAPS}?watch=1")
        assert await value(server, "apiserver_longrunning_requests", **watch) == 2
        assert await value(server, "apiserver_request_total", **watch) == 2
        await stream.close()
        await other.close()
        assert await value(server, "apiserver_longrunning_requests", **watch) == 0


async def test_a_session_is_long_running_until_it_ends_and_its_other_listener_is_called() -> None:
    async with local_server() as server:
        requests = RequestMetrics(server.server.core)
        context = RequestContext(Request("GET", b"/api/v1/namespaces/default/pods/a/log", {}), b"")
        context.target, context.verb = parse(context.request.path), "get"
        ended: list[str] = []
        relay = Relay(200)
        relay.on_end = lambda: ended.append("audit")
        requests.follow(requests.count(context, 200, 0.0), relay)
        tables = RequestTables(requests, server.server.hub)
        labels = ("GET", "", "v1", "pods", "log", "resource", "apiserver")
        assert tables.long_running()[labels] == 1
        relay.ended()
        assert tables.long_running()[labels] == 0 and ended == ["audit"]


async def test_the_store_reports_its_objects_commits_and_batches() -> None:
    async with local_server() as server:
        batches = await value(server, "shoal_store_commit_batch_size_count")
        await server.post(CONFIG_MAPS, MAP)
        await server.call("PUT", f"{CONFIG_MAPS}/a", {**MAP, "data": {"k": "w"}})
        await server.call("DELETE", f"{CONFIG_MAPS}/a")
        for operation in ("create", "update", "delete"):
            labels = {"operation": operation, "group": "", "resource": "configmaps"}
            assert await value(server, "etcd_request_duration_seconds_count", **labels) >= 1, operation
        assert await value(server, "shoal_store_commit_batch_size_count") == batches + 3
        assert await value(server, "shoal_store_commit_duration_seconds_count") == batches + 3
        assert await value(server, "apiserver_resource_objects", group="", resource="namespaces") >= 4
        assert await value(server, "apiserver_storage_objects", resource="clusterroles.rbac.authorization.k8s.io") > 10
        assert await value(server, "shoal_store_revision") == server.server.core.store.revision
        assert (await samples(server, "apiserver_storage_size_bytes")) == [({"storage_cluster_id": "store-0"}, 0.0)]


def test_buckets_are_those_of_kubernetes() -> None:
    assert DURATIONS_S[0] == 0.005 and DURATIONS_S[-1] == 60.0 and 1.0 in DURATIONS_S and 30.0 in DURATIONS_S
    assert len(DURATIONS_S) == 23
