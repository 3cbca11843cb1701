"""Differences between two moments and between two clusters."""

from __future__ import annotations

from typing import Any

from answers_world import a_pod, a_service, an_object, the_world
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.navigator.answers.diff import DiffScope, FieldChange, diff_clusters, diff_moments, field_changes
from shoal.testing.views import AT_S, MemoryView, a_cluster

WORLD = the_world()


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


async def test_clusters_are_compared_without_the_fields_that_clusters_write() -> None:
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


async def test_events_are_compared_only_when_they_are_named() -> None:
    before, after = MemoryView([a_cluster("a")]), MemoryView([a_cluster("a")])
    after.put("a", "events", an_object("web.1", reason="BackOff"))
    assert (await diff_moments(before, after, DiffScope()))["added"] == []
    assert len((await diff_moments(before, after, DiffScope(kinds=("events",))))["added"]) == 1


async def test_a_difference_that_is_too_large_is_marked_as_incomplete() -> None:
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
def test_field_changes_are_empty_exactly_when_the_objects_are_equal(before: Any, after: Any) -> None:
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
