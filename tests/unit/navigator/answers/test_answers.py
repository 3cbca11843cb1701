"""Services, workloads, search, diff, checks and the graph, over a small fleet."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any, TypeVar

import orjson
import pytest
from answers_world import INF, a_pod, a_service, a_slice, an_object, the_world
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.errors import ConfigError, Invalid, NotFound, ServiceUnavailable
from shoal.navigator.answers.changes import shown_moments
from shoal.navigator.answers.checks import FileChecks, MemoryChecks, SavedCheck, new_check, run_check
from shoal.navigator.answers.diff import DiffScope, FieldChange, diff_clusters, diff_moments, field_changes
from shoal.navigator.answers.fleet import read_deployments
from shoal.navigator.answers.graph import GraphRequest, graph
from shoal.navigator.answers.mesh import pod_stub
from shoal.navigator.answers.query.model import QueryError
from shoal.navigator.answers.search import Hit, search
from shoal.navigator.answers.services import service, services
from shoal.navigator.answers.workloads import workload, workloads
from shoal.navigator.connections import (
    CallEndpoint,
    LatencyHistogram,
    ServiceConnection,
    connections_json,
    merged,
    read_connections,
)
from shoal.navigator.summaries import proxy_of
from shoal.testing.views import AT_S, MemoryEdges, MemoryView, a_cluster

T = TypeVar("T")
WORLD = the_world()


def done(steps: Generator[None, None, T]) -> T:
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            result: T = stop.value
            return result


def fleet() -> Any:
    return read_deployments(WORLD.fleet)


# Services and workloads


def test_services_of_one_name_are_one_with_the_addresses_of_each_cluster() -> None:
    page = services(WORLD.view)
    assert [(each["namespace"], each["name"]) for each in page.items] == [("shop", "db"), ("shop", "web")]
    web = page.items[1]
    assert [place["cluster"] for place in web["clusters"]] == ["eu-1", "us-1"]
    assert (web["endpoints"], web["readyEndpoints"], web["ports"], web["types"]) == (3, 1, [80], ["ClusterIP"])
    assert [each["name"] for each in services(WORLD.view, cluster="eu-1", namespace="shop").items] == ["db", "web"]
    assert services(WORLD.view, namespace="lab").items == []


def test_endpoints_that_are_not_ready_are_shown_as_such() -> None:
    found = service(WORLD.view, "shop", "web")
    states = {
        (place["cluster"], each["pod"]): (each["ready"], each["status"])
        for place in found["clusters"]
        for each in place["endpoints"]
    }
    assert states == {
        ("eu-1", "web-1"): (True, "Running"),
        ("eu-1", "web-2"): (False, "CrashLoopBackOff"),
        ("us-1", "web-1"): (False, "CrashLoopBackOff"),
    }
    with pytest.raises(NotFound, match="no cluster has a service 'shop/nothing'"):
        service(WORLD.view, "shop", "nothing")


def test_endpoints_of_a_namesake_in_another_namespace_are_not_its_own() -> None:
    view = MemoryView([a_cluster("c")])
    view.put("c", "services", a_service("web", "one"), a_service("web", "two"))
    view.put("c", "endpointslices", a_slice("web", ("p", True), namespace="two"))
    assert service(view, "one", "web")["clusters"][0]["endpoints"] == []
    assert len(service(view, "two", "web")["clusters"][0]["endpoints"]) == 1


def test_services_come_in_pages() -> None:
    first = services(WORLD.view, limit=1)
    assert (first.total, first.more) == (2, True)
    last = first.items[-1]
    second = services(WORLD.view, limit=1, after=(last["namespace"], last["name"]))
    assert [each["name"] for each in second.items] == ["web"]
    assert not second.more


def test_workloads_have_their_pods_of_all_clusters_and_the_app_of_the_fleet() -> None:
    page = done(workloads(WORLD.view, fleet))
    assert [(each["kind"], each["name"]) for each in page.items] == [
        ("Pod", "lonely-0"), ("Deployment", "web"), ("Pod", "batch-7"),
    ]  # fmt: skip
    found = done(workload(WORLD.view, fleet, "shop", "deployment", "web"))
    assert (found["kind"], found["app"], found["revisions"], found["pods"], found["ready"]) == (
        "Deployment", "shopfront", [2, 3], 3, 1,
    )  # fmt: skip
    eu = found["clusters"][0]
    assert (eu["replicas"], eu["services"]) == (2, ["web"])
    assert [each["name"] for each in eu["instances"]] == ["web-1", "web-2"]
    with pytest.raises(NotFound):
        done(workload(WORLD.view, fleet, "shop", "Deployment", "nothing"))


# Search


def hits(text: str, **more: Any) -> list[str]:
    found, _ = done(search(WORLD.view, text, **more))
    return [f"{hit.row.kind} {hit.row.cluster}/{hit.row.name}" for hit in found]


def test_a_whole_name_comes_before_its_beginning_and_that_before_what_is_elsewhere() -> None:
    found = hits("web", cluster="eu-1")
    assert found[:3] == ["services eu-1/web", "deployments eu-1/web", "virtualservices eu-1/web"]
    assert found[3:7] == [
        "endpointslices eu-1/web-4", "endpointslices eu-1/web-6", "pods eu-1/web-1", "pods eu-1/web-2",
    ]  # fmt: skip
    assert found[7:] == ["pods eu-1/batch-7"], "its image is of web"


def test_every_word_must_be_found_somewhere() -> None:
    assert hits("web v2", kinds=["pods"]) == ["pods eu-1/web-2", "pods us-1/web-1"]
    assert hits("team=data") == ["pods eu-1/batch-7", "pods us-1/batch-7"]
    assert hits("10.96.0.1 web") == ["services eu-1/web", "services us-1/web"]
    assert hits("shop/batch-7") == ["pods eu-1/batch-7", "pods us-1/batch-7"]
    assert hits("staging") == ["clusters us-2/us-2"]
    assert hits("web nothing-like-that") == hits("  ") == []


def test_search_says_where_it_found_what_and_how_many_there_are() -> None:
    found, total = done(search(WORLD.view, "v2 shop", kinds=["pods"], limit=1))
    assert total == 2
    assert isinstance(found[0], Hit)
    assert found[0].as_json()["matched"] == ["image reg.io/web:v2", "namespace"]


# Differences


async def test_two_moments_differ_by_what_was_added_removed_and_changed() -> None:
    async def main() -> dict[str, Any]:
        before = await WORLD.history.at(AT_S - 3600)
        return await diff_moments(before, WORLD.view, DiffScope(kinds=("services", "pods"), cluster="eu-1"))

    found = await main()
    assert [each["name"] for each in found["added"]] == ["db", "batch-7", "web-2"]
    assert [each["name"] for each in found["removed"]] == ["gone"]
    (changed,) = found["changed"]
    assert changed["name"] == "web-1"
    fields = {each["path"]: (each["before"], each["after"]) for each in changed["fields"]}
    assert fields["spec.containers[main].image"] == ("reg.io/web:v0", "reg.io/web:v1")
    assert fields["metadata.labels['shoal.dev/deployment']"] == (None, "dep-2")
    assert found["totals"] == {"added": 3, "removed": 1, "changed": 1}
    assert found["complete"]


async def test_two_clusters_differ_by_what_people_wrote_and_not_by_what_the_clusters_did() -> None:
    view = MemoryView([a_cluster("a"), a_cluster("b")])
    view.put("a", "services", a_service("web", clusterIP="10.0.0.1"), a_service("only"))
    view.put("b", "services", a_service("web", clusterIP="10.9.9.9"))
    for cluster, replicas in (("a", 2), ("b", 3)):
        written = {"uid": cluster, "labels": {"shoal.dev/cluster": cluster}}
        view.put(cluster, "deployments", an_object(
            "web", spec={"replicas": replicas}, metadata=written, status={"readyReplicas": replicas}))  # fmt: skip
    view.put("b", "pods", a_pod("web-1"))
    found = await diff_clusters(view, "a", "b", DiffScope())
    assert [each["name"] for each in found["removed"]] == ["only"]
    assert found["added"] == []
    assert [(each["kind"], each["fields"]) for each in found["changed"]] == [
        ("deployments", [{"path": "spec.replicas", "before": 2, "after": 3}])
    ]


async def test_a_difference_that_is_too_large_says_that_it_is_not_complete() -> None:
    view = MemoryView([a_cluster("a"), a_cluster("b")])
    view.put("a", "services", *(a_service(f"s{number}") for number in range(5)))
    found = await diff_clusters(view, "a", "b", DiffScope(), limit=3)
    assert (len(found["removed"]), found["totals"]["removed"], found["complete"]) == (3, 5, False)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from(["a", "b"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["name", "x", "a/b"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=100, deadline=None)
@given(before=JSON, after=JSON)
def test_field_changes_are_none_exactly_when_nothing_differs(before: Any, after: Any) -> None:
    changes = field_changes({"spec": before}, {"spec": after})
    assert (not changes) == (_plain(before) == _plain(after))
    assert all(isinstance(each, FieldChange) and each.path.startswith("spec") for each in changes)


def _plain(value: Any) -> Any:
    """A field that is null and one that is not there are the same, and so are items of a list by name in any order."""
    if isinstance(value, dict):
        return {key: inner for key, each in value.items() if (inner := _plain(each)) is not None}
    if isinstance(value, list):
        items = [_plain(each) for each in value]
        names = [each.get("name") for each in value if isinstance(each, dict)]
        if value and len(names) == len(value) == len(set(map(str, names))) and all(isinstance(n, str) for n in names):
            return sorted(items, key=lambda each: str(each["name"]))
        while items and items[-1] is None:
            items.pop()
        return items
    return value


def test_the_history_of_an_object_says_what_each_step_changed() -> None:
    found = shown_moments(WORLD.history.moments)
    assert [each["change"] for each in found] == ["put", "changed", "removed"]
    assert found[1]["fields"] == [{"path": "spec.replicas", "before": 1, "after": 2}]


# Checks


def run(check: SavedCheck) -> dict[str, Any]:
    return done(run_check(check, WORLD.view, fleet))


def test_a_check_holds_or_shows_examples_of_what_is_wrong() -> None:
    crash = run(SavedCheck(name="crash", query="pods where status = CrashLoopBackOff"))
    assert (crash["ok"], crash["total"]) == (False, 2)
    assert [each["name"] for each in crash["examples"]] == ["web-2", "web-1"]
    assert run(SavedCheck(name="x", query="pods where status = Evicted"))["ok"]
    assert run(SavedCheck(name="x", query="pods where ready and region = eu", expect="some"))["ok"]
    missing = run(SavedCheck(name="x", query="pods where region = mars", expect="some"))
    assert (missing["ok"], missing["total"], missing["examples"]) == (False, 0, [])
    assert run(SavedCheck(name="x", query="pods where not ready count"))["total"] == 2


def test_a_check_whose_query_is_none_any_more_fails_with_the_reason() -> None:
    found = run(SavedCheck(name="old", query="pods where colour = red"))
    assert not found["ok"]
    assert "no field 'colour'" in found["error"]


def test_checks_outlive_the_process_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "checks.json"
    check = SavedCheck(name="a", query="pods", expect="some", description="d")
    FileChecks(path).put(check)
    FileChecks(path).put(SavedCheck(name="b", query="nodes"))
    FileChecks(path).remove("b")
    assert FileChecks(path).all() == {"a": check}
    with pytest.raises(NotFound):
        FileChecks(path).remove("b")
    path.write_text("{")
    with pytest.raises(ConfigError, match=r"checks\.json is not a valid file of checks"):
        FileChecks(path)


@pytest.mark.parametrize("name", ["Bad Name", "", "-a", "a" * 64])
def test_a_check_needs_a_name_that_can_be_in_a_path(name: str) -> None:
    with pytest.raises(Invalid, match="name: Invalid value"):
        new_check(name, "pods", now_s=AT_S)


def test_a_check_is_saved_only_with_a_query_that_is_one() -> None:
    with pytest.raises(QueryError):
        new_check("a", "pods wher ready", now_s=AT_S)
    assert MemoryChecks().all() == {}


# The graph

WEB, DB = CallEndpoint("eu-1", "shop", "web"), CallEndpoint("eu-1", "shop", "db")


def a_connection(requests: float, errors: float = 0.0, *, slow: float = 0.0, **more: Any) -> ServiceConnection:
    """``slow`` of the requests take up to a second, the others up to ten milliseconds."""
    histogram = LatencyHistogram((10.0, 1000.0, INF), (requests - slow, requests, requests))
    given: dict[str, Any] = {"source": WEB, "destination": DB, "latency_ms": histogram, **more}
    return ServiceConnection(requests=requests, errors=errors, **given)


async def asked(edges: MemoryEdges, clusters: list[str]) -> dict[str, Any]:
    request = GraphRequest(start_s=AT_S - 300, end_s=AT_S)
    return await graph(edges, clusters, request, deadline_s=5)


def answering(*connections: ServiceConnection) -> Any:
    return lambda request: [orjson.dumps(connections_json(connections))]


async def test_rates_are_summed_and_the_percentile_is_that_of_all_requests_and_no_average() -> None:
    fast = a_connection(
        990.0, 9.0, source=CallEndpoint("us-1", "shop", "web"), destination=CallEndpoint("us-1", "shop", "db")
    )
    slow = a_connection(10.0, 1.0, slow=10.0)
    found = await asked(MemoryEdges({"eu-1": answering(slow), "us-1": answering(fast)}), ["eu-1", "us-1"])
    (pair,) = found["connections"]
    assert (pair["requestsPerSecond"], pair["errorsPerSecond"]) == (1000.0, 10.0)
    assert pair["successRate"] == 0.99
    assert pair["p99Ms"] == pytest.approx(10.0), "990 of 1000 take at most 10 ms"
    assert [each["p99Ms"] for each in pair["between"]] == [pytest.approx(990.1), pytest.approx(9.9)]
    assert found["clusters"] == ["eu-1", "us-1"]


async def test_clusters_that_do_not_answer_are_named_with_the_reason() -> None:
    edges = MemoryEdges({
        "eu-1": answering(a_connection(5.0)), "us-1": ServiceUnavailable("no Prometheus"),
        "us-2": lambda request: [b"<html>"],
    })  # fmt: skip
    found = await asked(edges, ["eu-1", "us-1", "us-2", "us-3"])
    assert [(each["cluster"], each["code"]) for each in found["failed"]] == [
        ("us-1", "ServiceUnavailable"), ("us-2", "InternalError"), ("us-3", "ServiceUnavailable"),
    ]  # fmt: skip
    assert found["clusters"] == ["eu-1"]
    assert len(found["connections"]) == 1


def test_the_success_rate_stays_between_none_and_all_whatever_the_rounding() -> None:
    assert a_connection(10.0, 10.000001).success_rate == 0.0
    assert a_connection(10.0, -1e-9).success_rate == 1.0
    assert a_connection(0.0, 0.0).success_rate is None


def test_a_call_between_clusters_that_both_ends_measured_counts_once() -> None:
    there = CallEndpoint("us-1", "shop", "db")
    seen = [
        a_connection(7.0, destination=there, reporter="source"),
        a_connection(6.9, destination=there, reporter="destination"),
        a_connection(2.0, reporter="destination"),
    ]
    assert [(each.destination.cluster, each.requests) for each in merged(seen)] == [("eu-1", 2.0), ("us-1", 7.0)]


def test_what_makes_no_sense_in_an_answer_is_left_out_and_counted() -> None:
    good = connections_json([a_connection(3.0)])["connections"][0]
    bad: list[Any] = [{**good, "requests": float("nan")}, {**good, "source": None}, {}, 7, {**good, "buckets": [[1]]}]
    found, warnings = read_connections({"connections": [good, *bad], "warnings": ["slow"]}, "eu-1")
    assert len(found) == 1
    assert warnings == ["slow", "5 connections could not be read"]
    with pytest.raises(ValueError, match="no list"):
        read_connections([], "eu-1")


_BOUNDS = st.lists(st.sampled_from([1.0, 5.0, 10.0, 50.0, 100.0]), min_size=1, unique=True).map(sorted)


@st.composite
def histograms(draw: st.DrawFn) -> LatencyHistogram:
    bounds = draw(_BOUNDS)
    steps = draw(st.lists(st.integers(0, 5), min_size=len(bounds) + 1, max_size=len(bounds) + 1))
    counts = [float(sum(steps[: number + 1])) for number in range(len(steps))]
    return LatencyHistogram((*bounds, INF), tuple(counts))


@settings(max_examples=100, deadline=None)
@given(parts=st.lists(histograms(), min_size=1, max_size=4))
def test_merging_keeps_every_request_and_a_percentile_lies_between_those_of_the_parts(
    parts: list[LatencyHistogram],
) -> None:
    whole = LatencyHistogram.merged(parts)
    assert whole.total == pytest.approx(sum(part.total for part in parts))
    assert all(low <= high + 1e-9 for low, high in zip(whole.counts, whole.counts[1:], strict=False))
    same = {part.bounds for part in parts}
    found = [value for part in parts if (value := part.quantile(0.5)) is not None]
    median = whole.quantile(0.5)
    if len(same) == 1 and found and median is not None and len(found) == sum(part.total > 0 for part in parts):
        assert min(found) - 1e-9 <= median <= max(found) + 1e-9


@settings(max_examples=100, deadline=None)
@given(histogram=histograms(), requests=st.floats(0, 100), errors=st.floats(0, 100))
def test_what_an_edge_writes_is_read_as_it_was(histogram: LatencyHistogram, requests: float, errors: float) -> None:
    sent = ServiceConnection(source=WEB, destination=DB, requests=requests, errors=min(errors, requests), reporter="source",
                      latency_ms=histogram)  # fmt: skip
    (read,), warnings = read_connections(orjson.loads(orjson.dumps(connections_json([sent]))), "other")
    assert read == sent
    assert warnings == []


# The mesh


@pytest.mark.parametrize("proxy", ["", "sidecar", "router"])
def test_the_stub_of_a_pod_has_the_proxy_of_the_pod(proxy: str) -> None:
    view = MemoryView([a_cluster("c")])
    view.put("c", "pods", a_pod("p", proxy=proxy, labels={"app": "web"}))
    (row,) = view.rows("pods")
    stub = pod_stub(row)
    assert proxy_of(stub) == (proxy or "none")
    assert stub["metadata"] == {"name": "p", "namespace": "shop", "labels": {"app": "web"}}


def test_the_stub_of_a_pod_that_ztunnel_serves_says_so() -> None:
    view = MemoryView([a_cluster("c")])
    pod = a_pod("p")
    pod["metadata"]["annotations"] = {"ambient.istio.io/redirection": "enabled"}
    view.put("c", "pods", pod)
    (row,) = view.rows("pods")
    assert proxy_of(pod_stub(row)) == "ztunnel"
