"""The navigator's REST API: authentication, answers, errors, streams."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import orjson
import pytest
from answers_client import ROOT, Client, Streaming, an_api
from answers_world import READER, WorldClock, authenticate, the_world

from shoal.base.metrics import Metrics
from shoal.errors import Forbidden, ServiceUnavailable
from shoal.navigator.answers.api import Caller, make_api
from shoal.rest.api import RestApi
from shoal.testing.views import AT_S, MemoryHistory, MemoryView, a_cluster

POD = f"{ROOT}/pods/eu-1/shop/web-1"
PATHS = {
    "cluster": "eu-1", "namespace": "shop", "name": "web-1", "kind": "pods", "check": "a-check",
}  # fmt: skip


@pytest.fixture(scope="module")
def ask() -> Iterator[Client]:
    with Client() as client:
        yield client


def operations(ask: Client) -> list[tuple[str, str, dict[str, Any]]]:
    document = ask("/openapi.json", token=None).json()
    return [
        (method.upper(), path, described)
        for path, methods in document["paths"].items()
        for method, described in methods.items()
    ]


def test_everything_but_the_description_needs_a_known_token(ask: Client) -> None:
    found = operations(ask)
    assert len(found) > 25
    for method, path, _ in found:
        for token in (None, "stolen"):
            answer = ask(path.format(**PATHS), method=method, token=token)
            assert answer.status_code == 401, path
            assert answer.json()["error"]["code"] == "Unauthorized"
            assert answer.headers["www-authenticate"].startswith("Bearer")


def test_every_operation_answers_as_it_is_described(ask: Client) -> None:
    needed = {"q": "pods", "text": "web", "from": "1h"}
    for method, path, described in operations(ask):
        if method != "GET" or "text/event-stream" in described["responses"]["200"]["content"]:
            continue  # streams of events do not end: test_api_watching.py
        known = {each["name"]: each for each in described["parameters"]}
        params = {name: value for name, value in needed.items() if name in known}
        answer = ask(path.format(**PATHS), **params)
        assert str(answer.status_code) in described["responses"], (path, answer.text)
        if answer.status_code == 200 and answer.headers["content-type"] == "application/json":
            declared = next(each for each in ask.api.operations if (each.method, each.path) == (method, path))
            msgspec.convert(answer.json(), declared.answers[200])
        for parameter in known.values():
            assert parameter["in"] in ("path", "query", "header")
        refused = ask(path.format(**PATHS), **{**params, "colour": "red"})
        assert refused.status_code == 422, path
        assert "unknown parameter" in refused.json()["error"]["message"]


def test_all_references_of_the_description_resolve(ask: Client) -> None:
    text = ask("/openapi.json", token=None).text
    document = orjson.loads(text)
    names = {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}
    assert names <= set(document["components"]["schemas"])
    assert document["info"]["version"] == "1.2.3"


def test_reading_paths_take_a_moment(ask: Client) -> None:
    live = {
        "/logs",
        "/events",
        "/proxy-config",
        "/graph",
        "/history",
        "/kinds",
        "/checks",
        "/edges",
        "/edges/{cluster}",
    }
    for method, path, described in operations(ask):
        takes = "at" in {each["name"] for each in described["parameters"]}
        reads = method == "GET" and not path.startswith(f"{ROOT}/watch/")
        assert takes == (reads and not path.endswith(tuple(live))), path


@pytest.mark.parametrize(
    ("path", "method", "status", "code", "message"),
    [
        ("/api/v1/nothing", "GET", 404, "NotFound", "path /api/v1/nothing not found"),
        ("/api/v1/query", "POST", 405, "MethodNotAllowed", "POST is not possible"),
        ("/api/v1/query?q=", "GET", 422, "Invalid", "query.q"),
        ("/api/v1/query?q=pds", "GET", 400, "BadRequest", "did you mean 'pods'?"),
        ("/api/v1/query?q=pods&limit=0", "GET", 422, "Invalid", "must be between 1 and 1000"),
        ("/api/v1/query?q=pods&limit=x", "GET", 422, "Invalid", "must be a whole number"),
        ("/api/v1/query?q=pods&limit=1&limit=2", "GET", 422, "Invalid", "only once"),
        ("/api/v1/query?q=pods&continue=x", "GET", 400, "BadRequest", "invalid continue token"),
        ("/api/v1/services?continue=x", "GET", 422, "Invalid", "is not a valid token"),
        ("/api/v1/query?q=pods&at=soon", "GET", 422, "Invalid", "must be a moment"),
        ("/api/v1/query?q=pods&at=2099-01-01", "GET", 422, "Invalid", "future"),
        ("/api/v1/query?q=pods&at=2020-01-01", "GET", 410, "Expired", "does not go back"),
        ("/api/v1/services?cluster=eu1", "GET", 404, "NotFound", "did you mean eu-1?"),
        ("/api/v1/clusters/mars", "GET", 404, "NotFound", "existing clusters: eu-1, us-1, us-2"),
        ("/api/v1/services/shop/none", "GET", 404, "NotFound", "no cluster has a service"),
        ("/api/v1/workloads/shop/Deployment/none", "GET", 404, "NotFound", "no cluster has"),
        ("/api/v1/pods/eu-1/shop/none", "GET", 404, "NotFound", "has no pod shop/none"),
        ("/api/v1/pods/mars/shop/web-1", "GET", 404, "NotFound", "cluster 'mars' not found"),
        ("/api/v1/pods/eu-1/shop/none/logs", "GET", 404, "NotFound", "has no pod"),
        ("/api/v1/pods/us-2/lab/lonely-0/logs", "GET", 503, "ServiceUnavailable", "no edge is connected"),
        ("/api/v1/pods/eu-1/shop/web-1/logs?tail=x", "GET", 422, "Invalid", "whole number"),
        ("/api/v1/pods/eu-1/shop/web-1/logs?follow=maybe", "GET", 422, "Invalid", "supported values"),
        ("/api/v1/objects/eu-1/pods/shop/none", "GET", 404, "NotFound", "has no Pod shop/none"),
        ("/api/v1/objects/eu-1/secrets/shop/x", "GET", 404, "NotFound", "kind 'secrets' not found"),
        ("/api/v1/search?text=a&kind=cats", "GET", 422, "Invalid", "supported values"),
        ("/api/v1/diff", "GET", 422, "Invalid", "must be given, or left and right"),
        ("/api/v1/diff?left=eu-1", "GET", 422, "Invalid", "to compare two clusters"),
        ("/api/v1/diff?left=eu-1&right=mars", "GET", 404, "NotFound", "cluster 'mars' not found"),
        ("/api/v1/diff?left=eu-1&right=us-1&from=1h", "GET", 422, "Invalid", "not both"),
        ("/api/v1/diff?from=1h&to=2h", "GET", 422, "Invalid", "must be after from"),
        ("/api/v1/history?kind=pods,nodes", "GET", 422, "Invalid", "must be one kind"),
        ("/api/v1/graph?start=5m&end=10m", "GET", 422, "Invalid", "must be before end"),
        ("/api/v1/mesh/mistakes?severity=bad", "GET", 422, "Invalid", "supported values"),
        ("/api/v1/checks/none", "GET", 404, "NotFound", "check 'none' not found"),
        ("/api/v1/checks/none", "DELETE", 404, "NotFound", "check 'none' not found"),
    ],
)
def test_errors_have_one_shape(ask: Client, path: str, method: str, status: int, code: str, message: str) -> None:
    answer = ask(path, method=method)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (status, code), error
    assert message in error["message"]
    assert set(error) == {"code", "message", "details", "correlation"}
    assert error["correlation"] == answer.headers["x-correlation-id"] == "id-1"
    assert answer.headers["cache-control"] == "no-store"


def test_an_internal_error_shows_no_details() -> None:
    world = the_world()
    world.fleet.items = [{"id": "x", "revision": "not a number"}]
    with Client(world) as ask:
        answer = ask(f"{ROOT}/query", q="pods where app = x")
    assert answer.status_code == 500
    assert answer.json()["error"]["message"].startswith("internal error")


def test_a_query_is_answered_with_columns_a_page_the_plan_and_what_may_be_wrong(ask: Client) -> None:
    first = ask.get("query", q="pods where namespace = shop select cluster, name", limit=3)
    assert first["columns"] == [{"name": "cluster", "type": "text"}, {"name": "name", "type": "text"}]
    assert (len(first["items"]), first["total"]) == (3, 5)
    assert first["plan"] == "namespace shop in all 3 clusters"
    assert first["notFresh"] == [{"cluster": "us-2", "freshness": "stale", "heardSecondsAgo": 300.0, "reason": ""}]
    second = ask.get("query", q="pods where namespace = shop select cluster, name", limit=3,
                     **{"continue": first["continue"]})  # fmt: skip
    assert len(second["items"]) == 2
    assert second["continue"] == ""


def test_a_past_moment_is_answered_from_the_history(ask: Client) -> None:
    assert ask.get("query", q="pods", at="1h")["total"] == 1
    assert ask.get("services/shop/gone", at="2027-01-15T06:00:00Z")["name"] == "gone"
    assert ask.get("pods/eu-1/shop/web-1", at="1h")["containers"][0]["image"] == "reg.io/web:v0"
    assert ask.get("pods/eu-1/shop/web-1")["containers"][0]["image"] == "reg.io/web:v1"


def test_pods_without_a_service_can_be_listed(ask: Client) -> None:
    assert [each["name"] for each in ask.get("pods", exposed="false")["items"]] == ["batch-7", "batch-7", "lonely-0"]
    assert [each["name"] for each in ask.get("pods", exposed="true", cluster="eu-1")["items"]] == ["web-1", "web-2"]
    assert ask.get("pods", namespace="lab' or name ~ '.")["total"] == 0


def test_clusters_services_workloads_objects_and_search_are_there(ask: Client) -> None:
    cluster = ask.get("clusters/us-2")
    assert (cluster["freshness"], cluster["heardSecondsAgo"], cluster["environment"]) == ("stale", 300.0, "staging")
    assert [each["name"] for each in ask.get("clusters")["items"]] == ["eu-1", "us-1", "us-2"]
    page = ask.get("services", limit=1)
    assert page["total"] == 2
    assert ask.get("services", limit=1, **{"continue": page["continue"]})["items"][0]["name"] == "web"
    page = ask.get("workloads", limit=2)
    rest = ask.get("workloads", limit=2, **{"continue": page["continue"]})
    assert [each["name"] for each in page["items"] + rest["items"]][:3] == ["lonely-0", "web", "batch-7"]
    assert ask.get("objects/eu-1/nodes/-/n1")["metadata"]["name"] == "n1"
    assert ask.get("objects/eu-1/services/shop/web")["spec"]["clusterIP"] == "10.96.0.1"
    assert ask.get("search", text="lonely")["items"][0]["name"] == "lonely-0"
    assert "pods" in [each["name"] for each in ask.get("kinds")["items"]]


def test_the_mesh_is_analysed_for_each_cluster(ask: Client) -> None:
    found = ask.get("mesh/mistakes", cluster="eu-1")["items"]
    assert ("unknown-host", "web") in [(each["code"], each["name"]) for each in found]
    assert {each["cluster"] for each in ask.get("mesh/mistakes")["items"]} == {"eu-1", "us-1"}
    assert ask.get("mesh/mistakes", namespace="lab")["items"] == []
    acting = ask.get("pods/eu-1/shop/web-1/istio")
    assert (acting["proxy"], acting["rootNamespace"]) == ("sidecar", "istio-system")
    assert [each["kind"] for each in acting["items"]] == ["VirtualService"]
    assert ask.get("pods/eu-1/shop/batch-7/istio")["items"] == []


def test_edges_are_asked_for_events_proxies_and_connections(ask: Client) -> None:
    events = ask.get("events")
    assert [(each["cluster"], each["reason"], each["count"]) for each in events["items"]] == [
        ("eu-1", "BackOff", 4), ("us-1", "BackOff", 4),
    ]  # fmt: skip
    assert [each["cluster"] for each in events["failed"]] == ["us-2"]
    assert ask.get("pods/eu-1/shop/web-1/events")["items"][0]["message"] == "back-off restarting"
    assert ask.get("pods/eu-1/shop/web-1/proxy-config")["listeners"][0]["port"] == 15006
    graph = ask.get("graph", service="web", start="10m")
    assert graph["connections"][0]["requestsPerSecond"] == 40
    request = ask.world.edges.asked[-1][1]
    assert request.end_ms - request.start_ms == 600_000  # type: ignore[attr-defined]


@pytest.fixture
def own() -> Iterator[Client]:
    """For tests that write."""
    with Client() as client:
        yield client


def test_checks_are_saved_and_removed_only_with_permission_to_write(own: Client) -> None:
    body = {"query": "pods where status = CrashLoopBackOff", "description": "nothing crashes"}
    refused = own(f"{ROOT}/checks/crash", method="PUT", token=READER, body=body)
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "Forbidden")
    assert own(f"{ROOT}/checks/crash", method="PUT", body=body).status_code == 200
    assert [each["name"] for each in own.get("checks", token=READER)["items"]] == ["crash"]
    results = own.get("checks/results")
    assert (results["ok"], results["items"][0]["total"]) == (False, 2)
    assert own.get("checks/crash", at="1h")["ok"]
    assert own(f"{ROOT}/checks/crash", method="DELETE", token=READER).status_code == 403
    assert own(f"{ROOT}/checks/crash", method="DELETE").status_code == 200
    assert own.get("checks/results")["items"] == []


@pytest.mark.parametrize(
    ("body", "status"), [
        ({"query": "pds"}, 400), (b"{", 400), ({}, 422), ([], 422), ({"query": 3}, 422), (b"x" * 100_000, 413),
        ({"query": "pods", "expect": "many"}, 422), ({"query": "pods", "colour": 1}, 422),
    ]
)  # fmt: skip
def test_a_check_that_cannot_be_saved_is_refused(own: Client, body: Any, status: int) -> None:
    assert own(f"{ROOT}/checks/bad", method="PUT", body=body).status_code == status
    assert own.get("checks")["items"] == []


def test_a_moment_before_the_first_data_is_an_error_that_names_the_beginning() -> None:
    world = the_world()
    first = MemoryView([a_cluster("eu-1")], at_s=AT_S - 600)
    world.history = MemoryHistory(
        {AT_S - 86400: MemoryView([], at_s=AT_S - 86400), AT_S - 600: first}, begins_s=AT_S - 600
    )
    with Client(world) as ask:
        for path in ("query?q=pods", "clusters?", "services?", "search?text=web", "checks/results?"):
            answer = ask(f"{ROOT}/{path}&at=1h")
            assert answer.status_code == 410, path
            assert "the history begins at 2027-01-15T07:50:00.000+00:00" in answer.json()["error"]["message"]
        assert ask.get("query", q="pods", at="9m")["items"] == []
        found = ask.get("diff", **{"from": "1h"})
        assert found["historyBegins"] == "2027-01-15T07:50:00.000+00:00"
        assert ask.get("diff", **{"from": "9m"})["historyBegins"] is None
        world.history = MemoryHistory({0.0: MemoryView([])})
    with Client(world) as ask:
        assert "no cluster had connected" in ask(f"{ROOT}/query?q=pods&at=1h").json()["error"]["message"]


def test_differences_and_history_are_answered(ask: Client) -> None:
    found = ask.get("diff", **{"from": "1h"}, kind="services,pods", cluster="eu-1")
    assert found["totals"] == {"added": 3, "removed": 1, "changed": 1}
    assert ask.get("diff", left="eu-1", right="us-1")["totals"]["changed"] == 0
    steps = ask.get("history", kind="deployments", key="shop/web", cluster="eu-1")["items"]
    assert [each["change"] for each in steps] == ["put", "changed", "removed"]
    assert steps[0]["at"].startswith("2027-01-15T07:45:00")


def test_logs_are_passed_on_as_they_are_asked_for(ask: Client) -> None:
    answer = ask(f"{POD}/logs", tail=2, container="main", timestamps="true", since=60, previous="true")
    assert answer.headers["content-type"].startswith("text/plain")
    assert answer.text == "web-1 line 1\nweb-1 line 2\n"
    request = ask.world.edges.asked[-1][1]
    assert (request.tail, request.container, request.timestamps, request.since_seconds, request.previous) == (  # type: ignore[attr-defined]
        2, "main", True, 60, True,
    )  # fmt: skip


class FollowedEdges:
    """An edge whose log continues until the test ends it or makes it fail."""

    def __init__(self) -> None:
        self.parts: asyncio.Queue[bytes | Exception | None] = asyncio.Queue()
        self.closed = False

    async def ask(self, cluster: str, request: object, *, deadline_s: float) -> AsyncIterator[bytes]:
        try:
            while (part := await self.parts.get()) is not None:
                if isinstance(part, Exception):
                    raise part
                yield part
        finally:
            self.closed = True


@asynccontextmanager
async def following() -> AsyncIterator[tuple[RestApi[Caller, Caller], FollowedEdges, Streaming]]:
    world, edges = the_world(), FollowedEdges()
    world.edges = edges  # type: ignore[assignment]
    api = an_api(world)
    stream = Streaming(api, f"{POD}/logs", "follow=true")
    try:
        yield (api, edges, stream)
    finally:
        stream.gone.set()
        await asyncio.wait([stream.task])


async def test_a_log_that_is_followed_comes_part_by_part_until_the_pod_ends() -> None:
    async with following() as (api, edges, stream):
        edges.parts.put_nowait(b"one\n")
        await stream.until(lambda: stream.body == b"one\n")
        edges.parts.put_nowait(b"two\n")
        await stream.until(lambda: stream.body == b"one\ntwo\n")
        edges.parts.put_nowait(None)
        await stream.task
        assert stream.sent[-1]["more_body"] is False


async def test_a_log_without_output_starts_its_response() -> None:
    async with following() as (api, edges, stream):
        await stream.until(lambda: bool(stream.sent))
        assert stream.sent[0]["status"] == 200


async def test_a_disconnect_of_the_client_cancels_the_request_at_the_edge() -> None:
    async with following() as (api, edges, stream):
        edges.parts.put_nowait(b"one\n")
        await stream.until(lambda: bool(stream.body))
        stream.gone.set()
        await stream.task
        assert edges.closed


async def test_an_error_before_the_first_part_has_its_status() -> None:
    async with following() as (api, edges, stream):
        edges.parts.put_nowait(Forbidden("pods/log is not allowed"))
        await stream.task
        assert stream.sent[0]["status"] == 403


async def test_a_broken_answer_is_not_ended_like_a_complete_one() -> None:
    async with following() as (api, edges, stream):
        edges.parts.put_nowait(b"one\n")
        await stream.until(lambda: bool(stream.body))
        edges.parts.put_nowait(ServiceUnavailable("the edge was lost"))
        await asyncio.wait([stream.task])
        assert all(each.get("more_body", True) for each in stream.sent)


async def test_streams_end_when_the_process_does() -> None:
    async with following() as (api, edges, stream):
        edges.parts.put_nowait(b"one\n")
        await stream.until(lambda: bool(stream.body))
        api.end_streams()
        await stream.task
        assert stream.sent[-1]["more_body"] is False
        late = Streaming(api, f"{POD}/logs")
        await late.task
        assert late.sent[0]["status"] == 503


def test_requests_are_counted_by_resource_and_result() -> None:
    metrics, world = Metrics(), the_world()
    api = make_api(
        lambda: world.view, world.history, world.edges, world.fleet, authenticate=authenticate, clock=WorldClock(),
        changes=world.changes, admin=world.admin, options=world.options, metrics=metrics,
    )  # fmt: skip
    with Client(world, api) as ask:
        ask(f"{ROOT}/clusters")
        ask(f"{ROOT}/clusters", token=None)
    text = metrics.render().decode()
    assert 'shoal_navigator_api_requests_total{code="2xx",method="GET",resource="clusters"} 1.0' in text
    assert 'shoal_navigator_api_refused_total{reason="none"} 1.0' in text


def test_a_cluster_is_forgotten_only_with_permission_to_write() -> None:
    with Client() as own:
        path = f"{ROOT}/clusters/us-2"
        assert own(path, method="DELETE", token=READER).status_code == 403
        assert own(path, method="DELETE").status_code == 409
        answer = own(path, method="DELETE", revoke="true")
        assert answer.status_code == 200 and answer.json()["name"] == "us-2"
        assert own(path, method="DELETE").status_code == 404
        assert [each["name"] for each in own.get("clusters")["items"]] == ["eu-1", "us-1"]
