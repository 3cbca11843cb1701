"""The index: after any changes it equals one built from scratch, and a change updates only its own entries."""

from __future__ import annotations

from typing import Any

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.navigator.digest import KindDigest, fingerprint
from shoal.navigator.manager.index import Index, Postings, terms
from shoal.navigator.manager.objects import make_row
from shoal.navigator.model import Row


def pod(name: str, namespace: str = "a", node: str = "n1", image: str = "web:1", **labels: str) -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": labels,
            "ownerReferences": [{"kind": "ReplicaSet", "name": "web-1", "controller": True}],
        },
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": image}]},
        "status": {"podIP": f"10.0.0.{len(name)}"},
    }


def row_of(cluster: str, obj: dict[str, Any], kind: str = "pods") -> tuple[str, Row]:
    metadata = obj["metadata"]
    key = f"{metadata['namespace']}/{metadata['name']}" if "namespace" in metadata else metadata["name"]
    data = orjson.dumps(obj)
    return key, make_row(cluster, kind, key, fingerprint(kind, key, data), 1000, data)


KEYS = ["a/1", "a/2", "b/1", "b/22"]
CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["east", "west"]),
        st.sampled_from(KEYS),
        st.one_of(
            st.none(),
            st.tuples(
                st.sampled_from(["n1", "n2", ""]),
                st.sampled_from(["web:1", "web:2", "db:1"]),
                st.dictionaries(st.sampled_from(["app", "tier"]), st.sampled_from(["x", "y"]), max_size=2),
            ),
        ),
    ),
    max_size=60,
)


@given(CHANGES)
@settings(max_examples=200)
def test_the_index_equals_one_that_is_built_from_scratch(changes: list[tuple[str, str, Any]]) -> None:
    index, model = Index(), {}
    for cluster, key, detail in changes:
        if detail is None:
            index.cluster(cluster).remove("pods", key)
            model.pop((cluster, key), None)
        else:
            node, image, labels = detail
            namespace, _, name = key.partition("/")
            _, row = row_of(cluster, pod(name, namespace, node, image, **labels))
            index.cluster(cluster).put(key, row)
            model[cluster, key] = row

    def shown(rows: Any) -> set[tuple[str, str]]:
        found = list(rows)
        assert len({(row.cluster, row.key) for row in found}) == len(found)
        return {(row.cluster, row.key) for row in found}

    def expected(cluster: str, holds: Any) -> set[tuple[str, str]]:
        return {place for place, row in model.items() if (not cluster or place[0] == cluster) and holds(row)}

    for cluster in ("", "east", "west", "nowhere"):
        assert shown(index.rows("pods", cluster=cluster)) == expected(cluster, lambda row: True)
        for namespace in ("a", "b", "c"):
            found = shown(index.rows("pods", cluster=cluster, namespace=namespace))
            assert found == expected(cluster, lambda row, wanted=namespace: row.namespace == wanted)
        for label in ("app", "tier"):
            for value in ("x", "y"):
                found = shown(index.labelled("pods", label, value, cluster=cluster))
                assert found == expected(cluster, lambda row, name=label, v=value: row.summary.labels.get(name) == v)
        for field in ("node", "ip", "image", "owner", "service", "host"):
            for value in ("n1", "n2", "web:1", "web:2", "db:1", "ReplicaSet/web-1", "10.0.0.1"):
                found = shown(index.having("pods", field, value, cluster=cluster))
                assert found == expected(cluster, lambda row, f=field, v=value: (f, v) in terms(row))
    for (cluster, key), row in model.items():
        assert index.row(cluster, "pods", key) is row
    for cluster in ("east", "west"):
        digest = KindDigest()
        for (name, _), row in model.items():
            if name == cluster:
                digest.add(row.fingerprint)
        assert index.cluster(cluster).digest("pods") == (digest.count, digest.value)
    assert len(index) == len(model)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 60)), max_size=200))
@settings(max_examples=100)
def test_a_posting_holds_what_was_added_and_not_discarded(actions: list[tuple[bool, int]]) -> None:
    postings, model = Postings(), set()
    for add, number in actions:
        key = f"k{number}"
        if add and key not in model:
            postings.add("v", key)
            model.add(key)
        elif not add:
            postings.discard("v", key)
            model.discard(key)
    assert sorted(postings.keys("v")) == sorted(model)
    assert len(postings) == (1 if model else 0), "nothing is left of what nobody has"


def test_a_change_in_one_cluster_rebuilds_nothing_and_leaves_the_others_alone() -> None:
    index = Index()
    for cluster in ("east", "west"):
        for number in range(200):
            index.cluster(cluster).put(*row_of(cluster, pod(f"p{number}", app="web", n=str(number))))
    west = index.clusters["west"]
    kind_index, rows = west.kind_indexes["pods"], dict(west.kind_indexes["pods"].rows)
    before = dict(index.clusters["east"].kind_indexes["pods"].rows)
    reads = list(index.labelled("pods", "app", "web"))
    index.cluster("east").put(*row_of("east", pod("p7", app="db", n="7")))
    index.cluster("east").remove("pods", "a/p8")
    assert index.clusters["west"] is west and west.kind_indexes["pods"] is kind_index
    assert all(kind_index.rows[key] is row for key, row in rows.items())
    after = index.clusters["east"].kind_indexes["pods"].rows
    assert [key for key, row in before.items() if after.get(key) is not row] == ["a/p7", "a/p8"]
    assert len(reads) == 400, "what was read before stays as it was"


def test_results_do_not_change_with_the_index() -> None:
    index = Index()
    for number in range(100):
        index.cluster("east").put(*row_of("east", pod(f"p{number}", app="web")))
    reading = index.labelled("pods", "app", "web")
    whole = index.rows("pods")
    next(reading)
    next(whole)
    for number in range(100):
        index.cluster("east").remove("pods", f"a/p{number}")
    assert len(list(reading)) == len(list(whole)) == 99


def test_services_slices_nodes_and_routes_are_found_by_indexed_fields() -> None:
    index = Index()
    east = index.cluster("east")
    service = {"metadata": {"name": "web", "namespace": "a"}, "spec": {"clusterIP": "10.1.1.1"}}
    slice_ = {
        "metadata": {"name": "web-x1", "namespace": "a", "labels": {"kubernetes.io/service-name": "web"}},
        "endpoints": [{"addresses": ["10.0.0.1"]}],
    }
    node = {"metadata": {"name": "n1"}, "status": {"addresses": [{"type": "InternalIP", "address": "192.168.0.1"}]}}
    route = {"metadata": {"name": "r", "namespace": "a"}, "spec": {"hosts": ["web.example"]}}
    for kind, obj in (("services", service), ("endpointslices", slice_), ("nodes", node), ("virtualservices", route)):
        east.put(*row_of("east", obj, kind))
    assert [row.name for row in index.having("services", "ip", "10.1.1.1")] == ["web"]
    assert [row.name for row in index.having("endpointslices", "service", "a/web")] == ["web-x1"]
    assert [row.name for row in index.having("nodes", "ip", "192.168.0.1")] == ["n1"]
    assert [row.name for row in index.having("virtualservices", "host", "web.example")] == ["r"]
    assert index.row("east", "nodes", "n1") is not None
