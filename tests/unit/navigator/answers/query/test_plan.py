"""A plan finds the rows that a full scan finds, and tests fewer rows."""

from __future__ import annotations

import pytest
from answers_world import a_pod, a_slice
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.navigator.answers.fleet import Deployments
from shoal.navigator.answers.query.model import Query
from shoal.navigator.answers.query.parser import parse
from shoal.navigator.answers.query.plan import plan
from shoal.navigator.answers.query.run import Runner
from shoal.navigator.model import Row
from shoal.testing.views import AT_S, MemoryView, a_cluster

CLUSTERS = ("c1", "c2", "c3")
FLEET = Deployments(
    app={"d1": "x", "d2": "y"}, project={"d1": "p"}, environment={"d2": "e"}, revision={"d1": 1, "d2": 2}
)

_LABELS = st.fixed_dictionaries(
    {},
    optional={
        "app": st.sampled_from(["x", "y"]),
        "app.kubernetes.io/name": st.sampled_from(["x", "y"]),
        "shoal.dev/deployment": st.sampled_from(["d1", "d2", "d9"]),
        "a/b": st.sampled_from(["", "1"]),
    },
)
_PODS = st.lists(
    st.tuples(st.sampled_from(CLUSTERS), st.sampled_from(["n1", "n2"]), st.sampled_from(["p1", "p2", "p3"]), _LABELS),
    max_size=12,
)
_LEAVES = st.sampled_from(
    ["namespace = n1", "namespace in (n1, n2)", "namespace != n1", "name = p1", "name in (p1, p3)", "name ~ '[12]'",
     "labels.app = x", "labels['a/b'] = ''", "labels['a/b']", "labels.app in (x, y)", "labels.app != x", "app = x",
     "app in (x, y)", "app = nobody", "project = p", "environment = e", "deployment = d2", "revision = 1", "cluster = c1",
     "cluster in (c1, c3)", "region = eu", "region != eu", "freshness = healthy", "cluster.tier = gold", "service = s",
     "service != s", "exposed", "ready", "cluster ~ '[23]'", "node = m1", "image in ('i:1', 'i:3')", "ip = '10.0.0.2'",
     "owner = ''"]
)  # fmt: skip
_EXPRESSIONS = st.recursive(
    _LEAVES,
    lambda inner: (
        st.builds(lambda left, right, sign: f"({left} {sign} {right})", inner, inner, st.sampled_from(["and", "or"]))
        | inner.map(lambda each: f"not ({each})")
    ),
    max_leaves=6,
)


def a_view(pods: list[tuple[str, str, str, dict[str, str]]]) -> MemoryView:
    view = MemoryView([a_cluster("c1", "eu", tier="gold"), a_cluster("c2", "us"), a_cluster("c3", "eu")])
    for cluster, namespace, name, labels in pods:
        view.put(
            cluster,
            "pods",
            a_pod(name, namespace, labels=labels, ready=name != "p2", node=f"m{name[1]}", image=f"i:{name[1]}"),
        )
    view.put("c1", "endpointslices", a_slice("s", ("p1", True), ("p2", False), namespace="n1"))
    view.put("c2", "endpointslices", a_slice("s", ("p3", True), ("gone", True), namespace="n2"))
    return view


@settings(max_examples=150, deadline=None)
@given(pods=_PODS, where=_EXPRESSIONS)
def test_a_plan_finds_exactly_the_rows_of_a_scan(pods: list[tuple[str, str, str, dict[str, str]]], where: str) -> None:
    runner = Runner(a_view(pods), lambda: FLEET)
    query = parse(f"pods where {where}", now_s=AT_S)
    found = runner.run(query).rows
    assert sorted(map(_id, found)) == sorted(map(_id, runner.scan(query))), "each once, and no other"


def _id(row: Row) -> tuple[str, str, str]:
    return row.cluster, row.namespace, row.name


def planned(text: str) -> tuple[Query, str]:
    query = parse(text, now_s=AT_S)
    return query, plan(query, FLEET.having).shown(1, 3)


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("namespace = n1 and name = p1", "n1/p1 in 1 of 3 clusters"),
        ("labels.app = x and namespace = n1", "index of label app=x in 1 of 3 clusters"),
        ("namespace = n1 and ready", "namespace n1 in 1 of 3 clusters"),
        ("deployment = d1 or labels.app = x",
         "index of label shoal.dev/deployment=d1, index of label app=x in 1 of 3 clusters"),
        ("app = x", "index of label app.kubernetes.io/name=x, index of label app=x, "
                    "index of label shoal.dev/deployment=d1 in 1 of 3 clusters"),
        ("image = 'i:1' and namespace = n1", "index of image i:1 in 1 of 3 clusters"),
        ("service = s", "endpoints of service s in 1 of 3 clusters"),
        ("labels.app = x or ready", "scan everything in 1 of 3 clusters"),
        ("not (labels.app = x)", "scan everything in 1 of 3 clusters"),
    ],
)  # fmt: skip
def test_the_narrowest_index_is_taken(where: str, expected: str) -> None:
    assert planned(f"pods where {where}")[1] == expected


def test_indexes_and_conditions_on_clusters_reduce_the_rows_to_test() -> None:
    pods = [(cluster, "n1", f"p{number}", {"app": f"a{number}"}) for cluster in CLUSTERS for number in range(100)]
    view = a_view(pods)

    def looked_at(where: str) -> int:
        view.scanned = 0
        Runner(view, lambda: FLEET).run(parse(f"pods where {where}", now_s=AT_S))
        return view.scanned

    assert looked_at("labels.app = a7") == 3
    assert looked_at("labels.app = a7 and region = us") == 1
    assert looked_at("region = eu and not ready") == 200
    assert looked_at("freshness = stale") == 0
    assert looked_at("namespace = n1 and name = p7") == 0
