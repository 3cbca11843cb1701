"""Running queries over a small fleet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from answers_world import a_pod, the_world
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.errors import BadRequest
from shoal.navigator.answers.fleet import Deployments, read_deployments
from shoal.navigator.answers.query.model import QueryError
from shoal.navigator.answers.query.parser import parse
from shoal.navigator.answers.query.run import QueryPage, QueryResult, Runner
from shoal.navigator.model import KindStatus
from shoal.testing.views import AT_S, MemoryView, a_cluster

WORLD = the_world()


def ask(text: str, page: QueryPage | None = None) -> QueryResult:
    runner = Runner(WORLD.view, lambda: read_deployments(WORLD.fleet))
    return runner.run(parse(text, now_s=AT_S), page or QueryPage())


def names(text: str) -> list[str]:
    return [f"{row.cluster}/{row.name}" for row in ask(text).rows]


EVERY_POD = ["eu-1/batch-7", "eu-1/web-1", "eu-1/web-2", "us-1/batch-7", "us-1/web-1", "us-2/lonely-0"]
V2 = ["eu-1/web-2", "us-1/web-1"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("pods", EVERY_POD),
        ("pods where image ~ 'v2' and region = 'eu' and not ready", ["eu-1/web-2"]),
        ("pods where image ~ 'v2'", V2),
        ("pods where image !~ 'web|lab'", []),
        ("pods where image = 'reg.io/web:v1'", ["eu-1/batch-7", "eu-1/web-1", "us-1/batch-7"]),
        ("pods where not ready or namespace = lab", [*V2, "us-2/lonely-0"]),
        ("pods where not (ready or namespace = lab)", V2),
        ("pods where ready = false", V2),
        ("pods where status = CrashLoopBackOff", V2),
        ("pods where labels.version in (v1, v9)", ["eu-1/web-1"]),
        ("pods where labels['version'] = 'v1'", ["eu-1/web-1"]),
        ("pods where labels.team", ["eu-1/batch-7", "us-1/batch-7"]),
        ("pods where not labels.app", ["eu-1/batch-7", "us-1/batch-7", "us-2/lonely-0"]),
        ("pods where labels.app != 'web'", ["eu-1/batch-7", "us-1/batch-7", "us-2/lonely-0"]),
        ("pods where labels.app not in (web, other)", ["eu-1/batch-7", "us-1/batch-7", "us-2/lonely-0"]),
        ("pods where cluster = 'us-1'", ["us-1/batch-7", "us-1/web-1"]),
        ("pods where cluster.version ~ '^v1.34'", ["eu-1/batch-7", "eu-1/web-1", "eu-1/web-2"]),
        ("pods where cluster.environment = staging", ["us-2/lonely-0"]),
        ("pods where environment = live", ["eu-1/web-1", "eu-1/web-2", "us-1/web-1"]),
        ("pods where environment = live and project = demo and app = shopfront and region = us", ["us-1/web-1"]),
        ("pods where environment in (production, staging)", []),
        ("pods where freshness != healthy", ["us-2/lonely-0"]),
        ("pods where age < 90s", ["eu-1/web-1", "us-1/web-1"]),
        ("pods where age >= 2m and age < 1h", ["eu-1/web-2"]),
        ("pods where created > 90s", ["eu-1/web-1", "us-1/web-1"]),
        ("pods where restarts >= 2", ["eu-1/web-2"]),
        ("pods where restarts in (1, 2) and labels.version = v2", V2),
        ("pods where app = shopfront", ["eu-1/web-1", "eu-1/web-2", "us-1/web-1"]),
        ("pods where app = shopfront and revision = 3", ["eu-1/web-2"]),
        ("pods where revision != 3 and app = shopfront", ["eu-1/web-1", "us-1/web-1"]),
        ("pods where revision > 2", ["eu-1/web-2"]),
        ("pods where project = demo and cluster = us-1", ["us-1/web-1"]),
        ("pods where deployment = 'dep-3'", ["eu-1/web-2"]),
        ("pods where workload = 'Deployment/web'", ["eu-1/web-1", "eu-1/web-2", "us-1/web-1"]),
        ("pods where service = web and not ready", V2),
        ("pods where not exposed and region = us", ["us-1/batch-7", "us-2/lonely-0"]),
        ("pods where proxy = sidecar and zone = 'eu-1-a'", ["eu-1/web-1", "eu-1/web-2"]),
        ("pods where zone ~ 'b$'", ["eu-1/batch-7", "us-1/batch-7"]),
        ("pods where name = 'web-1' and namespace = shop", ["eu-1/web-1", "us-1/web-1"]),
        ("PODS WHERE name ~ '(?i)^WEB' AND NOT ready", V2),
        ("po where ready and container = istio-proxy", ["eu-1/web-1"]),
        ("services where endpoints > 0 and ready_endpoints = 0", ["us-1/web"]),
        ("services where ready_endpoints < endpoints", ["eu-1/web", "us-1/web"]),
        ("deployments where ready_replicas < replicas and region = us", ["us-1/web"]),
        ("pods where restarts < revision", ["eu-1/web-1", "eu-1/web-2", "us-1/web-1"]),
        ("pods where revision = restarts", []),
        ("pods where revision != restarts and region = eu", ["eu-1/batch-7", "eu-1/web-1", "eu-1/web-2"]),
        ("services where endpoints = 0", ["eu-1/db", "us-1/db"]),
        ("services where port > 1000", ["eu-1/db", "us-1/db"]),
        ("services where selector.app = web and region = eu", ["eu-1/web"]),
        ("nodes where version < v1.10", ["eu-1/n2", "us-1/n2"]),
        ("nodes where cpu >= 8 and memory > 30", ["eu-1/n2", "us-1/n2"]),
        ("nodes where allocatable_cpu < 4 and allocatable_pods = 110", ["eu-1/n1", "us-1/n1"]),
        ("nodes where version >= 1.34 and cluster = eu-1", ["eu-1/n1"]),
        ("nodes where version = v1.9.3 and name = n2", ["eu-1/n2", "us-1/n2"]),
        ("deployments where not ready", ["eu-1/web", "us-1/web"]),
        ("hpas where at_max", ["us-2/scaler"]),
        ("hpa where target = 'Deployment/web' and replicas < desired and max = 10", ["us-2/scaler"]),
        ("shardinstances where config = sites and phase != Running", ["us-2/sites-2"]),
        ("shi where slots > 500 and objects = 7", ["us-2/sites-1"]),
        ("events where reason = 'BackOff' and seen < 1m", ["us-2/lonely-0.backoff"]),
        ("events where object = 'Pod/lonely-0' and type = Normal and times = 4", ["us-2/lonely-0.pulled"]),
        ("ev where object_kind = Pod and message ~ 'lab:v9' and seen > 5m", ["us-2/lonely-0.pulled"]),
        ("ingresses where backend = 'lab/api' and path = '/api'", ["us-2/front"]),
        ("routes where host = 'demo.test' and tls and backend = 'demo/web'", ["us-2/r-1"]),
        ("routes where kind = HTTPRoute and gateway = 'lab/public' and backend = 'core/api'", ["us-2/front"]),
        ("policies where type = rateLimit and precedence < 10 and route = 'r-1'", ["us-2/p-1"]),
        ("apps where environment = live and ready and revision = 3 and revisions = 2", ["us-2/shopfront"]),
        ("apps where name = shopfront and region = us and replicas = 3", ["us-2/shopfront"]),
        ("apps where app = nothing", []),
        ("vs where host = web", ["eu-1/web", "us-1/web"]),
        ("clusters where region = us and freshness = healthy", ["us-1/us-1"]),
        ("clusters where heard > 1m", ["us-2/us-2"]),
        ("clusters where connected and not (environment = production)", ["us-2/us-2"]),
    ],
)
def test_a_query_finds_the_expected_rows(text: str, expected: list[str]) -> None:
    assert names(text) == expected
    assert {(row.cluster, row.name) for row in Runner(WORLD.view, lambda: read_deployments(WORLD.fleet)).scan(
        parse(text, now_s=AT_S))} == {tuple(each.split("/")) for each in expected}  # fmt: skip


def test_routes_of_several_kinds_with_one_name_are_all_listed_over_pages() -> None:
    runner = Runner(WORLD.view, lambda: read_deployments(WORLD.fleet))
    for text in ("routes where host = 'lab.test'", "routes where name = front and namespace = lab"):
        query = parse(f"{text} select kind, name", now_s=AT_S)
        first = runner.run(query, QueryPage(1))
        second = runner.run(query, QueryPage(1, first.position))
        assert [each["kind"] for each in (*first.items, *second.items)] == ["HTTPRoute", "Ingress"]
        assert (first.total, second.position) == (2, "")


def test_kinds_that_a_cluster_lacks_are_not_failing() -> None:
    kinds = tuple(
        KindStatus(kind=kind, state=state)
        for kind, state in (
            ("pods", "synced"),
            ("nodes", "forbidden"),
            ("services", "failing"),
            ("gateways", "missing"),
        )
    )
    view = MemoryView([replace(a_cluster("c"), kinds=kinds)])
    result = Runner(view, Deployments).run(parse("clusters select failing, missing", now_s=AT_S))
    assert result.items == [{"failing": ["nodes", "services"], "missing": ["gateways"]}]


def test_a_service_with_addresses_of_two_families_counts_its_pods_once() -> None:
    (item,) = ask("services where name = web and cluster = eu-1 select endpoints, ready_endpoints").items
    assert item == {"endpoints": 2, "ready_endpoints": 1}


def test_select_gives_these_columns_in_this_order_with_their_types() -> None:
    result = ask(
        "pods where name = 'web-2' select name, labels.app, labels['shoal.dev/deployment'], image, age, labels"
    )
    assert [(each.name, each.type) for each in result.columns] == [
        ("name", "text"), ("labels.app", "text"), ("labels['shoal.dev/deployment']", "text"), ("image", "texts"),
        ("age", "age"), ("labels", "map"),
    ]  # fmt: skip
    (item,) = result.items
    assert item["labels.app"] == "web"
    assert item["labels['shoal.dev/deployment']"] == "dep-3"
    assert item["image"] == ["reg.io/web:v2", "istio/proxy:1.24.0"]
    assert item["age"] == 120.0
    assert item["labels"]["version"] == "v2"


def test_every_field_of_every_kind_can_be_selected() -> None:
    for kind in ("pods", "services", "endpointslices", "nodes", "deployments", "virtualservices", "clusters"):
        for item in ask(f"{kind} select *").items:
            assert item["cluster"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("pods count", [{"count": 6}]),
        ("pods where name = nobody count", [{"count": 0}]),
        ("pods count by region", [{"region": "eu", "count": 3}, {"region": "us", "count": 3}]),
        ("pods count by region order by region desc limit 1", [{"region": "us", "count": 3}]),
        ("pods count by region, ready order by count, region", [
            {"region": "eu", "ready": False, "count": 1}, {"region": "us", "ready": False, "count": 1},
            {"region": "eu", "ready": True, "count": 2}, {"region": "us", "ready": True, "count": 2}]),
        ("pods where region = eu count by image", [
            {"image": "istio/proxy:1.24.0", "count": 2}, {"image": "reg.io/web:v1", "count": 2},
            {"image": "reg.io/web:v2", "count": 1}]),
        ("pods where cluster = eu-1 count by labels.team", [
            {"labels.team": None, "count": 2}, {"labels.team": "data", "count": 1}]),
    ],
)  # fmt: skip
def test_rows_are_counted_by_the_given_fields(text: str, expected: list[dict[str, Any]]) -> None:
    assert ask(text).items == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("pods order by restarts desc, name limit 3", ["eu-1/web-2", "eu-1/web-1", "us-1/web-1"]),
        ("pods order by labels.version desc limit 4", ["eu-1/web-2", "us-1/web-1", "eu-1/web-1", "eu-1/batch-7"]),
        ("pods order by age limit 2", ["eu-1/web-1", "us-1/web-1"]),
        ("pods order by revision limit 3", ["eu-1/web-1", "us-1/web-1", "eu-1/web-2"]),
        ("pods order by name desc, cluster desc limit 2", ["eu-1/web-2", "us-1/web-1"]),
        ("pods order by ready, name limit 2", ["us-1/web-1", "eu-1/web-2"]),
    ],
)
def test_unknown_values_come_last_and_ties_are_ordered_by_name(text: str, expected: list[str]) -> None:
    assert names(text) == expected


@pytest.mark.parametrize(
    "text",
    ["pods", "pods order by restarts desc", "pods order by labels.version desc, age", "pods order by app limit 5"],
)
def test_pages_together_are_the_whole_list_also_while_rows_come_and_go(text: str) -> None:
    whole = names(text)
    paged: list[str] = []
    position = ""
    while True:
        result = ask(text, QueryPage(2, position))
        assert result.total == len(whole)
        paged += [f"{row.cluster}/{row.name}" for row in result.rows]
        position = result.position
        if not position:
            break
        assert len(result.rows) == 2
    assert paged == whole


def test_an_order_by_age_stays_while_ages_grow() -> None:
    view = MemoryView([a_cluster("c")])
    for number in range(6):
        view.put("c", "pods", a_pod(f"p{number}", ago_s=100 - number))
    found: list[str] = []
    position = ""
    while True:
        result = Runner(view, Deployments).run(parse("pods order by age desc", now_s=view.at_s), QueryPage(2, position))
        found += [row.name for row in result.rows]
        position = result.position
        view.at_s += 50
        if not position:
            break
    assert found == [f"p{number}" for number in range(6)]


def test_a_removed_row_before_the_position_causes_no_gap() -> None:
    view = MemoryView([a_cluster("c")])
    view.put("c", "namespaces", *({"metadata": {"name": name}} for name in "abcd"))
    runner = Runner(view, lambda: read_deployments(WORLD.fleet))
    first = runner.run(parse("namespaces", now_s=AT_S), QueryPage(2))
    view.remove("c", "namespaces", "a")
    second = runner.run(parse("namespaces", now_s=AT_S), QueryPage(2, first.position))
    assert [row.name for row in second.rows] == ["c", "d"]


@pytest.mark.parametrize("position", ["x", "W10", "WzEsWyJhIl1d", "!!", "bnVsbA"])
def test_an_invalid_position_is_refused(position: str) -> None:
    with pytest.raises(BadRequest, match="invalid continue token"):
        ask("pods", QueryPage(2, position))


WORDS = st.sampled_from(
    ["pods", "services", "nodes", "clusters", "where", "select", "count", "by", "order", "limit", "and", "or", "not", "in",
     "(", ")", ",", "=", "!=", "~", "<", ">=", "name", "ready", "labels.app", "labels['a/b']", "image", "age", "restarts",
     "'x'", "5m", "3", "true", "desc", "*", "cluster.version", "service", "''", "[", "'(a|b)+'", "revision"]
)  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(words=st.lists(WORDS, max_size=9) | st.tuples(st.just("pods"), st.just("where"), WORDS, WORDS, WORDS, WORDS))
def test_any_text_is_either_answered_or_refused_as_an_invalid_query(words: Sequence[str]) -> None:
    try:
        result = ask(" ".join(words))
    except QueryError as error:
        assert "^" in error.message
    else:
        assert len(result.items) <= result.total


def test_no_text_of_a_user_is_executed() -> None:
    for value in ("__import__('os')", "'''; import os; '''", "{row}", "\\", "] or [1"):
        quoted = value.replace("'", "''")
        assert names(f"pods where name = '{quoted}' or labels['{quoted}'] = '{quoted}'") == []
